"""Questions over HTTP and their answers as JSON, behind the guard that all our servers have."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.errors import ClientError
from headrace.errors import HeadraceError
from headrace.pipelines.views.serving.live import Follower, Live
from headrace.pipelines.views.sink import ViewSink
from headrace.serving.access import ON_LOOPBACK, Access
from headrace.serving.answers import error_handlers, json_answer, refuse
from headrace.serving.asking import path_parts
from headrace.serving.guard import Guard, Site
from headrace.serving.probes import PROBES, nothing_wrong, probe_routes
from headrace.serving.sent_events import EventStream
from headrace.serving.server import AppServer, listening
from headrace.status import EVERY_S, VIEWS, Status, StatusWriter
from headrace.stores.errors import BadQuestion, NoSuchView, StoreAway, ViewError
from headrace.stores.views.question import Condition, read_conditions, read_key, read_question
from headrace.stores.views.shape import show_row
from headrace.stores.views.store import Answer, Kept, Reader

DEFAULT_PORT = 8300
SERVED = "@serve"  # behind a view's name in the topic of statuses: where it is served
_MAX_CONNECTIONS = 500
_END_WITHIN_S = 2
_READERS = 8
_STATUS: dict[type[HeadraceError], int] = {BadQuestion: 400, NoSuchView: 404, StoreAway: 503}


class Service:
    """All views of a file: their readers, who follows them, and the routes."""

    def __init__(
        self, views: Mapping[str, ViewSink], bootstrap: str | None, now_ms: Callable[[], int] | None = None
    ) -> None:
        self._views = views
        self._now_ms = now_ms or (lambda: int(time.time() * 1000))
        self._readers: dict[str, Reader] = {name: sink.store.reader(name, bootstrap) for name, sink in views.items()}
        self._followers = {name: Follower(reader, self._ask) for name, reader in self._readers.items()}
        self._pool = ThreadPoolExecutor(_READERS, "headrace-view-read")
        self._loop: asyncio.AbstractEventLoop | None = None
        self.app = Starlette(
            routes=[
                *probe_routes(nothing_wrong),
                Route("/", self._list),
                Route("/views", self._list),
                Route("/views/{rest:path}", self._one),
            ],
            lifespan=self._lifespan,
            exception_handlers=error_handlers(ViewError, _status_of, try_instead="/views"),
        )

    def reader(self, name: str) -> Reader:
        """The reader of a view; raises `NoSuchView`."""
        if name not in self._readers:
            raise NoSuchView(f"there is no view {name!r}: there is {', '.join(self._readers) or 'none'}")
        return self._readers[name]

    def close(self) -> None:
        self._pool.shutdown()
        for reader in self._readers.values():
            reader.close()

    def end_streams(self) -> None:
        """Let live listeners go; from any thread."""
        if self._loop:
            for follower in self._followers.values():
                asyncio.run_coroutine_threadsafe(follower.end(), self._loop)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        yield
        self._loop = None

    async def _ask(self, read: Callable[..., Any], *values: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, read, *values)

    async def _list(self, _: Request) -> Response:
        return json_answer({"views": [await self._listed(name) for name in self._views]})

    async def _listed(self, name: str) -> dict[str, Any]:
        sink = self._views[name]
        about = {"view": name, "store": sink.store.kind, "key": list(sink.key), "sources": list(sink.sources)}
        try:
            kept: Kept = await self._ask(self._readers[name].kept)
        except ViewError as error:
            return about | {"problem": str(error)}
        columns = {column.name: column.type for column in kept.shape.columns}
        return about | {"columns": columns, "freshness": kept.freshness.shown(self._now_ms())}

    async def _one(self, request: Request) -> Response:
        name, *parts = path_parts(request, "/views/")
        reader = self.reader(name)
        if not parts or parts == [""]:
            return await self._page(name, reader, request)
        kept: Kept = await self._ask(reader.kept)
        if parts == ["live"] or (len(parts) == len(kept.shape.key) + 1 and parts[-1] == "live"):
            return self._live(name, kept, parts[:-1], request)
        answer: Answer = await self._ask(reader.row, read_key(kept.shape, parts))
        if not answer.rows:
            raise HTTPException(404, f"view {name!r} has no row with the key {'/'.join(parts)}")
        return self._answered(name, answer, {"row": show_row(answer.kept.shape, answer.rows[0])})

    async def _page(self, name: str, reader: Reader, request: Request) -> Response:
        kept: Kept = await self._ask(reader.kept)
        question = read_question(kept.shape, request.query_params.multi_items())
        answer: Answer = await self._ask(reader.page, question)
        rows = [show_row(answer.kept.shape, row) for row in answer.rows]
        more = question.cursor(dict(answer.rows[-1])) if len(rows) == question.limit else None
        return self._answered(name, answer, {"rows": rows, "next": more})

    def _answered(self, name: str, answer: Answer, found: dict[str, Any]) -> Response:
        return json_answer({"view": name, **found, "freshness": answer.kept.freshness.shown(self._now_ms())})

    def _live(self, name: str, kept: Kept, parts: list[str], request: Request) -> Response:
        conditions = list(read_conditions(kept.shape, request.query_params.multi_items()))
        if parts:
            values = zip(kept.shape.key_columns, read_key(kept.shape, parts), strict=True)
            conditions += [Condition(column, "eq", value) for column, value in values]
        last = request.headers.get("last-event-id", "")
        live = Live(self._readers[name], self._followers[name], self._ask, conditions, self._now_ms)
        return EventStream(live.events(int(last) if last.isdecimal() and len(last) < 19 else None))


def _status_of(error: HeadraceError) -> int:
    return _STATUS.get(type(error), 500)


class ViewServer(AppServer):
    """Serves views; `serve` blocks, a `with` block serves from a thread."""

    def __init__(
        self,
        views: Mapping[str, ViewSink],
        port: int = DEFAULT_PORT,
        bootstrap: str | None = None,
        access: Access = ON_LOOPBACK,
    ) -> None:
        """Take the port: 0 stands for a free one. With `bootstrap` it is reported where views are served."""
        bound = listening(access.host, port, ViewError)
        self.port = int(bound.getsockname()[1])
        self._views, self._bootstrap = views, bootstrap
        self.service = Service(views, bootstrap)
        self._ended = threading.Event()
        self._access = access
        super().__init__(
            Guard(self.service.app, access, self.port, Site(refuse, open_paths=PROBES)),
            bound,
            name="headrace-views",
            connections=_MAX_CONNECTIONS,
            certificate=access.certificate,
        )

    @property
    def url(self) -> str:
        return self._access.url(self.port)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Reports where views are served, and closes what they keep open at the end."""
        reporting = threading.Thread(target=self._report, name="headrace-view-served", daemon=True)
        if self._bootstrap:
            reporting.start()
        try:
            yield
        finally:
            self._ended.set()
            self.service.close()
            if self._bootstrap:
                reporting.join(_END_WITHIN_S)

    def stop(self) -> None:
        """Serve no more; what is open is closed properly."""
        self._ended.set()
        self.service.end_streams()
        super().stop()

    def _report(self) -> None:
        """Where each view is served, every half minute; a broker that is away is asked again the next time."""
        assert self._bootstrap is not None
        is_ended = False
        while not is_ended:
            is_ended = self._ended.is_set()
            with (
                suppress(ClientError),
                Cluster(parse_bootstrap(self._bootstrap), retry=PATIENT.at_most(1)) as cluster,
            ):
                writer = StatusWriter(cluster, VIEWS)
                for name, sink in self._views.items():
                    if is_ended:
                        writer.remove(name + SERVED)
                    else:
                        url = f"{self.url}/views/{name}"
                        writer.write(Status.of(name + SERVED, sink.store.kind, "served", url=url))
            self._ended.wait(EVERY_S)
