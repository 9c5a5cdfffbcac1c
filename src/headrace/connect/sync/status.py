"""How far each derived system is behind, in records and in seconds, and what it is doing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import UnknownTopic
from headrace.client.group_lag import timestamps_at
from headrace.client.offsets import Bounds, bounds
from headrace.connect.sink import Place
from headrace.connect.sync.places import Condition, State, published
from headrace.connect.sync.settings import SyncSettings
from headrace.model import TopicPartition

_SILENT_AFTER_MS: Final = 100_000  # who runs says so every half minute


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """One derived system; what is not known is None."""

    name: str
    topic: str
    sink: str
    state: str
    lag_records: int | None
    lag_s: float | None
    offsets: Mapping[int, int]
    ends: Mapping[int, int]
    told_ms: int | None  # when it last said what it does
    error: str = ""


def status_of(cluster: Cluster, settings: SyncSettings, now_ms: int) -> SyncStatus:
    """Ask the broker alone: a target that is down has a status too."""
    try:
        held = bounds(cluster, cluster.partitions(settings.topic))
    except UnknownTopic:
        return SyncStatus(settings.name, settings.topic, settings.sink, "no topic", None, None, {}, {}, None)
    told = published(Coordinators(cluster), settings.name, settings.topic)
    place, condition = told if told is not None else (Place(settings.topic, {}), None)
    next_offsets = unread(place, held)
    times = timestamps_at(cluster, next_offsets) if next_offsets else {}
    return SyncStatus(
        settings.name,
        settings.topic,
        settings.sink,
        state_word(condition, now_ms),
        sum(max(bound.end - place.offsets.get(where.partition, bound.start), 0) for where, bound in held.items()),
        max((max(now_ms - ms, 0) / 1000 for ms in times.values()), default=0.0),
        dict(place.offsets),
        {where.partition: bound.end for where, bound in held.items()},
        condition.at_ms if condition else None,
        condition.error if condition else "",
    )


def unread(place: Place, held: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
    """The next offset of each partition that has one to be read."""
    found = {where: max(place.offsets.get(where.partition, 0), bound.start) for where, bound in held.items()}
    return {where: offset for where, offset in found.items() if offset < held[where].end}


def state_word(condition: Condition | None, now_ms: int) -> str:
    """A state as a person reads it; who has not been heard of for long is not believed to run."""
    if condition is None:
        return "never ran"
    if condition.state in (State.RUNNING, State.RETRYING) and now_ms - condition.at_ms > _SILENT_AFTER_MS:
        return "silent"
    return condition.state.value
