"""Topics of changes, written as the envelope writer does it, and the table that they stand for."""

import json
from collections.abc import Iterable
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer

Row = dict[str, Any]


def connect(bootstrap: str) -> Cluster:
    return Cluster(parse_bootstrap(bootstrap))


def envelope(op: str, before: Row | None, after: Row | None, ts_us: int = 1) -> bytes:
    source = {"connector": "postgresql", "ts_us": ts_us, "lsn": ts_us, "table": "orders"}
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": ts_us // 1000}
    return json.dumps(value, separators=(",", ":")).encode()


def key_of(identity: object) -> bytes:
    return json.dumps({"id": identity}, separators=(",", ":")).encode()


def upsert(identity: object, row: Row, timestamp_ms: int = 1_700_000_000_000) -> NewRecord:
    return NewRecord(key_of(identity), envelope("u", None, {"id": identity, **row}), timestamp_ms)


def delete(identity: object, timestamp_ms: int = 1_700_000_000_000) -> list[NewRecord]:
    """As the source writes it: the envelope, and the tombstone."""
    gone = envelope("d", {"id": identity}, None)
    return [NewRecord(key_of(identity), gone, timestamp_ms), NewRecord(key_of(identity), None, timestamp_ms)]


def truncate(partitions: int, ts_us: int) -> list[NewRecord]:
    """One for every partition, under the key that no row has."""
    value = envelope("t", None, None, ts_us)
    return [NewRecord(b'{"id":null}', value, 1_700_000_000_000, partition=each) for each in range(partitions)]


def make_topic(bootstrap: str, topic: str, partitions: int = 2) -> None:
    with connect(bootstrap) as cluster:
        create_topic(cluster, topic, partitions=partitions, configs={"cleanup.policy": "compact"})


def write(bootstrap: str, topic: str, records: Iterable[NewRecord]) -> None:
    with connect(bootstrap) as cluster:
        writer = Writer(cluster, topic)
        for record in records:
            writer.add(record)
        writer.flush()
