"""An application of pages or answers that listens: until it is told to end, or for as long as a `with` block lasts.

What always holds: a client that connects and does not ask, or not to the end, is closed after a while, so that nobody
keeps others out by holding all the connections that there may be.
"""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.serving.listening import InvalidCertificate, listening, load_certificate

_END_WITHIN_S = 2
PATIENCE_S = 10.0  # for a whole request
_PING_EVERY_S = 15.0  # of a WebSocket, which is closed if no answer comes within that time
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Server(uvicorn.Server):
    """Leaves signals alone: uvicorn would raise them once more after its end, and a clean end would look like none."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):  # of clients that do not read what they were sent
            if connection.transport is not None:
                connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


class _Protocol(H11Protocol):
    """Does not wait for ever for a request, or for the rest of one, as uvicorn does.

    It is h11's in any case: where httptools is installed uvicorn would take that, and headers of any size with it.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._look = self.loop.call_later(PATIENCE_S, self._look_again, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From now on pings find out whether anybody is there; as many may be open as connections of any kind."""
        self._look.cancel()
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency:
            self.transport.write(_TOO_MANY)
            self.transport.close()
            return
        super().handle_websocket_upgrade(event)

    def _look_again(self, seen: object) -> None:
        """Close, if the client has not asked for anything since the last look, or not in full."""
        cycle = self.cycle
        if self.transport.is_closing():
            self.transport.abort()  # who was let go and does not read would hold what he was sent for ever
        elif cycle is seen and (cycle is None or cycle.response_complete or cycle.more_body):
            self.transport.close()
        else:
            self._look = self.loop.call_later(PATIENCE_S, self._look_again, cycle)


def _sockets() -> type[asyncio.Protocol]:
    """WebSockets, by a package that only those need who serve them."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class Sockets(WebSocketsSansIOProtocol):
        """Waits no longer for one to end who does not read the rest, keeps no answers to pings for who reads none of
        them, and leaves it to the application what is no UTF-8: uvicorn would write a page into the log of each."""

        _pong = b""  # to the last ping, of one who does not read just now (RFC 6455, 5.5.3)

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._look = self.loop.call_later(PATIENCE_S, self._look_again)

        def connection_lost(self, exc: Exception | None) -> None:
            self._look.cancel()
            super().connection_lost(exc)

        def _look_again(self) -> None:
            if self.transport.is_closing():
                self.transport.abort()
            else:
                self._look = self.loop.call_later(PATIENCE_S, self._look_again)

        async def send(self, message: Any) -> None:
            await super().send(message)
            if self.initial_response is not None and not message.get("more_body", True):
                self.handshake_complete = True  # by a refusal, which uvicorn would call an application that failed

        def handle_ping(self) -> None:
            if self.writable.is_set():
                super().handle_ping()
            else:
                self._pong = b"".join(self.conn.data_to_send()[-1:]) or self._pong

        def resume_writing(self) -> None:
            super().resume_writing()
            pong, self._pong = self._pong, b""
            if pong and not self.close_sent:
                self.transport.write(pong)

        def handle_text(self, event: Any) -> None:
            self.handle_bytes(event)

    return Sockets


class AppServer:
    """Serves an application on a socket; `serve` blocks, a `with` block serves from a thread."""

    def __init__(
        self,
        app: Any,
        bound: socket.socket,
        *,
        name: str,
        connections: int,
        certificate: str = "",
        message_bytes: int | None = None,
    ) -> None:
        """At most so many connections are open at once; the thread has the name. With a certificate it speaks TLS, and
        with `message_bytes`, the most that a message may have, also WebSocket."""
        self._bound = bound
        self._name = name
        config = uvicorn.Config(
            app,
            http=_Protocol,
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="on",
            ws="none" if message_bytes is None else _sockets(),
            ws_max_size=message_bytes or 0,
            ws_ping_interval=_PING_EVERY_S,
            ws_ping_timeout=_PING_EVERY_S,
            ws_per_message_deflate=False,  # what is small on the wire could be large here
            limit_concurrency=connections,
            timeout_graceful_shutdown=_END_WITHIN_S,
        )
        if certificate:
            config.load()
            config.ssl = load_certificate(certificate)
        self._server = _Server(config)
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        """Serve until SIGTERM or Ctrl-C, or until `stop`."""
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, lambda *_: self.stop()) for number in _ENDING_SIGNALS}
        try:
            with self.beside():
                self._server.run(sockets=[self._bound])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def beside(self) -> contextlib.AbstractContextManager[None]:
        """What goes on while it serves."""
        return contextlib.nullcontext()

    @property
    def is_serving(self) -> bool:
        """Whether the thread of a `with` block serves."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Serve no more; what is open is closed properly."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve, name=self._name, daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._thread:
            self._thread.join()


__all__ = ["PATIENCE_S", "AppServer", "InvalidCertificate", "listening", "load_certificate"]
