"""Serving the dashboard: until it is told to end, or for as long as a `with` block lasts."""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Self

import uvicorn

from headrace.dashboard.app import Dashboard
from headrace.dashboard.errors import DashboardError
from headrace.dashboard.settings import Settings

_MAX_CONNECTIONS = 200
_END_WITHIN_S = 2
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Server(uvicorn.Server):
    """Leaves signals alone: uvicorn would raise them once more after its end, and a clean end would look like none."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


class DashboardServer:
    """A dashboard that listens; `serve` blocks, a `with` block serves from a thread."""

    def __init__(self, settings: Settings) -> None:
        """Take the port: 0 stands for a free one."""
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((settings.host, settings.port))
        except OSError as error:
            self._socket.close()
            raise DashboardError(
                f"cannot listen on {settings.host}:{settings.port} ({error.strerror}): choose another --port"
            ) from error
        self.settings = replace(settings, port=int(self._socket.getsockname()[1]))
        self.dashboard = Dashboard(self.settings)
        self._server = _Server(
            uvicorn.Config(
                self.dashboard.app,
                log_level="error",
                access_log=False,
                server_header=False,
                lifespan="on",
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=_END_WITHIN_S,
            )
        )
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where to point a browser, without the token."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{self.settings.port}/"

    @property
    def entry_url(self) -> str:
        """The address that lets a browser in."""
        return f"{self.url}?token={self.settings.token}" if self.settings.token else self.url

    def serve(self) -> None:
        """Serve until SIGTERM or Ctrl-C, or until `stop`."""
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, lambda *_: self.stop()) for number in _ENDING_SIGNALS}
        try:
            self._server.run(sockets=[self._socket])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Serve no more; what is open is closed properly."""
        self.dashboard.end_streams()
        self._server.should_exit = True

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve, name="headrace-dashboard", daemon=True)
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
