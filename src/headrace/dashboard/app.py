"""The application: every page of the registry as HTML, as JSON and live, and the forms that change something."""

import asyncio
import importlib.resources
import mimetypes
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp

from headrace.cep.pictures.svg import SHEET
from headrace.dashboard.errors import DashboardError, NotThere
from headrace.dashboard.metrics import collect
from headrace.dashboard.page import Action, Asked, Desk, Model, Page, Show, Stream
from headrace.dashboard.pages import PAGES
from headrace.dashboard.rendering import Templates, as_json
from headrace.dashboard.settings import Settings
from headrace.dashboard.stream import EventStream, LivePages
from headrace.errors import HeadraceError
from headrace.serving.guard import Guard, Refusal, Site, read_form, session_of
from headrace.serving.probes import METRICS, PROBES, probe_routes
from headrace.serving.server import AppServer, listening
from headrace.serving.sessions import Role
from headrace.telemetry.metrics import render

_STATIC = importlib.resources.files("headrace.dashboard") / "static"
_WAITING, _MISSING = "waiting.html", "missing.html"

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A page ready to be shown: its template may be another one while there is nothing to show in its own."""

    template: str
    model: Model
    status: int = 200


class Dashboard:
    """One dashboard: the routes, and what they share."""

    def __init__(self, settings: Settings, pages: tuple[Page, ...] = PAGES) -> None:
        self._settings = settings
        self._patterns = [(compile_path(page.path)[0], page) for page in pages]
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.desk = Desk(settings)
        self.live = LivePages(self.desk.watch)
        self._templates = Templates(settings, pages)
        routes = [
            Route("/live", self._live),
            Route("/static/pictures.css", _pictures),
            Route("/static/{name}", _static),
        ]
        routes += probe_routes(self._look_ready, metrics=self._metrics)
        for page in pages:
            routes += [Route(stream.path, self._stream(stream)) for stream in page.streams]
            routes += [Route(action.path, self._action(action), methods=["POST"]) for action in page.actions]
        # Paths of JSON come before pages whose names may hold anything.
        routes += [Route(f"/api{page.path.rstrip('/') or '/overview'}", self._json(page)) for page in pages]
        routes += [Route(page.path, self._html(page)) for page in pages]
        app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: self._refuse, HeadraceError: self._fail},  # type: ignore[dict-item]
        )
        site = Site(self._refuse_entry, self._login_page, ("/static/", *PROBES), ("/api/", "/live", METRICS))
        self.app: ASGIApp = Guard(app, settings.access, settings.port, site)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        app.state.ending = self._ending
        self._loop = asyncio.get_running_loop()
        self.desk.watch.start()
        try:
            yield
        finally:
            self.desk.watch.stop()
            self.desk.readers.close()
            self.desk.events.close()

    def end_streams(self) -> None:
        """Tell every stream to end, from any thread: by themselves they never do."""
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ending.set)

    # --- watched

    async def _look_ready(self) -> dict[str, str]:
        state = self.desk.state
        if state.problem:
            return {"cluster": state.problem.sentence}
        return {"cluster": "" if state.snapshot else "it was not seen yet"}

    async def _metrics(self) -> str:
        return render(collect(self.desk.state, int(time.time() * 1000)))

    # --- showing

    async def _render(self, page: Page, asked: Asked) -> Rendered:
        if self.desk.state.snapshot is None:
            return Rendered(_WAITING, {}, 503 if self.desk.state.problem else 200)
        try:
            return Rendered(page.template, await page.view(self.desk, asked))
        except NotThere as missing:
            return Rendered(_MISSING, {"sentence": str(missing)}, 404)

    def _html(self, page: Page) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            found = await self._render(page, Asked(request.path_params, dict(request.query_params)))
            model = {**found.model, "page": page, **self._viewer(request)}
            return HTMLResponse(self._templates.whole(found.template, self.desk.state, model), found.status)

        return endpoint

    def _json(self, page: Page) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            found = await self._render(page, Asked(request.path_params, dict(request.query_params)))
            state = self.desk.state
            body = {"at_ms": state.at_ms, "problem": state.problem and state.problem.sentence, **found.model}
            return Response(as_json(body), found.status, media_type="application/json")

        return endpoint

    async def _live(self, request: Request) -> Response:
        target = urlsplit(request.query_params.get("path", "/"))
        query = dict(parse_qsl(target.query))
        shown = request.query_params.get("template")
        for pattern, page in self._patterns:
            match = pattern.fullmatch(unquote(target.path))  # as the router has it when the page itself is asked for
            if match:
                asked, viewer = Asked(match.groupdict(), query), self._viewer(request)

                async def parts(
                    page: Page = page, asked: Asked = asked, viewer: Model = viewer
                ) -> dict[str, str] | None:
                    found = await self._render(page, asked)
                    if shown not in (None, found.template):
                        return None  # what was missing is there now, or the other way round
                    state = self.desk.state
                    return self._templates.live_parts(page, state, {**found.model, **viewer}, found.template)

                return EventStream(self.live.events(parts))
        raise HTTPException(404)

    def _stream(self, stream: Stream) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return await stream.run(self.desk, request, self._show(request))

        return endpoint

    def _show(self, request: Request) -> Show:
        def whole(template: str, model: Model) -> Response:
            return HTMLResponse(self._templates.whole(template, self.desk.state, {**model, **self._viewer(request)}))

        return Show(self._templates.part, whole)

    def _viewer(self, request: Request) -> Model:
        """Who looks, and what a page shows only to him."""
        session = session_of(request)
        may_write = self._settings.allow_writes and session is not None and session.role is Role.ADMIN
        return {
            "allow_writes": may_write,
            "user": session.user if session else "",
            "csrf": session.csrf if session else "",
        }

    # --- changing

    def _action(self, action: Action) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            if not self._settings.allow_writes:
                raise HTTPException(403, "This dashboard is read-only: start it with --allow-writes to change things.")
            try:
                form, _ = await read_form(request.receive)
            except Refusal as refusal:
                raise HTTPException(refusal.status, refusal.sentence) from None
            return await action.run(self.desk, request.path_params, form, self._show(request))

        return endpoint

    def _login_page(self, problem: str, *, has_users: bool, has_token: bool) -> str:
        return self._templates.part("enter.html", {"problem": problem, "has_users": has_users, "has_token": has_token})

    # --- what went wrong

    async def _refuse(self, request: Request, error: HTTPException) -> Response:
        sentence = error.detail
        if error.status_code == 404:
            sentence = "There is no page at this address."
        return self._problem_page(request, sentence, error.status_code)

    def _refuse_entry(self, request: Request, status: int, sentence: str) -> Response:
        """What the guard refuses; a page shows something of the cluster, and is only for who was let in."""
        if session_of(request) is None and not request.url.path.startswith("/api/"):
            return PlainTextResponse(f"{sentence}\n", status)
        return self._problem_page(request, sentence, status)

    async def _fail(self, request: Request, error: HeadraceError) -> Response:
        return self._problem_page(request, str(error), 400)

    def _problem_page(self, request: Request, sentence: str, status: int) -> Response:
        if request.url.path.startswith("/api/"):
            return Response(as_json({"problem": sentence}), status, media_type="application/json")
        back = urlsplit(request.headers.get("referer", "")).path or "/"
        model = {"sentence": sentence, "back": back, **self._viewer(request)}
        return HTMLResponse(self._templates.whole("problem.html", self.desk.state, model), status)


async def _pictures(_: Request) -> Response:
    """How drawings of automata look; the colours are in our own sheet."""
    return Response(SHEET, media_type="text/css", headers={"cache-control": "no-cache"})


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    # The folder is flat, and what is not listed in it is not served.
    for file in _STATIC.iterdir():
        if file.name == name and file.is_file():
            kind = mimetypes.guess_type(name)[0] or "text/plain"
            return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})
    return PlainTextResponse("not here\n", 404)


_MAX_CONNECTIONS = 200


class DashboardServer(AppServer):
    """A dashboard that listens; `serve` blocks, a `with` block serves from a thread."""

    def __init__(self, settings: Settings) -> None:
        """Take the port: 0 stands for a free one."""
        bound = listening(settings.access.host, settings.port, DashboardError)
        self.settings = replace(settings, port=int(bound.getsockname()[1]))
        self.dashboard = Dashboard(self.settings)
        super().__init__(
            self.dashboard.app,
            bound,
            name="headrace-dashboard",
            connections=_MAX_CONNECTIONS,
            certificate=settings.access.certificate,
        )

    @property
    def url(self) -> str:
        """Where to point a browser, without the token."""
        return f"{self.settings.access.url(self.settings.port)}/"

    @property
    def entry_url(self) -> str:
        """The address that lets a browser in."""
        token = self.settings.access.token
        return f"{self.url}?token={token}" if token else self.url

    def stop(self) -> None:
        """Serve no more; what is open is closed properly."""
        self.dashboard.end_streams()
        super().stop()
