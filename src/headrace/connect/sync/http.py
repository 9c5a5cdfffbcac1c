"""One HTTP connection that is kept open, for the sinks that speak HTTP. What fails is told by host alone: a path or a
query may hold a token.
"""

import base64
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sink import SinkUnavailable


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes
    retry_after: str | None


class HttpHost:
    """A server, and the connection to it; belongs to one thread."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConnectSetting("url", parts.hostname or "", "write http://HOST:PORT/… or https://HOST/…")
        self.host = parts.hostname
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._port = parts.port
        self._is_secure = parts.scheme == "https"
        self._timeout_s = timeout_s
        self._headers = dict(headers or {})
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        self._connection: HTTPConnection | None = None
        self._made_of = (url, timeout_s, headers)

    def copy(self) -> "HttpHost":
        """The same server over another connection."""
        return HttpHost(*self._made_of)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request. On a connection that has been open for a while it is sent again if that turns out closed."""
        was_open = self._connection is not None
        try:
            return self._ask(method, path, body, headers or {})
        except (OSError, HTTPException) as error:
            self.close()
            if not was_open or isinstance(error, TimeoutError):
                raise self._unavailable(error) from error
        try:
            return self._ask(method, path, body, headers or {})
        except (OSError, HTTPException) as error:
            self.close()
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        if self._connection is None:
            if self._is_secure:
                context = ssl.create_default_context()
                self._connection = HTTPSConnection(self.host, self._port, timeout=self._timeout_s, context=context)
            else:
                self._connection = HTTPConnection(self.host, self._port, timeout=self._timeout_s)
        self._connection.request(method, path, body, {**self._headers, **headers})
        response = self._connection.getresponse()
        return Answer(response.status, response.read(), response.getheader("Retry-After"))

    def _unavailable(self, error: Exception) -> SinkUnavailable:
        return SinkUnavailable(f"no answer from {self.host}: {type(error).__name__}")
