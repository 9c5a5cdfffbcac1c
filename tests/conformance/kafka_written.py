"""A data directory written by the real Kafka, and what was written into it, for tests that read it with our code.

The directory is closed: its broker was stopped cleanly. It is written once a run and shared by all tests, so nobody
changes it: a test that opens it for writing takes `KafkaWritten.copy_to`.

Each topic is there for something:

- `codec-none`, `codec-gzip`, `codec-snappy`, `codec-lz4`, `codec-zstd`: two partitions; null keys, null and empty
  values, headers (null and empty ones, one name twice), explicit timestamps that run backwards at times; no
  producer id.
- `segments`: many small segments with many index entries.
- `idempotent`: two idempotent producers taking turns, over several segments, so producer snapshots hold both.
- `transactions`: transactions committed and aborted, two of them open at once, and records of no transaction between.
  The markers bear the broker's time, years after the records, so Kafka rolls a segment at the first one (`segment.ms`).
- `compacted`: keys written over and over and some deleted; cleaned up to the active segment, tombstones kept.
- `append-time`: timestamps by the broker (LogAppendTime).
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from peers.kafka.broker import running_kafka
from tests.reading import read_committed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

EPOCH_MS = 1_700_000_000_000
_STEP_MS = 1000

# `segment.bytes` has a minimum of 1 MiB since Kafka 4.0 (KIP-1030); this is what Kafka's own tests use below it.
_SMALL_SEGMENTS = {"internal.segment.bytes": "4096", "index.interval.bytes": "512"}

_TOPICS: dict[str, dict[str, str]] = {
    **{f"codec-{codec}": {} for codec in CODECS},
    "segments": _SMALL_SEGMENTS,
    "idempotent": _SMALL_SEGMENTS,
    "transactions": {},
    "compacted": {
        **_SMALL_SEGMENTS,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        # What the cleaner replaced is gone at once, not a minute later.
        "file.delete.delay.ms": "0",
    },
    "append-time": {"message.timestamp.type": "LogAppendTime"},
}


class Record(NamedTuple):
    """A record as it stands in the log."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class WrittenTopic:
    """A topic: all that was acknowledged into it, and what there is to read; both by partition and offset."""

    name: str
    partitions: int
    config: Mapping[str, str]
    written: tuple[Record, ...]
    """Every record that was acknowledged, with those of aborted transactions and those compacted away since."""
    records: tuple[Record, ...]
    """What Kafka serves to a consumer with `read_committed`."""

    @property
    def gone(self) -> tuple[Record, ...]:
        """What was written and is not to be read: aborted, or compacted away."""
        kept = {(record.partition, record.offset) for record in self.records}
        return tuple(record for record in self.written if (record.partition, record.offset) not in kept)


@dataclass(frozen=True)
class KafkaWritten:
    """The directory (`log.dirs` of the broker) and its topics."""

    log_dir: Path
    topics: Mapping[str, WrittenTopic]

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.log_dir / f"{topic}-{partition}"

    def log_files(self, topic: str, partition: int = 0, suffix: str = ".log") -> list[Path]:
        """The partition's files with `suffix`, in the order of their offsets."""
        return sorted(self.partition_dir(topic, partition).glob(f"*{suffix}"))

    def copy_to(self, target: Path) -> KafkaWritten:
        """The same in another place, for a test that changes it."""
        shutil.copytree(self.log_dir, target)
        return KafkaWritten(target, self.topics)


def write_with_kafka(data_dir: Path) -> KafkaWritten:
    """Run a real Kafka over `data_dir`, write all topics, wait until the cleaner is done, and stop it."""
    with running_kafka(data_dir, properties={"log.cleaner.backoff.ms": "100"}) as kafka:
        servers = kafka.bootstrap_servers
        _create_topics(servers)
        written = {
            **{f"codec-{codec}": _write_codec(servers, codec) for codec in CODECS},
            "segments": _write_segments(servers),
            "idempotent": _write_idempotent(servers),
            "transactions": _write_transactions(servers),
            "compacted": _write_compacted(servers),
            "append-time": _write_append_time(servers),
        }
        _wait_until_cleaned(kafka.log_dir, "compacted")
        readable = _read_back(servers)
        topics = {
            name: WrittenTopic(
                name,
                _partitions(name),
                config,
                tuple(sorted(written[name], key=_place)),
                tuple(sorted(readable[name], key=_place)),
            )
            for name, config in _TOPICS.items()
        }
        return KafkaWritten(kafka.log_dir, topics)


class _Writer:
    """A producer that remembers what was acknowledged; what is written between two flushes is one batch a partition."""

    def __init__(self, servers: str, topic: str, config: Mapping[str, Any] | None = None) -> None:
        self.records: list[Record] = []
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 1000,  # only a flush sends, and it does not wait for this
                "allow.auto.create.topics": False,
                **(config or {}),
            }
        )
        self._topic = topic

    def write(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        *,
        partition: int = 0,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise AssertionError(f"Kafka refused a record for {self._topic}: {error}")
            _, timestamp = message.timestamp()
            self.records.append(Record(partition, message.offset(), timestamp, key, value, headers))

        self.producer.produce(
            self._topic,
            key=key,
            value=value,
            timestamp=timestamp_ms,
            partition=partition,
            headers=list(headers),
            on_delivery=acknowledged,
        )

    def flush(self) -> None:
        left = self.producer.flush(30)
        if left:
            raise AssertionError(f"Kafka did not acknowledge {left} records for {self._topic} within 30 s")


def _write_codec(servers: str, codec: str) -> list[Record]:
    writer = _Writer(servers, f"codec-{codec}", {"compression.type": codec})
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("trace", b"\x00\xff"),),
        (("same", b"first"), ("same", b"second"), ("null", None), ("empty", b"")),
        (("größe", b"1"),),
    ]
    for i in range(200):
        writer.write(
            None if i % 5 == 0 else b"key-%d" % (i % 7),
            None if i % 11 == 3 else b"" if i % 13 == 5 else b"value-%d " % i * 8,
            # Every fourth one is late: a batch's greatest timestamp is not always its last.
            EPOCH_MS + i * _STEP_MS - (10 * _STEP_MS if i % 4 == 3 else 0),
            partition=i % 2,
            headers=headers[i % len(headers)],
        )
        if i % 40 == 39:
            writer.flush()
    writer.write(b"alone", b"in its batch", EPOCH_MS + 200 * _STEP_MS)
    writer.flush()
    return writer.records


def _write_segments(servers: str) -> list[Record]:
    writer = _Writer(servers, "segments")
    for i in range(400):
        writer.write(b"key-%d" % i, b"value-%d " % i * 6, EPOCH_MS + i * _STEP_MS)
        if i % 4 == 3:
            writer.flush()
    return writer.records


def _write_idempotent(servers: str) -> list[Record]:
    writers = [_Writer(servers, "idempotent", {"enable.idempotence": True}) for _ in range(2)]
    for i in range(120):
        writer = writers[i // 5 % 2]
        writer.write(b"key-%d" % i, b"value-%d " % i * 8, EPOCH_MS + i * _STEP_MS)
        if i % 5 == 4:
            writer.flush()
    return [record for writer in writers for record in writer.records]


def _write_transactions(servers: str) -> list[Record]:
    one, other = (_Writer(servers, "transactions", {"transactional.id": f"writer-{i}"}) for i in range(2))
    plain = _Writer(servers, "transactions")
    stamps = iter(range(EPOCH_MS, EPOCH_MS + 1000 * _STEP_MS, _STEP_MS))

    def some(writer: _Writer, what: str) -> None:
        for i in range(3):
            writer.write(b"key-%d" % i, f"{what} {i}".encode(), next(stamps), partition=i % 2)
        writer.flush()

    for writer in (one, other):
        writer.producer.init_transactions(30)
    for round_ in range(3):
        one.producer.begin_transaction()
        some(one, f"committed {round_}")
        some(plain, f"outside {round_}")
        other.producer.begin_transaction()
        some(other, f"aborted {round_}")
        some(one, f"committed late {round_}")
        # The one begun first ends last, so the last stable offset stays behind both.
        other.producer.abort_transaction(30)
        one.producer.commit_transaction(30)
    one.producer.begin_transaction()
    some(one, "aborted alone")
    one.producer.abort_transaction(30)
    return [record for writer in (one, other, plain) for record in writer.records]


def _write_compacted(servers: str) -> list[Record]:
    writer = _Writer(servers, "compacted", {"compression.type": "lz4"})
    for i in range(600):
        # Keys 0 and 1 are deleted half-way and stay so; keys 50 and up are written once and have to stay.
        key = i % 20 if i < 300 else 2 + i % 18 if i % 30 else 50 + i // 30
        value = None if i in (280, 281) else b"value-%d " % i * 8
        writer.write(b"key-%d" % key, value, EPOCH_MS + i * _STEP_MS)
        if i % 6 == 5:
            writer.flush()
    return writer.records


def _write_append_time(servers: str) -> list[Record]:
    writer = _Writer(servers, "append-time", {"compression.type": "zstd"})
    for i in range(40):
        writer.write(b"key-%d" % i, b"value-%d" % i, EPOCH_MS + i, partition=i % 2)
        if i % 10 == 9:
            writer.flush()
    return writer.records


def _create_topics(servers: str) -> None:
    # Old timestamps are data here: no record may be deleted for its age.
    topics = [
        NewTopic(name, num_partitions=_partitions(name), replication_factor=1, config={"retention.ms": "-1", **config})
        for name, config in _TOPICS.items()
    ]
    admin = AdminClient({"bootstrap.servers": servers})  # held by name: collected, it takes its requests with it
    for created in admin.create_topics(topics).values():
        created.result(30)


def _partitions(name: str) -> int:
    return 1 if name in ("segments", "idempotent", "compacted") else 2


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset


def _wait_until_cleaned(log_dir: Path, topic: str) -> None:
    """Wait until the cleaner's own checkpoint has reached the active segment and what it replaced is deleted."""
    folder = log_dir / f"{topic}-0"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        active = max(int(path.stem) for path in folder.glob("*.log"))
        checkpoint = (log_dir / "cleaner-offset-checkpoint").read_text(encoding="utf-8").splitlines()
        if f"{topic} 0 {active}" in checkpoint and not any(folder.glob("*.deleted")):
            return
        time.sleep(0.02)  # the pause of a poll: a file tells nobody that it changed
    raise AssertionError(f"Kafka did not clean {topic} within 60 s: see {sorted(folder.iterdir())}")


def _read_back(servers: str) -> dict[str, list[Record]]:
    readable: dict[str, list[Record]] = {topic: [] for topic in _TOPICS}
    for message in read_committed(servers, *_TOPICS):
        readable[message.topic()].append(_record(message))
    return readable


def _record(message: Message) -> Record:
    _, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    return Record(message.partition(), message.offset(), timestamp, message.key(), message.value(), headers)
