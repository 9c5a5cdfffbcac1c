"""Both brokers for the benchmarks, each a process of its own, seen alike: an address, a CPU clock, a memory size.

Kafka gets the JVM flags and the heap of its own start script, and its default settings but for those that have it
remove a deleted topic's files at once (the disk must not fill up between rounds).
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from broker_wire import TIMEOUT_S, TLS, Wire
from harness import ROOT
from peers.kafka.broker import KAFKA_FLAGS, KafkaBroker
from peers.process import Guarded

HEADRACE = ROOT / ".venv" / "bin" / "headrace"
KAFKA_HEAP = "1g"  # kafka-server-start.sh's own
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_numbers = count()


class Process(Protocol):
    """What the two have in common before anything is measured."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class OurBroker:
    """`headrace broker start` over `data_dir`."""

    def __init__(
        self,
        data_dir: Path,
        durability: str,
        settings: dict[str, str] | None = None,
        listen: Sequence[str] = ("127.0.0.1:0",),
    ) -> None:
        self._listen = listen
        self._data_dir = data_dir
        self._durability = durability
        self._settings = settings or {}
        self._process: Guarded | None = None
        self.addresses: list[str] = []  # in the order of `listen`

    @property
    def bootstrap_servers(self) -> str:
        return self.addresses[0]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        output = self._data_dir.with_suffix(".out")
        output.unlink(missing_ok=True)
        command = [str(HEADRACE), "broker", "start", "--data-dir", str(self._data_dir), "--json"]
        command += ["--durability", self._durability]
        for each in self._listen:
            command += ["--listen", each]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._process = Guarded(command, output=output)
        deadline = time.monotonic() + TIMEOUT_S
        while not output.read_bytes().endswith(b"\n"):
            if self._process.wait(0.001) is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not start: {output.read_text()}")
        self.addresses = json.loads(output.read_text().splitlines()[-1])["listeners"]

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            if self._process.wait(TIMEOUT_S) is None:
                raise RuntimeError("the broker did not stop")
            self._process = None

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()


class OverTls:
    """Another listener of a broker, which speaks TLS."""

    def __init__(self, process: "OurBroker | KafkaBroker") -> None:
        self._process = process
        self.start, self.stop, self.kill = process.start, process.stop, process.kill

    @property
    def bootstrap_servers(self) -> str:
        process = self._process
        return TLS + (process.bootstrap_servers if isinstance(process, OurBroker) else process.servers_of("SSL"))

    @property
    def pid(self) -> int:
        return self._process.pid


def make_key_store(folder: Path) -> Path:
    """A key and its certificate, which signed itself."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem"]
    named = ["-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1", "-out", "certificate.pem"]
    subprocess.run(["openssl", "req", "-x509", *new_key, *named], check=True, capture_output=True, cwd=folder)
    store = folder / "store.pem"
    store.touch(0o600)
    store.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return store


class Contender:
    """A running broker, with what is measured of it from outside."""

    def __init__(self, name: str, process: Process, logs: Path, flush: dict[str, str]) -> None:
        self.name = name
        self.process = process
        self._logs = logs  # where the partitions' folders are
        self._flush = flush  # the topic settings that make acks=all wait for the disk, where the topic decides that

    @property
    def address(self) -> str:
        return self.process.bootstrap_servers

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def memory_mb(self, kind: str = "VmRSS") -> float:
        """What is resident; as `RssAnon`, without the pages of files."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(kind))
        return int(line.split()[1]) * 1024 / 1e6

    @contextmanager
    def topic(self, partitions: int, configs: dict[str, str] | None = None) -> Iterator[str]:
        """A fresh topic, gone with its files afterwards; every name is as long as every other."""
        name = f"bench-{next(_numbers):06d}"
        with Wire(self.address) as wire:
            wire.create_topic(name, partitions, self._flush | (configs or {}))
        try:
            yield name
        finally:
            with Wire(self.address) as wire:
                wire.delete_topic(name)
            deadline = time.monotonic() + TIMEOUT_S
            while any(each.startswith(f"{name}-") for each in os.listdir(self._logs)) and time.monotonic() < deadline:
                time.sleep(0.02)

    @contextmanager
    def durable_coordinator(self, internal_topic: str) -> Iterator[None]:
        """Have what a coordinator writes wait for the disk as well, where the topic decides that."""
        with Wire(self.address) as wire:
            wire.alter_topic(internal_topic, dict(self._flush))
        try:
            yield
        finally:
            with Wire(self.address) as wire:
                wire.alter_topic(internal_topic, dict.fromkeys(self._flush))


class Brokers:
    """The contenders, each started when it is first needed and stopped at the end."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._running: dict[str, Process] = {}

    def pair(self, durability: str) -> tuple[Contender, Contender]:
        """Ours and Kafka, equally durable: `os` as Kafka is by default, or `fsync` with a flush for every append.

        `default` has both as they come: ours syncs, and Kafka does not.
        """
        flush = {"flush.messages": "1"} if durability == "fsync" else {}
        ours = f"ours-{'fsync' if durability == 'default' else durability}"
        return (
            Contender("ours", self._process(ours), self._folder / ours, {}),
            Contender("kafka", self._process("kafka"), self._folder / "kafka" / "log", flush),
        )

    def tls_pair(self) -> tuple[Contender, Contender]:
        """Ours and Kafka under TLS, as durable as Kafka is by default."""
        return (
            Contender("ours", self._process("ours-tls"), self._folder / "ours-tls", {}),
            Contender("kafka", self._process("kafka-tls"), self._folder / "kafka-tls" / "log", {}),
        )

    def authorizing_pair(self) -> tuple[Contender, Contender]:
        """Ours and Kafka with an authorizer, as durable as Kafka is by default; what no ACL bears on is allowed."""
        return (
            Contender("ours", self._process("ours-acl"), self._folder / "ours-acl", {}),
            Contender("kafka", self._process("kafka-acl"), self._folder / "kafka-acl" / "log", {}),
        )

    def _process(self, name: str) -> Process:
        if name not in self._running:
            process = new_process(name, self._folder / name)
            self._stack.callback(process.kill)
            process.start()
            self._running[name] = process
        return self._running[name]


def new_process(name: str, data_dir: Path, settings: dict[str, str] | None = None) -> Process:
    """`kafka`, `ours-os` or `ours-fsync`, or with `-tls` or `-acl`, not started yet."""
    if name.endswith("-acl"):
        allowing = {"allow.everyone.if.no.acl.found": "true"}
        if name == "ours-acl":
            return OurBroker(data_dir, "os", allowing | {"authorization": "on"})
        authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
        kept = {"log.segment.delete.delay.ms": "0"}
        return KafkaBroker(data_dir, properties=allowing | authorizer | kept, heap=KAFKA_HEAP, flags=KAFKA_FLAGS)
    if name.endswith("-tls"):
        store = {"ssl.keystore.location": str(make_key_store(data_dir.parent)), "ssl.keystore.type": "PEM"}
        if name == "ours-tls":
            return OverTls(OurBroker(data_dir, "os", store, ["SSL://127.0.0.1:0"]))
        kept = {"log.segment.delete.delay.ms": "0"}
        tls = {"SSL": "SSL"}
        kafka = KafkaBroker(data_dir, properties=store | kept, heap=KAFKA_HEAP, flags=KAFKA_FLAGS, listeners=tls)
        return OverTls(kafka)
    if name == "kafka":
        properties = {"log.segment.delete.delay.ms": "0"} | (settings or {})
        return KafkaBroker(data_dir, properties=properties, heap=KAFKA_HEAP, flags=KAFKA_FLAGS)
    return OurBroker(data_dir, name.removeprefix("ours-"), settings)


@contextmanager
def fresh(name: str, folder: Path, settings: dict[str, str] | None = None) -> Iterator[Contender]:
    """A contender of its own, for what is measured from the start on."""
    data_dir = folder / f"fresh-{name}"
    process = new_process(name, data_dir, settings)
    try:
        process.start()
        is_kafka = name == "kafka"
        yield Contender("kafka" if is_kafka else "ours", process, data_dir / "log" if is_kafka else data_dir, {})
        process.stop()
    finally:
        process.kill()
        shutil.rmtree(data_dir, ignore_errors=True)
