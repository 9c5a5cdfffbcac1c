"""How far a job is behind: in records, and in the time that the next record has waited."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.lag import timestamps_at
from headrace.client.offsets import LATEST, list_offsets
from headrace.model import TopicPartition


class Lag(NamedTuple):
    """What waits; the time is None where nothing can be said, and 0 where nothing waits."""

    records: int
    time_ms: int | None


def lag_of(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], now_ms: int, ids: Mapping[str, str] | None = None
) -> Lag:
    """What lies behind these offsets; all of a topic that is not the one of this id any more."""
    for topic, id_before in (ids or {}).items():
        if id_before != (cluster.topic(topic, refresh=True).id_text or id_before):
            offsets = dict.fromkeys(cluster.partitions(topic), 0) | {
                where: offset for where, offset in offsets.items() if where.topic != topic
            }
    ends = list_offsets(cluster, dict.fromkeys(offsets, LATEST), committed=True)
    waiting = {where: offset for where, offset in offsets.items() if ends[where].offset > offset}
    records = sum(ends[where].offset - offset for where, offset in waiting.items())
    if not waiting:
        return Lag(0, 0)
    stamps = timestamps_at(cluster, waiting)
    return Lag(records, max(now_ms - min(stamps.values()), 0) if stamps else None)
