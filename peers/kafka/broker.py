"""A real Kafka broker in KRaft mode: one process, one node, both roles, on loopback.

What always holds: when `start` returns, the broker answers requests; when `stop` returns, it has closed its logs
cleanly (failing that, both raise `PeerError`); and no broker outlives the process that started it. Settings are Kafka's
own defaults but for what a single node must have and what makes it start fast; `properties` overrides any of them,
except where the data and the listeners are.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from peers.java import QUICK_START, PeerError, java_command
from peers.kafka.tools import STORAGE_TOOL, kafka_logging, run_tool
from peers.process import Guarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

KAFKA_FLAGS: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""What Kafka's own start script gives the JVM: for benchmarks, where `QUICK_START` would be unfair to it."""

_HOST: Final = "127.0.0.1"
_NODE_ID: Final = 1
_CLUSTER_ID: Final = "headrace-peer-kafka-00"  # 22 characters, as a base64 UUID has

_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # A single node.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A fast start: each partition of an internal topic is a folder with files that are made and synced.
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "broker.heartbeat.interval.ms": "500",
        # Groups in tests are complete when they form: nothing is gained by waiting for more members.
        "group.initial.rebalance.delay.ms": "0",
        "group.streams.initial.rebalance.delay.ms": "0",
        "group.streams.assignment.interval.ms": "0",
        # 128 MiB by default, a quarter of the heap, though the cleaner here sees some thousand keys.
        "log.cleaner.dedupe.buffer.size": "8388608",
    }
)

_STARTED: Final = b"Kafka Server started"
_PORT_TAKEN: Final = b"Address already in use"
_POLL_S: Final = 0.02


class KafkaBroker:
    """A broker over `data_dir`, which may be empty or hold what an earlier one left; see `running_kafka`."""

    def __init__(
        self,
        data_dir: Path,
        *,
        properties: Mapping[str, str] = MappingProxyType({}),
        heap: str = "512m",
        flags: Sequence[str] = QUICK_START,
        listeners: Mapping[str, str] = MappingProxyType({}),
        format_options: Sequence[str] = (),
    ) -> None:
        """`listeners` are more than the plain one, each with its security protocol; see `servers_of`."""
        self._data_dir = data_dir.resolve()
        self._properties = dict(properties)
        self._heap = heap
        self._flags = tuple(flags)
        self._listeners = {"PLAINTEXT": "PLAINTEXT", **listeners, "CONTROLLER": "PLAINTEXT"}
        self._format_options = tuple(format_options)
        self._ports: dict[str, int] = {}
        self._process: Guarded | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What a client is given; the same over restarts unless something else took the port meanwhile."""
        return self.servers_of("PLAINTEXT")

    def servers_of(self, listener: str) -> str:
        """What a client of this listener is given."""
        if not self._ports:
            raise PeerError("this broker was never started")
        return f"{_HOST}:{self._ports[listener]}"

    @property
    def log_dir(self) -> Path:
        """Where the partitions' folders are."""
        return self._data_dir / "log"

    @property
    def output(self) -> Path:
        """The file with everything the broker said, over all its starts."""
        return self._data_dir / "kafka.log"

    @property
    def pid(self) -> int:
        """The Java process."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.wait(0) is None

    def start(self, *, timeout_s: float = 60) -> None:
        """Start it, formatting the directory if it is new, and return when it answers requests."""
        if self.is_running:
            raise PeerError(f"this broker already runs, as process {self.pid}")
        self._data_dir.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + timeout_s
        for _ in range(3):
            self._ports = self._ports or _free_ports(self._listeners)
            if self._try_start(deadline):
                return
            # Between our look and the broker's bind somebody else took a port: look again.
            self._ports = {}
        raise PeerError(f"Kafka found its ports taken three times over:\n{self._tail(0)}")

    def stop(self, *, timeout_s: float = 60) -> None:
        """Shut it down as an operator would (SIGTERM) and return when its logs are closed; nothing if it is down."""
        process, self._process = self._process, None
        if process is None or process.wait(0) is not None:
            return
        since = self.output.stat().st_size
        process.terminate()
        if process.wait(timeout_s) is None:
            process.kill()
            raise PeerError(f"Kafka did not stop within {timeout_s} s and was killed:\n{self._tail(since)}")
        if not (self.log_dir / ".kafka_cleanshutdown").exists():
            raise PeerError(f"Kafka stopped but did not close its logs cleanly:\n{self._tail(since)}")

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def restart(self, *, timeout_s: float = 60) -> None:
        """Stop it cleanly, if it runs, and start it on the same data."""
        self.stop(timeout_s=timeout_s)
        self.start(timeout_s=timeout_s)

    def _running(self) -> Guarded:
        if self._process is None:
            raise PeerError("this broker is not running")
        return self._process

    def _try_start(self, deadline: float) -> bool:
        """Start once: True when it answers, False when a port was taken, `PeerError` for all else."""
        config = self._write_properties()
        if not (self.log_dir / "meta.properties").exists():
            options = ("--cluster-id", _CLUSTER_ID, "--config", str(config), *self._format_options)
            run_tool(STORAGE_TOOL, "format", *options)
        self.output.touch()
        since = self.output.stat().st_size
        command = java_command(
            "kafka",
            "kafka.Kafka",
            str(config),
            heap=self._heap,
            flags=self._flags,
            system_properties=kafka_logging("INFO"),
        )
        process = Guarded(command, output=self.output)
        try:
            while time.monotonic() < deadline:
                status = process.wait(_POLL_S)
                said = self._said(since)
                if status is not None:
                    if _PORT_TAKEN in said:
                        return False
                    raise PeerError(f"Kafka ended with status {status} while starting:\n{self._tail(since)}")
                # The listener answers a moment before the broker may lead partitions; the line comes after that.
                if _STARTED in said and _answers(self.bootstrap_servers):
                    self._process = process
                    return True
            raise PeerError(f"Kafka did not start in time:\n{self._tail(since)}")
        finally:
            if self._process is not process:
                process.kill()

    def _write_properties(self) -> Path:
        settings = {
            **_DEFAULTS,
            **self._properties,
            "process.roles": "broker,controller",
            "node.id": str(_NODE_ID),
            "listeners": ",".join(f"{name}://{_HOST}:{port}" for name, port in self._ports.items()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(map(":".join, self._listeners.items())),
            # Named here and not kept in the metadata log, so that the port may differ at the next start.
            "controller.quorum.voters": f"{_NODE_ID}@{_HOST}:{self._ports['CONTROLLER']}",
            "log.dirs": str(self.log_dir),
        }
        path = self._data_dir / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        return path

    def _said(self, since: int) -> bytes:
        with self.output.open("rb") as output:
            output.seek(since)
            return output.read()

    def _tail(self, since: int, *, lines: int = 40) -> str:
        return "\n".join(self._said(since).decode(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def running_kafka(
    data_dir: Path,
    *,
    properties: Mapping[str, str] = MappingProxyType({}),
    heap: str = "512m",
    flags: Sequence[str] = QUICK_START,
    listeners: Mapping[str, str] = MappingProxyType({}),
    format_options: Sequence[str] = (),
) -> Iterator[KafkaBroker]:
    """Run a real Kafka over `data_dir` for the length of a `with`, and stop it cleanly at its end.

    Inside, `stop`, `kill`, `start` and `restart` may be called at will. When the body fails, the broker is killed: the
    failure that matters is the body's.
    """
    broker = KafkaBroker(
        data_dir, properties=properties, heap=heap, flags=flags, listeners=listeners, format_options=format_options
    )
    try:
        broker.start()
        yield broker
        broker.stop()
    finally:
        broker.kill()


def _free_ports(listeners: Iterable[str]) -> dict[str, int]:
    ports = {}
    with contextlib.ExitStack() as stack:
        for listener in listeners:
            taken = stack.enter_context(socket.socket())  # until all are found, or two would get the same
            taken.bind((_HOST, 0))
            ports[listener] = taken.getsockname()[1]
    return ports


def _answers(address: str) -> bool:
    """Whether an ApiVersions request (version 0, the one every broker knows) comes back."""
    host, _, port = address.rpartition(":")
    correlation_id = 1
    header = struct.pack(">hhih", 18, 0, correlation_id, -1)
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection, connection.makefile("rb") as answer:
            connection.sendall(struct.pack(">i", len(header)) + header)
            head = answer.read(10)
    except OSError:
        return False
    return len(head) == 10 and struct.unpack(">iih", head)[1:] == (correlation_id, 0)
