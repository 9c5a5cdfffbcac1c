"""The one HTTP client: a server, and connections to it that are kept open for as long as they serve.

What always holds: no redirect is followed (it could carry a password to another host); a request has a time-out; TLS is
checked against the machine's certificates or a CA file; a connection is made to an address that was checked, where not
all are allowed (`reach.py`); and an error names the host alone, for a path or a query may hold a token. urllib3 is
loaded with the first request, so that who sends none does not wait for it.
"""

import base64
import contextlib
import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from headrace.errors import HeadraceError
from headrace.reach import EVERYWHERE, Reach

if TYPE_CHECKING:
    import urllib3


class HttpError(HeadraceError):
    """A request cannot be sent, or was not answered."""


class InvalidServer(HttpError):
    """A URL or a CA file that cannot be used; the text says what is wrong, and whoever names it says whose it is."""


class NoAnswer(HttpError):
    """Nobody answered, or not in time; trying again may help."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"no answer from {host}: {reason}")
        self.host = host
        self.reason = reason


class AddressRefused(HttpError):
    """The host is at an address that requests may not go to, which the text does not tell: it is nobody's business."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is at an address that is not public: to allow it, name its network in allow_private")


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes
    retry_after: str = ""  # the header, as it came

    @property
    def is_success(self) -> bool:
        """Whether it did what was asked."""
        return 200 <= self.status < 300


class Stream:
    """An answer that does not end; one thread reads it, any may close it."""

    def __init__(self, host: str, response: "urllib3.BaseHTTPResponse") -> None:
        self.status = response.status
        self._host = host
        self._response = response

    def chunks(self) -> Iterator[bytes]:
        """What comes, as it comes, to the end; raises `NoAnswer` if it breaks off or nothing comes for too long."""
        from urllib3.exceptions import HTTPError

        try:
            yield from self._response.stream(65536)
        except (HTTPError, OSError, ValueError, AttributeError) as error:  # of one that was closed meanwhile too
            raise NoAnswer(self._host, _reason_of(error)) from error

    def rest(self, most_bytes: int = 65536) -> bytes:
        """The beginning of what is left of an answer that does end."""
        from urllib3.exceptions import HTTPError

        try:
            return self._response.read(most_bytes)
        except HTTPError as error:
            raise NoAnswer(self._host, _reason_of(error)) from error

    def close(self) -> None:
        """Hang up; whoever reads comes to the end."""
        with contextlib.suppress(ValueError, RuntimeError, OSError, AttributeError):
            shutdown: Any = self._response.shutdown
            shutdown()


class HttpServer:
    """A server by its URL; any thread may ask it. A user and a password may stand in the URL."""

    def __init__(
        self,
        url: str,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        *,
        ca_file: str | None = None,
        connections: int = 1,
        uses_proxies: bool = False,
        reach: Reach = EVERYWHERE,
        is_over_in_time: bool = False,
    ) -> None:
        """So many connections are kept open; `uses_proxies` means those that the environment names.

        The time-out is of each wait, or with `is_over_in_time` of a request as a whole. A proxy would connect for us,
        so with one there is no `reach`.
        """
        parts, port = _split(url)
        self.host = parts.hostname or ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.origin = f"{parts.scheme}://{host}" if port is None else f"{parts.scheme}://{host}:{port}"
        self.path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        authorization = _authorization_in(parts)
        self._headers = {**({"Authorization": authorization} if authorization else {}), **(headers or {})}
        self._timeout_s = timeout_s
        self._connections = connections
        self._trust = _trust(ca_file) if parts.scheme == "https" else None
        self._proxy = _proxy_for(parts.scheme, self.host) if uses_proxies else None
        self._reach = reach
        self._is_over_in_time = is_over_in_time
        self._pool: urllib3.PoolManager | None = None
        self._has_answered = False

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        most_bytes: int | None = None,
    ) -> Answer:
        """One request; of the answer's body no more than `most_bytes` are read. Raises `NoAnswer`, `AddressRefused`.

        A server may close a connection just when it is used again: then the request is sent once more.
        """
        from urllib3.exceptions import HTTPError, ProtocolError

        try:
            with self._in_time():
                try:
                    return self._ask(method, path, body, headers or {}, most_bytes)
                except ProtocolError:
                    if not self._has_answered:
                        raise
                    self.close()
                    return self._ask(method, path, body, headers or {}, most_bytes)
        except (HTTPError, TimeoutError) as error:
            self.close()
            raise NoAnswer(self.host, _reason_of(error)) from error

    def follow(self, path: str, headers: Mapping[str, str] | None = None) -> Stream:
        """Ask for an answer that does not end; raises `NoAnswer`, and the stream does if nothing comes for so long."""
        from urllib3.exceptions import HTTPError

        if self._pool is None:
            self._pool = self._make_pool()
        try:
            response = self._pool.request(
                "GET",
                self.origin + path,
                headers={**self._headers, **(headers or {})},
                timeout=self._timeout_s,
                retries=False,
                preload_content=False,
            )
        except HTTPError as error:
            self.close()
            raise NoAnswer(self.host, _reason_of(error)) from error
        return Stream(self.host, response)

    def close(self) -> None:
        """Disconnect; the next request connects anew."""
        pool, self._pool, self._has_answered = self._pool, None, False
        if pool is not None:
            pool.clear()

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], most_bytes: int | None
    ) -> Answer:
        pool = self._pool
        if pool is None:
            pool = self._pool = self._make_pool()
        response = pool.request(
            method,
            self.origin + path,
            body=body,
            headers={**self._headers, **headers},
            timeout=self._timeout_s,
            retries=False,
            preload_content=False,
            # We ask for none that is packed; one that comes so in spite of that could be a thousand times as large.
            decode_content=most_bytes is None,
        )
        try:
            data = response.read(most_bytes)
        finally:
            # A connection with a rest of an answer in it is of no use to the next request.
            if response.closed:
                response.release_conn()
            else:
                response.close()
        self._has_answered = True
        return Answer(response.status, data, response.headers.get("Retry-After", ""))

    def _in_time(self) -> contextlib.AbstractContextManager[None]:
        if not self._is_over_in_time:
            return contextlib.nullcontext()
        from headrace.http_connections import over_within

        return over_within(self._timeout_s)

    def _make_pool(self) -> "urllib3.PoolManager":
        import urllib3

        options: dict[str, Any] = {"num_pools": 1, "maxsize": self._connections, "ssl_context": self._trust}
        if self._proxy is None and self._reach == EVERYWHERE and not self._is_over_in_time:
            return urllib3.PoolManager(**options)
        if self._proxy is None:
            from headrace.http_connections import pool_manager

            return pool_manager(self._reach, **options)
        parts, _ = _split(self._proxy)
        authorization = _authorization_in(parts)
        headers = {"Proxy-Authorization": authorization} if authorization else None
        plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        return urllib3.ProxyManager(plain, proxy_headers=headers, **options)


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidServer("cannot be read: write http://HOST:PORT/…") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidServer("must begin with http:// or https:// and name a host: write http://HOST:PORT/…")
    return parts, port


def host_in(url: str) -> str:
    """The host that a URL names; raises `InvalidServer`."""
    return _split(url)[0].hostname or ""


def basic_authorization(user: str, password: str) -> str:
    """The header's value for a user and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _authorization_in(parts: SplitResult) -> str | None:
    return parts.username and basic_authorization(unquote(parts.username), unquote(parts.password or ""))


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidServer(f"has a CA file {ca_file!r} that cannot be read: {error}") from None


def _proxy_for(scheme: str, host: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    proxy = getproxies().get(scheme)
    if proxy is None or proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _reason_of(error: BaseException) -> str:
    """What the operating system or the TLS library said; urllib3's own words name the URL."""
    while type(error).__module__.startswith("urllib3"):
        cause = next((part for part in error.args if isinstance(part, BaseException)), error.__cause__)
        if cause is None:
            return type(error).__name__
        error = cause
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
