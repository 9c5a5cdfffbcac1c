"""The one door to everything that answers HTTP: who comes in, what they may do, and what a browser may do with it.

In this order: the `Host` header must name this machine (a page elsewhere may have its own name point here, and would
then read everything: DNS rebinding). Where somebody has to log in, a request shows a bearer token, a name and a
password (`Basic`, which programs send with every request), or the cookie of a session, which begins on the page
`/enter`. Whatever changes something needs the role of an admin; and because browsers send cookies by themselves, a
change with a cookie must be sent from one of our own pages and carry what that page was given (`csrf`, as a field or a
header).

A WebSocket is let in as a request is, by its `Origin` too, which a browser always sends. As a page cannot send a header
with one, it may offer its token as a subprotocol, `headrace.bearer.TOKEN`, beside the one that it wants to speak.

Pages of other origins may ask only where they are named (`Site.origins`, CORS), and never with a cookie.

What always holds: a password is checked by the broker, one at a time, and after ten wrong ones in a minute from an
address or for a user, none is until the minute is over. Every answer tells the browser to run nothing but our own
files, to show us in nobody's frame, and to keep nothing.
"""

import asyncio
import base64
import hashlib
import hmac
import html
import ipaddress
import math
import re
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import HeadraceError
from headrace.security.principal import Principal
from headrace.serving.access import Access, LoginRefused
from headrace.serving.sessions import Attempts, Role, Session, Sessions, neighbourhood
from headrace.telemetry import audit
from headrace.telemetry.audit import Caller

CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "x-csrf-token"
TOKEN_FIELD: Final = "token"  # noqa: S105 - the name of a field, not a secret
ENTER, LEAVE = "/enter", "/leave"
MAX_FORM_BYTES: Final = 2 * 1024 * 1024
SESSION_S: Final = 8 * 3600.0
_BASIC_S: Final = 60.0  # for so long the broker is not asked again about a program's password
_TRIES, _WINDOW_S = 10, 60.0
_MOST_WAITING: Final = 32  # logins
_LONGEST_NAME: Final = 256  # as much of one is remembered
_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_SESSION: Final = "headrace.session"  # in the scope of a request
_CLAIMED: Final = "headrace.claimed"  # the name of whoever tries to log in; empty if he shows a token
_ANYBODY: Final = Session("", Role.ADMIN)
_NOT_LET_IN: Final = (401, 403, 429)
BEARER_PROTOCOL: Final = "headrace.bearer."  # of a WebSocket, and the token behind it
_PREFLIGHT_S: Final = 600  # for so long a browser does not ask again whether it may ask
# And nothing else: a library that puts an address together could take the rest of a `Host` header for a path.
_HOST: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Refusal(Exception):
    """A request is not let in: the status, and a sentence."""

    def __init__(self, status: int, sentence: str, wait_s: float = 0.0) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = {"retry-after": str(math.ceil(wait_s))} if wait_s else {}


class LoginPage(Protocol):
    def __call__(self, problem: str, *, has_users: bool, has_token: bool) -> str: ...


_BY_NAME: Final = """<p><label>Name <input name="user" autocomplete="username" required></label>
<p><label>Password <input type="password" name="password" autocomplete="current-password" required></label>"""
_BY_KEY: Final = '<p><label>Token <input type="password" name="token" autocomplete="off" required></label>'


def plain_login_page(problem: str, *, has_users: bool, has_token: bool) -> str:
    """For servers that have no pages of their own."""
    fields = [_BY_NAME] * has_users + [_BY_KEY] * has_token
    forms = (f'<form method="post" action="{ENTER}">{each}<p><button>Sign in</button></form>' for each in fields)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign in · Headrace</title><h1>Sign in</h1>'
        f'<p role="alert">{html.escape(problem)}</p>{"".join(forms)}</html>'
    )


def changes_by_method(request: Request) -> bool:
    return request.method not in _SAFE_METHODS


class Site(NamedTuple):
    """What differs from server to server."""

    refuse: Callable[[Request, int, str], Response]  # how a refusal looks
    login_page: LoginPage = plain_login_page
    open_paths: tuple[str, ...] = ()  # beginnings of paths that anybody may see: what a login page needs
    program_paths: tuple[str, ...] = ("/",)  # asked by programs, which are not led to a page
    changes: Callable[[Request], bool] = changes_by_method  # whether a request wants to change something
    origins: tuple[str, ...] = ()  # further ones whose pages may ask, such as https://shop.example
    shown_headers: tuple[str, ...] = ()  # of an answer, that such a page may read besides the usual ones


def is_own_name(host: str, names: Iterable[str], *, any_address: bool) -> bool:
    """Whether a `Host` header names this machine.

    An address in figures cannot be pointed elsewhere by a name server, so where we listen for others any will do.
    """
    if not _HOST.fullmatch(host):
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # not an address in the brackets
        return False
    if name == "localhost" or name in names:
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or any_address


def is_same_origin(headers: Headers) -> bool:
    """Whether a form was sent from one of our own pages; a client that is not a browser does not say."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or _is_of(origin, headers.get("host", ""))


def _is_of(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:  # not an address in the brackets
        return False


def session_of(request: HTTPConnection) -> Session | None:
    """Whom the guard let in; None while it does not know."""
    session: Session | None = request.scope.get(_SESSION)
    return session


def cookie_name(port: int) -> str:
    """Cookies do not tell ports apart, so that two servers on one machine need two names."""
    return f"headrace_{port}"


def session_by_token(token: str) -> tuple[str, Session]:
    """The cookie that a browser gets for a server's own token, and its session: the same after a restart."""
    cookie, csrf = (
        hmac.new(token.encode(), f"headrace-{purpose}".encode(), hashlib.sha256).hexdigest()
        for purpose in ("cookie", "csrf")
    )
    return cookie, Session("", Role.ADMIN, csrf)


async def read_form(receive: Receive) -> tuple[dict[str, str], bytes]:
    """The fields of a form and the bytes that it came as; no larger than one would write by hand."""
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "The form did not arrive whole.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_FORM_BYTES:
            raise Refusal(413, "The form is larger than 2 MiB: use headrace produce for values of that size.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)), body
    except ValueError:
        raise Refusal(400, "This form cannot be read.") from None


class Guard:
    """Stands before an application; `port` is where that listens."""

    def __init__(
        self, app: ASGIApp, access: Access, port: int, site: Site, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._access = access
        self._site = site
        self._now_s = now_s
        self._cookie = cookie_name(port)
        self._listener = f"http:{port}"
        own = (access.host, socket.gethostname()) if access.is_public else ()
        self._names = frozenset(name.lower() for name in (*own, *access.host_names))
        self._sessions = Sessions(SESSION_S, fixed=dict([session_by_token(access.token)]) if access.token else None)
        self._programs = Sessions(_BASIC_S)
        self._by_address = Attempts(_TRIES, _WINDOW_S)
        self._by_user = Attempts(_TRIES, _WINDOW_S)
        self._waiting = 0
        self._one_login = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        request = Request(scope)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._record(request, message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
                if self._site.origins:
                    headers.add_vary_header("Origin")
                    if self._is_named(request):
                        headers["access-control-allow-origin"] = request.headers["origin"]
                        headers["access-control-expose-headers"] = ", ".join(self._site.shown_headers) or "retry-after"
            await send(message)

        try:
            answer, receive = await self._admit(request, receive)
        except Refusal as refusal:
            answer = self._site.refuse(request, refusal.status, refusal.sentence)
            answer.headers.update(refusal.headers)
            if refusal.status == 401:
                answer.headers["www-authenticate"] = 'Bearer realm="headrace"'
        await (answer or self._app)(scope, receive, send_safely)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a WebSocket in, or answer it as any request that is not."""
        connection = HTTPConnection(scope)
        facts = {**scope, "type": "http", "method": "GET"}
        request = Request(facts)
        try:
            self._check_host(request)
            if connection.headers.get("origin") is not None and not (
                self._is_named(request) or _is_of(connection.headers["origin"], connection.headers["host"])
            ):
                raise Refusal(403, "This page is from another site: name its origin where the server is started.")
            session = _ANYBODY if not self._access.asks else await self._identify(request)
            if session is None:
                raise Refusal(
                    401, f"Log in: send a token (Authorization: Bearer, or the subprotocol {BEARER_PROTOCOL}TOKEN)."
                )
        except Refusal as refusal:
            self._record(request, refusal.status)
            answer = self._site.refuse(request, refusal.status, refusal.sentence)
            answer.headers.update(refusal.headers)
            await answer(scope, receive, send)
            return
        scope[_SESSION] = session
        await self._app(scope, receive, send)

    def _is_named(self, request: Request) -> bool:
        return request.headers.get("origin") in self._site.origins

    def _check_host(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if not is_own_name(host, self._names, any_address=self._access.is_public):
            raise Refusal(
                421,
                f"This server does not go by the name of {host!r}: ask for 127.0.0.1 or localhost, or start it with "
                "--host-name NAME.",
            )

    async def _admit(self, request: Request, receive: Receive) -> tuple[Response | None, Receive]:
        """An answer of the guard's own, or None for a request that may go on; and where its body is to be had."""
        self._check_host(request)
        path = request.scope["path"]
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            return self._preflight(request), receive
        is_foreign = not is_same_origin(request.headers) and not self._is_named(request)
        if request.method not in _SAFE_METHODS and is_foreign:
            raise Refusal(403, "This form is from another site: load its page again.")
        if not self._access.asks:
            request.scope[_SESSION] = _ANYBODY
            return None, receive
        if path.startswith(self._site.open_paths):
            return None, receive
        if path == ENTER:
            return await self._enter(request, receive), receive
        given = request.query_params.get(TOKEN_FIELD)
        if given is not None and request.method == "GET" and self._is_token(request, given):
            return self._enter_by_address(request), receive
        session = await self._identify(request)
        if session is None:
            is_page = not path.startswith(self._site.program_paths) or "text/html" in request.headers.get("accept", "")
            if request.method == "GET" and is_page:
                return RedirectResponse(ENTER, 303), receive
            raise Refusal(401, "Log in: send a token (Authorization: Bearer), or a name and a password (Basic).")
        request.scope[_SESSION] = session
        if path == LEAVE or self._site.changes(request):
            receive = await self._check_change(request, receive, session)
        if path == LEAVE and request.method == "POST":
            return self._leave(request), receive
        return None, receive

    def _preflight(self, request: Request) -> Response:
        """Whether a page of another origin may ask: which methods and headers it uses is all the same to us."""
        if not self._is_named(request):
            raise Refusal(403, "This page is from another site: name its origin where the server is started.")
        return Response(
            status_code=204,
            headers={
                "access-control-allow-methods": "GET, POST, PUT, DELETE",
                "access-control-allow-headers": request.headers.get("access-control-request-headers", "content-type"),
                "access-control-max-age": str(_PREFLIGHT_S),
            },
        )

    def _record(self, request: Request, status: int) -> None:
        """Record what somebody changed, before he is answered, and who was not let in; of addresses, the path alone."""
        session, path, record = session_of(request), request.scope["path"], self._access.audit
        client = f"{request.client.host}:{request.client.port}" if request.client else ""
        name = (session.user if session else "") or request.scope.get(_CLAIMED, "")
        caller = Caller(str(Principal(name)) if name else "", client, None, self._listener)
        facts = {"method": request.method, "path": path, "status": status}
        if path == ENTER and request.method != "POST":
            return  # the page to log in on, which says 401 to whoever has not
        if status in _NOT_LET_IN:
            is_login = session is None and request.scope.get(_CLAIMED) is not None
            kind, event = (audit.FAILED_LOGINS, audit.LOGIN) if is_login else (audit.DENIALS, audit.HTTP)
            key = (self._listener, name, _address(request), request.method, path, status)
            record.record_often(kind, event, audit.DENIED, caller, key, **facts)
        elif path == ENTER and request.method == "POST":
            if record.wants(audit.LOGINS):
                record.record(audit.LOGIN, audit.OK, caller, **facts)
        elif session is not None and path != LEAVE and self._site.changes(request) and record.wants(audit.CHANGES):
            record.record(audit.HTTP, audit.FAILED if status >= 400 else audit.OK, caller, **facts)

    # --- who it is

    async def _identify(self, request: Request) -> Session | None:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        match scheme.lower():
            case "" if (offered := _offered_token(request)) is not None:
                return self._bearer(request, offered)
            case "":
                return self._sessions.find(request.cookies.get(self._cookie, ""), self._now_s())
            case "bearer":
                return self._bearer(request, shown.strip())
            case "basic" if self._access.users:
                return await self._basic(request, shown.strip())
        return None

    def _bearer(self, request: Request, token: str) -> Session | None:
        if self._access.tokens and (found := self._access.tokens.find(token)):
            return Session(f"token {found.name}", found.role)  # there may be a user of the same name
        return _ANYBODY if self._is_token(request, token) else None

    async def _basic(self, request: Request, shown: str) -> Session:
        known = self._programs.find(shown, self._now_s())
        if known is None:
            try:
                user, _, password = base64.b64decode(shown, validate=True).decode().partition(":")
            except ValueError:  # of base64 and of UTF-8
                raise Refusal(401, "The header Authorization cannot be read.") from None
            known = await self._ask_broker(request, user, password, shown)
        return known._replace(csrf="")

    async def _ask_broker(self, request: Request, user: str, password: str, basic: str = "") -> Session:
        """The session of somebody whom the broker lets in; one is asked about at a time."""
        assert self._access.users is not None
        request.scope[_CLAIMED] = user
        if self._waiting >= _MOST_WAITING:
            raise Refusal(429, "Too many log in at once: try again in a moment.", 1.0)
        self._waiting += 1
        try:
            async with self._one_login:
                if basic and (known := self._programs.find(basic, self._now_s())):
                    return known  # asked about meanwhile, by another request of the same program
                self._check_tries(request, user)
                try:
                    role = await asyncio.to_thread(self._access.users.role_of, user, password)
                except LoginRefused as refused:
                    self._count_try(request, user)
                    raise Refusal(401, str(refused)) from None
                except HeadraceError as error:
                    raise Refusal(503, f"The broker cannot be asked who you are: {error}") from None
        finally:
            self._waiting -= 1
        if basic:
            return self._programs.begin(user, role, self._now_s(), basic)[1]
        return Session(user, role)

    def _is_token(self, request: Request, given: str) -> bool:
        """Whether it is the server's own token; as that may be short, it is not tried for ever."""
        token = self._access.token
        if token is None or self._by_address.wait_s(_address(request), self._now_s()):
            return False
        if not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
            self._count_try(request)
            return False
        return True

    def _check_tries(self, request: Request, user: str | None = None) -> None:
        now_s = self._now_s()
        wait_s = self._by_address.wait_s(_address(request), now_s)
        if user is not None:
            wait_s = max(wait_s, self._by_user.wait_s(user[:_LONGEST_NAME], now_s))
        if wait_s:
            raise Refusal(429, f"Too many wrong logins: try again in {math.ceil(wait_s)} s.", wait_s)

    def _count_try(self, request: Request, user: str | None = None) -> None:
        self._by_address.count(_address(request), self._now_s())
        if user is not None:
            self._by_user.count(user[:_LONGEST_NAME], self._now_s())

    # --- pages

    async def _enter(self, request: Request, receive: Receive) -> Response:
        """Where somebody without a session ends up."""
        problem, status, headers = "", 401, {}
        if request.method == "POST":
            form, _ = await read_form(receive)
            try:
                return await self._log_in(request, form)
            except Refusal as refusal:
                problem, status, headers = refusal.sentence, refusal.status, refusal.headers
        access = self._access
        page = self._site.login_page(
            problem, has_users=access.users is not None, has_token=bool(access.token or access.tokens)
        )
        return HTMLResponse(page, status, headers)

    async def _log_in(self, request: Request, form: dict[str, str]) -> Response:
        if self._access.users and "user" in form:
            return self._begin(request, await self._ask_broker(request, form["user"], form.get("password", "")))
        request.scope[_CLAIMED] = ""
        self._check_tries(request)
        found = self._bearer(request, form.get(TOKEN_FIELD, "").strip())
        if found is None:
            raise Refusal(401, "Wrong token.")
        return self._begin(request, found) if found.user else self._enter_by_token(request, "/")

    def _begin(self, request: Request, found: Session) -> Response:
        key, _ = self._sessions.begin(found.user, found.role, self._now_s())
        return self._with_cookie(request, RedirectResponse("/", 303), key)

    def _enter_by_address(self, request: Request) -> Response:
        """Give a browser its cookie, and the same page without the token in its address."""
        left = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN_FIELD]
        path = request.scope["path"] + (f"?{urlencode(left)}" if left else "")
        return self._enter_by_token(request, path if path.startswith("/") and path[1:2] != "/" else "/")

    def _enter_by_token(self, request: Request, path: str) -> Response:
        assert self._access.token is not None
        return self._with_cookie(request, RedirectResponse(path, 303), session_by_token(self._access.token)[0])

    def _with_cookie(self, request: Request, response: Response, key: str) -> Response:
        is_secure = request.url.scheme == "https"
        response.set_cookie(self._cookie, key, httponly=True, samesite="strict", path="/", secure=is_secure)
        return response

    def _leave(self, request: Request) -> Response:
        self._sessions.end(request.cookies.get(self._cookie, ""))
        response = RedirectResponse(ENTER, 303)
        response.delete_cookie(self._cookie, path="/")
        return response

    # --- changes

    async def _check_change(self, request: Request, receive: Receive, session: Session) -> Receive:
        """Refuse who may not, and a form that is not ours; the body is there to be read once more."""
        if session.role is not Role.ADMIN and request.scope["path"] != LEAVE:
            raise Refusal(403, f"{session.user} may only look: a change needs the role of an admin.")
        if not session.csrf:
            return receive
        proof, body = request.headers.get(CSRF_HEADER), None
        if proof is None:
            form, body = await read_form(receive)
            proof = form.get(CSRF_FIELD, "")
        if not hmac.compare_digest(proof.encode(errors="replace"), session.csrf.encode()):
            raise Refusal(403, "This form is from another site or from before a restart: load its page again.")
        return receive if body is None else _again(body, receive)


def _offered_token(request: Request) -> str | None:
    """The token that a WebSocket offers as a subprotocol."""
    offered: list[str] = request.scope.get("subprotocols") or []
    return next((each.removeprefix(BEARER_PROTOCOL) for each in offered if each.startswith(BEARER_PROTOCOL)), None)


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever else comes."""
    bodies = [body]

    async def once() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        return await receive()

    return once


def _address(request: Request) -> str:
    return neighbourhood(request.client.host if request.client else "")
