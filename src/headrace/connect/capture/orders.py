"""What is asked of a capture that runs elsewhere, through a topic: to stop, or to read tables anew.

An order counts for who runs when it comes: a capture reads the topic from its end on, so an order that nobody heard is
not obeyed later by surprise.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer

TOPIC: Final = "__headrace_connect_orders"
STOP, SNAPSHOT = "stop", "snapshot"


@dataclass(frozen=True, slots=True)
class Order:
    """One order; `tables` for a snapshot."""

    capture: str
    do: str
    tables: tuple[str, ...] = ()


def give(cluster: Cluster, order: Order) -> None:
    """Write an order down."""
    _ensure(cluster)
    value = json.dumps({"do": order.do, "tables": list(order.tables)}).encode()
    writer = Writer(cluster, TOPIC)
    writer.add(NewRecord(order.capture.encode(), value, time.time_ns() // 1_000_000))
    writer.flush()


def heard(cluster: Cluster, wait_ms: int) -> Iterator[list[Order]]:
    """Orders from now on, as they come; an empty list each time that a wait ends without one."""
    _ensure(cluster)
    held = bounds(cluster, cluster.partitions(TOPIC))
    starts = {where: bound.end for where, bound in held.items()}
    for records in read_records(cluster, starts, options=FetchOptions(max_wait_ms=wait_ms)):
        yield [order for _, record in records if (order := _read(record.key, record.value)) is not None]


def _read(key: bytes | None, value: bytes | None) -> Order | None:
    try:
        told = json.loads(value or b"")
        return Order((key or b"").decode(), str(told["do"]), tuple(map(str, told.get("tables", ()))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # written by somebody else


def _ensure(cluster: Cluster) -> None:
    ensure_topic(cluster, TOPIC, partitions=1, configs={"retention.ms": str(24 * 3600 * 1000)})
