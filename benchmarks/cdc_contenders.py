"""Who captures: our connector and Debezium's embedded engine, each a process between the same two servers."""

from abc import abstractmethod
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from brokers import HEADRACE
from cdc_database import SENTINEL, TABLE
from peers.debezium.engine import start_engine
from peers.process import Guarded

PREFIX = "bench"
DEBEZIUM_HEAP = "1g"


class Capture(Protocol):
    """A way to capture; `slot` is what the database knows it by, `start` may be called again to go on."""

    slot: str

    @abstractmethod
    def start(self, url: str, bootstrap: str, folder: Path, *, snapshot: bool) -> Guarded:
        """Begin, or go on where it was; with `snapshot` also with what is in the tables already."""


class Debezium(Capture):
    """As its users run it: JSON without schemas, offsets in a file."""

    slot = "bench_debezium"

    def start(self, url: str, bootstrap: str, folder: Path, *, snapshot: bool) -> Guarded:
        at = urlsplit(url)
        settings = {
            "name": "bench",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "database.hostname": at.hostname or "",
            "database.port": str(at.port),
            "database.user": at.username or "",
            "database.password": at.password or "",
            "database.dbname": at.path.strip("/"),
            "topic.prefix": PREFIX,
            "plugin.name": "pgoutput",
            "slot.name": self.slot,
            "publication.name": "bench_debezium",
            "publication.autocreate.mode": "filtered",
            "table.include.list": f"public.{TABLE},public.{SENTINEL}",
            "snapshot.mode": "initial" if snapshot else "no_data",
            "decimal.handling.mode": "string",
            "converter.schemas.enable": "false",
            "poll.interval.ms": "10",  # 500 by default, which a latency would mostly consist of
            "max.batch.size": "8192",
            "max.queue.size": "32768",
            "producer.bootstrap.servers": bootstrap,
            "producer.linger.ms": "0",
            "producer.batch.size": "262144",
            "producer.compression.type": "lz4",
            "producer.acks": "all",
            "producer.enable.idempotence": "true",
        }
        return start_engine(folder, settings, heap=DEBEZIUM_HEAP)


class Headrace(Capture):
    """`headrace cdc start`."""

    slot = "bench_headrace"

    def start(self, url: str, bootstrap: str, folder: Path, *, snapshot: bool) -> Guarded:
        command = [str(HEADRACE), "cdc", "start", "bench", "--url", url, "--bootstrap", bootstrap]
        for table in (TABLE, SENTINEL):
            command += ["--table", f"public.{table}"]
        options = {"slot": self.slot, "prefix": PREFIX, "snapshot": "initial" if snapshot else "never"}
        for name, value in (options | {"compression": "lz4"}).items():
            command += ["--set", f"{name}={value}"]
        return Guarded(command, output=folder / "headrace.log")


CAPTURES: dict[str, Capture] = {"headrace": Headrace(), "debezium": Debezium()}
