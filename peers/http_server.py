"""A peer that is asked over HTTP: one process on a port of loopback, started until it answers, and ended.

What always holds: when `start` returns, it answers; and it does not outlive the process that started it. If another
took the port between our look and its bind, it ends, and is started on another one.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from typing import TYPE_CHECKING, Final

from peers.java import PeerError
from peers.process import Guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.05


class HttpServer:
    """A server that `command` starts on the port it is given."""

    def __init__(self, name: str, command: Callable[[int], Sequence[str]], *, output: Path, path: str) -> None:
        """`path` is what is asked to see whether it answers; `output` is the file that it writes to."""
        self._name = name
        self._command = command
        self._output = output
        self._path = path
        self._port = 0
        self._process: Guarded | None = None

    @property
    def url(self) -> str:
        """Where it answers; the same over restarts unless something else took the port meanwhile."""
        if not self._port:
            raise PeerError(f"{self._name} was never started")
        return f"http://{_HOST}:{self._port}"

    def start(self, *, timeout_s: float = 120) -> None:
        """Start it and return when it answers."""
        deadline = time.monotonic() + timeout_s
        for _ in range(3):
            self._port = self._port or _free_port()
            process = Guarded(self._command(self._port), output=self._output)
            if self._is_up(process, deadline):
                self._process = process
                return
            self._port = 0
        raise PeerError(f"{self._name} ended three times while starting:\n{self._tail()}")

    def kill(self) -> None:
        """End it as a crash would; nothing if it is down."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def _is_up(self, process: Guarded, deadline: float) -> bool:
        while process.wait(_POLL_S) is None:
            if _answers(self._port, self._path):
                return True
            if time.monotonic() > deadline:
                process.kill()
                raise PeerError(f"{self._name} did not answer in time:\n{self._tail()}")
        return False

    def _tail(self) -> str:
        return "\n".join(self._output.read_text(errors="replace").splitlines()[-40:])


@contextlib.contextmanager
def running(server: HttpServer) -> Iterator[HttpServer]:
    """Run it for the length of a `with`; inside, it may be killed and started at will."""
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((_HOST, 0))
        return int(taken.getsockname()[1])


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(_HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
