"""Who may come in, and what a browser may do with the answers.

Three doors, in this order: the `Host` header must name this machine (a page elsewhere may have its own name point here,
and would then read everything: DNS rebinding); where there is a token, a request must carry the cookie that proves it;
and whatever writes must be a form that this dashboard gave out, sent from one of its own pages.

Behind the doors every answer tells the browser to run nothing but our own files, and to show us in nobody's frame.
"""

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.dashboard.settings import Settings, is_loopback

CSRF_FIELD = "csrf"
TOKEN_FIELD = "token"  # noqa: S105 - the name of a field, not a secret
_OPEN_PATHS = ("/static/", "/enter")

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Proofs:
    """What is made from the token: a cookie's name and value, and what a form must carry. Nothing if there is none."""

    token: str | None
    port: int

    @property
    def cookie_name(self) -> str:
        """Cookies do not tell ports apart, so that two dashboards on one machine need two names."""
        return f"headrace_{self.port}"

    @cached_property
    def cookie(self) -> str:
        """What a browser gets for the token; it does not tell the token."""
        return self._made("cookie")

    @cached_property
    def csrf(self) -> str:
        return self._made("csrf")

    def is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def is_cookie(self, given: str) -> bool:
        """Whether a browser was let in before; always, where there is no token."""
        return self.token is None or hmac.compare_digest(given.encode(), self.cookie.encode())

    def is_csrf(self, given: str) -> bool:
        """Whether a form is one of ours; never, where there is no token."""
        return self.token is not None and hmac.compare_digest(given.encode(), self.csrf.encode())

    def _made(self, purpose: str) -> str:
        return hmac.new((self.token or "").encode(), f"headrace-{purpose}".encode(), hashlib.sha256).hexdigest()


def is_own_name(host: str, names: Iterable[str], *, any_address: bool) -> bool:
    """Whether a `Host` header names this machine.

    An address in figures cannot be pointed elsewhere by a name server, so where we listen for others any will do.
    """
    try:
        name = "" if "@" in host else urlsplit(f"//{host}").hostname or ""
    except ValueError:  # half of a bracket
        return False
    if name == "localhost" or name in names:
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or any_address


def is_same_origin(headers: Headers) -> bool:
    """Whether a form was sent from one of our own pages; a client that is no browser does not say."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")


class Guard:
    def __init__(self, app: ASGIApp, settings: Settings, proofs: Proofs) -> None:
        self._app = app
        self._proofs = proofs
        self._is_for_others = not is_loopback(settings.host)
        own = (settings.host, socket.gethostname()) if self._is_for_others else ()
        self._names = frozenset(name.lower() for name in (*own, *settings.host_names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_safely)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not is_own_name(host, self._names, any_address=self._is_for_others):
            return PlainTextResponse(
                f"This dashboard does not go by the name of {host!r}: open it as 127.0.0.1 or localhost, or start it "
                "with --host-name NAME.\n",
                421,
            )
        if self._proofs.token is None or request.url.path.startswith(_OPEN_PATHS):
            return None
        given = request.query_params.get(TOKEN_FIELD)
        if given is not None and request.method == "GET" and self._proofs.is_token(given):
            return self.enter(request)
        if self._proofs.is_cookie(request.cookies.get(self._proofs.cookie_name, "")):
            return None
        if request.url.path.startswith(("/api/", "/live")):
            return PlainTextResponse("Open the address that the dashboard printed when it started.\n", 401)
        return RedirectResponse("/enter", 303)

    def enter(self, request: Request) -> Response:
        """Give a browser its cookie, and the same page without the token in its address."""
        left = [(name, value) for name, value in parse_qsl(request.url.query) if name != TOKEN_FIELD]
        path = request.url.path + (f"?{urlencode(left)}" if left else "")
        return with_cookie(
            RedirectResponse(path if path.startswith("/") and path[1:2] != "/" else "/", 303), self._proofs
        )


def with_cookie(response: Response, proofs: Proofs) -> Response:
    """The same answer, with the cookie that lets a browser in."""
    response.set_cookie(proofs.cookie_name, proofs.cookie, httponly=True, samesite="strict", path="/")
    return response
