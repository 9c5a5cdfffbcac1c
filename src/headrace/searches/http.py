"""Stored queries over HTTP: documents in hand, the queries themselves, and hits as they come.

    POST   /percolate             a document or a list of them → hits  (?mapping= ?explain=ID ?limit= ?highlights=no)
    GET    /searches              the stored queries                       (?owner= ?tag= ?after=ID ?limit=)
    GET    /searches/ID           one
    PUT    /searches/ID           store it: the object of its record, {"query": "…", "owner": "…"}
    DELETE /searches/ID           remove it
    POST   /searches/ID/pause     let no document match it; /resume, let them again
    GET    /hits                  server-sent events of hits               (?owner= ?tag= ?query=)

What always holds: an answer is what a `Percolator` with the queries of this moment says; what is changed is written to
the queries' topic and to nothing else, and only where changes are allowed; bad input changes nothing and is answered
with 400 and one sentence.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.client.address import Address
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.errors import HeadraceError
from headrace.percolation.documents import finite
from headrace.percolation.errors import PercolationError, UnknownQuery
from headrace.percolation.percolator import warm_up
from headrace.searches.live_hits import HitFeed, Wanted, hit_events
from headrace.searches.settings import SearchError
from headrace.searches.standing import MOST_ANSWER_BYTES, Answers, QueryChanged, Standing, TooManyHits
from headrace.serving.access import ON_LOOPBACK, Access
from headrace.serving.answers import error_handlers, json_answer, refuse, written_json
from headrace.serving.asking import Asked, InvalidRequest, parse_json, path_parts, read_body, read_json
from headrace.serving.guard import Guard, Site, changes_by_method
from headrace.serving.probes import PROBES, Checks, probe_routes
from headrace.serving.record_feed import InvalidPlace, Replays, read_place
from headrace.serving.sent_events import EventStream
from headrace.serving.server import AppServer, listening
from headrace.status import RUNNING, SEARCHES, WAITING, Status, StatusWriter

T = TypeVar("T")

DEFAULT_PORT: Final = 8400
SERVED: Final = "http"
"""The kind of its status; its name has the port behind it."""
MOST_DOCUMENTS: Final = 1_000  # in a request
LARGEST_BYTES: Final = 8 * 1024 * 1024  # a request
_MOST_SHOWN: Final = 10_000  # hits of a document, queries of a page
_USUALLY_SHOWN: Final = 1_000
_MAX_CONNECTIONS: Final = 500
_MOST_LISTENERS: Final = 400  # so that questions are answered however many listen
_REPORT_EVERY_S: Final = 1.0
_END_WITHIN_S: Final = 5.0
_TURN_S: Final = 0.05  # for some documents of a request, about
_REPLAYS: Final = 4  # of listeners who come back, at a time
_PERCOLATE: Final = "/percolate"


class Service:
    """The routes, the queries that stand, and who listens."""

    def __init__(
        self, bootstrap: Sequence[Address], queries: str, hits: str | None, *, allow_writes: bool, feed: HitFeed | None
    ) -> None:
        self._allow_writes = allow_writes
        self._queries = queries
        self.feed = feed if feed is not None or hits is None else HitFeed(bootstrap, hits)
        self._cluster = Cluster(bootstrap, ConnectionSettings(client_id="headrace-search"), retry=PATIENT.at_most(2))
        self._standing = Standing(self._cluster, queries)
        self._pool = ThreadPoolExecutor(1, "headrace-search")  # what stands is for one thread
        self.documents = self.unanswered = 0
        self.problem = ""
        self._replays = Replays(_REPLAYS)
        self.app = Starlette(
            routes=[
                *probe_routes(self._ready),
                Route(_PERCOLATE, self._percolate, methods=["POST"]),
                Route("/searches", self._list, methods=["GET"]),
                Route("/searches/{rest:path}", self._one, methods=["GET", "PUT", "DELETE", "POST"]),
                Route("/hits", self._hits, methods=["GET"]),
            ],
            lifespan=self._lifespan,
            exception_handlers=error_handlers(HeadraceError, _status_of, try_instead="/searches"),
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self.feed is not None:
            self.feed.start()
        # So that whoever asks first need not wait for loops to be compiled, nor for all of the queries.
        self._pool.submit(warm_up)
        self._pool.submit(self._standing.refresh)
        yield

    def end_streams(self) -> None:
        if self.feed is not None:
            self.feed.stop()

    def close(self) -> None:
        if self.feed is not None:
            self.feed.join()
        self._pool.shutdown()
        self._replays.close()
        self._cluster.close()

    async def _ready(self) -> Checks:
        try:
            await self._ask(self._standing.refresh)
        except ClientError as error:
            return {"queries": str(error)}
        return {"queries": ""}

    async def _ask(self, function: Callable[..., T], *values: Any, **named: Any) -> T:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*values, **named))
        except ClientError as error:
            self.problem = str(error)
            self.unanswered += 1
            raise
        self.problem = ""
        return found

    def status(self, url: str) -> Status:
        """How it is doing, for whoever watches."""
        feed, percolator = self.feed, self._standing.catalog.percolator
        problem = self.problem or (feed.problem if feed is not None else "")
        return Status.of(
            f"{SERVED}.{urlsplit(url).port}",
            SERVED,
            WAITING if problem else RUNNING,
            problem=problem,
            waiting="for the broker" if problem else "",
            url=f"{url}/searches",
            queries=len(percolator),
            queries_topic=self._queries,
            source=feed.topic if feed is not None else "",
            listeners=feed.listeners if feed is not None else 0,
            records=self.documents,
            unanswered=self.unanswered,
        )

    # --- documents

    async def _percolate(self, request: Request) -> Response:
        given = parse_json(await read_body(request, LARGEST_BYTES), parse_float=finite)
        documents = given if isinstance(given, list) else [given]
        if len(documents) > MOST_DOCUMENTS:
            raise InvalidRequest(
                f"a request has at most {MOST_DOCUMENTS:,} documents, not {len(documents):,}: send several"
            )
        for number, each in enumerate(documents, 1):
            if not isinstance(each, dict):
                where = f"document {number}" if isinstance(given, list) else "the document"
                raise InvalidRequest(f"{where} is not a JSON object: send an object, or a list of them")
        asked = Asked(request, ("mapping", "explain", "limit", "highlights"))
        query_id = asked.text("explain")
        ask: Callable[..., Answers]
        if query_id is not None:
            ask = partial(self._standing.explain, query_id)
        else:
            ask = partial(
                self._standing.percolate,
                mapping=asked.text("mapping") or "default",
                with_highlights=asked.yes_or_no("highlights", usual=True),
                most=asked.number("limit", 1, _MOST_SHOWN, _USUALLY_SHOWN),
            )
        if not isinstance(given, list):
            answer = written_json((await self._ask(ask, documents)).documents[0])
            self.documents += 1
            return answer
        offset, answers = await self._turns(ask, documents)
        return written_json(b'{"documents":[%s],"queries_offset":%d}' % (b",".join(answers), offset))

    async def _turns(self, ask: Callable[..., Answers], documents: Sequence[Any]) -> Answers:
        """The answers of many documents, a few at a time: other questions have their turn in between. Each says up to
        where queries were known to it, and all of them what was known to the first."""
        offset, answers = await self._ask(ask, documents[:1], first=1)
        self.documents += len(answers)
        size_bytes, together = sum(map(len, answers)), 1
        while len(answers) < len(documents):
            at, began = len(answers), time.monotonic()
            answers += (await self._ask(ask, documents[at : at + together], first=at + 1)).documents
            self.documents += len(answers) - at
            together = together * 2 if time.monotonic() - began < _TURN_S else max(together // 2, 1)
            size_bytes += sum(map(len, answers[at:]))
            if size_bytes > MOST_ANSWER_BYTES:
                raise TooManyHits
        return Answers(offset, answers)

    # --- queries

    async def _list(self, request: Request) -> Response:
        asked = Asked(request, ("owner", "tag", "after", "limit"))
        return json_answer(
            await self._ask(
                self._standing.listed,
                asked.text("owner"),
                asked.text("tag"),
                asked.text("after") or "",
                asked.number("limit", 1, _MOST_SHOWN, _USUALLY_SHOWN),
            )
        )

    async def _one(self, request: Request) -> Response:
        query_id, *more = path_parts(request, "/searches/")
        Asked(request, ())
        if request.method in ("GET", "HEAD") and not more:
            return json_answer(await self._ask(self._standing.one, query_id))
        change = {"PUT": [], "DELETE": [], "POST": ["pause", "resume"]}.get(request.method)
        if change is None or (more[0] not in change if len(more) == 1 else bool(more or change)):
            raise HTTPException(405, "a query is read, PUT or DELETEd at /searches/ID; POST its /pause or /resume")
        if not self._allow_writes:
            raise HTTPException(403, "this server changes no queries: start it with --allow-writes")
        if request.method == "POST":
            return json_answer(await self._ask(self._standing.pause, query_id, paused=more[0] == "pause"))
        if request.method == "DELETE":
            await self._ask(self._standing.remove, query_id)
            return Response(status_code=204)
        parts = await read_json(request, LARGEST_BYTES)
        if not isinstance(parts, dict):
            raise InvalidRequest("a query is stored as a JSON object: write one with 'query'")
        stored, is_new = await self._ask(self._standing.put, query_id, parts)
        place = {"location": f"/searches/{quote(query_id, safe='')}"} if is_new else {}
        return json_answer(stored, 201 if is_new else 200, place)

    # --- hits

    async def _hits(self, request: Request) -> Response:
        if self.feed is None:
            raise HTTPException(404, "this server follows no hits: start it with --hits TOPIC")
        asked = Asked(request, ("owner", "tag", "query"))
        last = request.headers.get("last-event-id")
        wanted = Wanted(asked.text("owner"), asked.text("tag"), asked.text("query"))
        place = read_place(last) if last else None
        if self.feed.listeners >= _MOST_LISTENERS:
            raise HTTPException(503, f"{_MOST_LISTENERS} listen already: try again later")
        return EventStream(hit_events(self.feed, self._replays, wanted, place))


# --- answers


def _status_of(error: HeadraceError) -> int:
    match error:
        case UnknownQuery():
            return 404
        case QueryChanged():
            return 409
        case PercolationError() | InvalidRequest() | InvalidPlace() | TooManyHits():
            return 400
        case ClientError():
            return 503
    return 500


def _changes(request: Request) -> bool:
    """A document in hand is a question, though it is sent as a POST."""
    return changes_by_method(request) and request.scope["path"] != _PERCOLATE


class SearchServer(AppServer):
    """Serves stored queries; `serve` blocks, a `with` block serves from a thread."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        queries: str,
        hits: str | None = None,
        port: int = DEFAULT_PORT,
        access: Access = ON_LOOPBACK,
        *,
        allow_writes: bool = False,
        feed: HitFeed | None = None,
    ) -> None:
        """Take the port: 0 stands for a free one. Without `hits`, nobody can listen to them."""
        bound = listening(access.host, port, SearchError)
        self.port = int(bound.getsockname()[1])
        self._access = access
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self.service = Service(bootstrap, queries, hits, allow_writes=allow_writes, feed=feed)
        super().__init__(
            Guard(self.service.app, access, self.port, Site(refuse, open_paths=PROBES, changes=_changes)),
            bound,
            name="headrace-search-http",
            connections=_MAX_CONNECTIONS,
            certificate=access.certificate,
        )

    @property
    def url(self) -> str:
        return self._access.url(self.port)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Reports how it is doing, and closes what it keeps open at the end."""
        reporting = threading.Thread(target=self._report, name="headrace-search-served", daemon=True)
        reporting.start()
        try:
            yield
        finally:
            self._ended.set()
            with suppress(ClientError):
                self.service.close()
            reporting.join(_END_WITHIN_S)

    def stop(self) -> None:
        """Serve no more; who listens is let go."""
        self._ended.set()
        self.service.end_streams()
        super().stop()

    def _report(self) -> None:
        """Every second, if there is news; what is served no more is not reported any more."""
        with Cluster(
            self._bootstrap, ConnectionSettings(client_id="headrace-reporting"), retry=PATIENT.at_most(1)
        ) as cluster:
            writer = StatusWriter(cluster, SEARCHES)
            while not self._ended.wait(_REPORT_EVERY_S):
                with suppress(ClientError):  # the broker is away: the next time
                    writer.report(self.service.status(self.url))
            with suppress(ClientError):
                writer.remove(self.service.status(self.url).name)
