"""A real RabbitMQ: one node on loopback, run from where its packages were unpacked.

What always holds: when `start` returns, the node takes connections; and neither it nor the name server of Erlang's that
it needs outlives the process that started it. Settings are RabbitMQ's own, flags of the virtual machine those of its
start script.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Final

from peers.java import PeerError, home_of
from peers.process import Guarded

if TYPE_CHECKING:
    from pathlib import Path

_HOST: Final = "127.0.0.1"
_STARTED: Final = b"Starting broker... completed"
_START_S: Final = 120.0
_STOP_S: Final = 60.0
_POLL_S: Final = 0.05
# Those of rabbitmq-server and rabbitmq-env.
_FLAGS: Final = (
    *("-noinput", "-s", "rabbit", "boot", "-boot", "start_sasl", "+W", "w"),
    *("+MBas", "ageffcbf", "+MHas", "ageffcbf", "+MBlmbcs", "512", "+MHlmbcs", "512", "+MMmcs", "30"),
    *("+P", "1048576", "+t", "5000000", "+stbt", "db", "+zdbbl", "128000"),
    *("+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"),
    *("-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"),
    *("-kernel", "prevent_overlapping_partitions", "false"),
)


class RabbitBroker:
    """A node over `data_dir`."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir.resolve()
        self._usr_lib = home_of("rabbitmq") / "usr" / "lib"
        self._home = _only(self._usr_lib / "rabbitmq" / "lib", "rabbitmq_server-*")
        self._names: Guarded | None = None
        self._node: Guarded | None = None
        self._port = 0
        self.version = self._home.name.rpartition("-")[2]
        self.output = self._data_dir / "rabbitmq.out"

    @property
    def bootstrap_servers(self) -> str:
        return f"{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        assert self._node is not None
        return self._node.pid

    def start(self) -> None:
        """Start it, or raise `PeerError` with what it said."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._port, names_port, nodes_port = _free_ports(3)
        binaries = _only(self._usr_lib / "erlang", "erts-*") / "bin"
        (self._data_dir / "rabbitmq.conf").write_text(f"listeners.tcp.1 = {self.bootstrap_servers}\n")
        (self._data_dir / "enabled_plugins").write_text("[].\n")
        environment = {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "HOME": str(self._data_dir),
            "LANG": "C.UTF-8",
            "ROOTDIR": str(self._usr_lib / "erlang"),  # the script `erl` has the place for which it was packed
            "BINDIR": str(binaries),
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_LIBS": str(self._home / "plugins"),
            "ERL_EPMD_PORT": str(names_port),
            "ERL_MAX_ETS_TABLES": "50000",
            "ERL_MAX_PORTS": "65536",
            "RABBITMQ_HOME": str(self._home),
            "RABBITMQ_NODENAME": "peer@localhost",
            "RABBITMQ_DIST_PORT": str(nodes_port),
            "RABBITMQ_MNESIA_BASE": str(self._data_dir / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._data_dir / "log"),
            "RABBITMQ_CONFIG_FILE": str(self._data_dir / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._data_dir / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._data_dir / "none"),
        }
        named = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        self._names = Guarded([*named, "epmd", "-address", _HOST], output=self._data_dir / "epmd.out")
        self._node = Guarded([*named, "erlexec", *_FLAGS], output=self.output)
        deadline = time.monotonic() + _START_S
        while _STARTED not in self.output.read_bytes():
            if self._node.wait(_POLL_S) is not None or time.monotonic() > deadline:
                self.kill()
                said = "\n".join(self.output.read_text(errors="replace").splitlines()[-30:])
                raise PeerError(f"RabbitMQ did not start:\n{said}")

    def stop(self) -> None:
        """Have the node end by itself."""
        if self._node is not None:
            self._node.terminate()
            if self._node.wait(_STOP_S) is None:
                raise PeerError("RabbitMQ did not stop in time")
        self.kill()

    def kill(self) -> None:
        for process in (self._node, self._names):
            if process is not None:
                process.kill()
        self._node = self._names = None


def _only(folder: Path, pattern: str) -> Path:
    return next(folder.glob(pattern))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind((_HOST, 0))
        return [each.getsockname()[1] for each in taken]
