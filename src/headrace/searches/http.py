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
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import quote

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
from headrace.percolation.errors import PercolationError, UnknownQuery
from headrace.searches.live_hits import HitFeed, Wanted, hit_events
from headrace.searches.settings import SearchError
from headrace.searches.standing import QueryChanged, Standing
from headrace.serving.access import ON_LOOPBACK, Access
from headrace.serving.answers import error_handlers, json_answer, refuse
from headrace.serving.asking import Asked, InvalidRequest, path_parts, read_json
from headrace.serving.guard import Guard, Site, changes_by_method
from headrace.serving.probes import PROBES, Checks, probe_routes
from headrace.serving.record_feed import InvalidPlace, Replays, read_place
from headrace.serving.sent_events import EventStream
from headrace.serving.server import AppServer, listening

T = TypeVar("T")

DEFAULT_PORT: Final = 8400
MOST_DOCUMENTS: Final = 1_000  # in a request
LARGEST_BYTES: Final = 8 * 1024 * 1024  # a request
_MOST_SHOWN: Final = 10_000  # hits of a document, queries of a page
_USUALLY_SHOWN: Final = 1_000
_MAX_CONNECTIONS: Final = 500
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
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*values, **named))

    # --- documents

    async def _percolate(self, request: Request) -> Response:
        given = await read_json(request, LARGEST_BYTES)
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
        if query_id is not None:
            said: list[Any] = await self._ask(self._standing.explain, query_id, documents)
            found = [{"query": query_id, **each} for each in said]
        else:
            found = await self._ask(
                self._standing.percolate,
                documents,
                asked.text("mapping") or "default",
                with_highlights=asked.yes_or_no("highlights", usual=True),
                most=asked.number("limit", 1, _MOST_SHOWN, _USUALLY_SHOWN),
            )
        about = {"queries_offset": self._standing.catalog.offset}
        return json_answer({"documents": found, **about} if isinstance(given, list) else {**found[0], **about})

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
        return EventStream(hit_events(self.feed, self._replays, wanted, read_place(last) if last else None))


# --- answers


def _status_of(error: HeadraceError) -> int:
    match error:
        case UnknownQuery():
            return 404
        case QueryChanged():
            return 409
        case PercolationError() | InvalidRequest() | InvalidPlace():
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
        """Closes what it keeps open at the end."""
        try:
            yield
        finally:
            with suppress(ClientError):
                self.service.close()

    def stop(self) -> None:
        """Serve no more; who listens is let go."""
        self.service.end_streams()
        super().stop()
