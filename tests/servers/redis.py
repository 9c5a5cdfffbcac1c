"""A Redis of the tests' own: Debian's redis-server on a free port, which can be killed and started again."""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.ports import free_port


def wait_for_port(port: int, process: "subprocess.Popen[bytes]", what: str, patience_s: float = 30.0) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{what} ended with {process.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"{what} does not answer on port {port}")


class RedisServer:
    """Keeps every write in its append-only file before it answers."""

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("needs redis-server: apt-get install redis-server")
        self._program = program
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-redis-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = {
            "port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": "", "appendonly": "yes",
            "appendfsync": "always", "daemonize": "no", "logfile": self.folder / "log",
        }  # fmt: skip
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        self._process = subprocess.Popen([self._program, *arguments], stdout=subprocess.DEVNULL)
        wait_for_port(self.port, self._process, "Redis")

    def kill(self) -> None:
        """Without a farewell."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
