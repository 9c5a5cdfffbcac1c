"""Where connectors stand: the compacted topic in which each one's position is the last record of its name."""

import json
from typing import Final

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.change import Position

OFFSETS_TOPIC: Final = "__headrace_connect_offsets"
_COMMITTED: Final = FetchOptions(committed=True)


def position_key(connector: str) -> bytes:
    """The key of a connector's positions."""
    return json.dumps({"connector": connector}).encode()


def position_value(position: Position) -> bytes:
    """A position as it is stored."""
    return json.dumps(position, separators=(",", ":")).encode()


def ensure_offsets_topic(cluster: Cluster) -> None:
    """Make the topic, if it is not there."""
    ensure_topic(cluster, OFFSETS_TOPIC, partitions=1, configs={"cleanup.policy": "compact"})


def read_position(cluster: Cluster, connector: str) -> Position | None:
    """A connector's last committed position; None if it has none.

    The topic is read to its very end and not only as far as everything is decided: another connector's open transaction
    may stand before this one's position, and is waited for.
    """
    key = position_key(connector)
    held = bounds(cluster, cluster.partitions(OFFSETS_TOPIC))
    starts = {partition: bound.start for partition, bound in held.items() if bound.end > bound.start}
    until = {partition: bound.end for partition, bound in held.items() if bound.end > bound.start}
    found: bytes | None = None
    for read in read_records(cluster, starts, until=until, options=_COMMITTED):
        for _, record in read:
            if record.key == key:
                found = record.value
    if found is None:
        return None
    position: Position = json.loads(found)
    return position
