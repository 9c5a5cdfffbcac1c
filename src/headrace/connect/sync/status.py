"""How far each derived system is behind, in records and in seconds, what it is doing, and what it could not use."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import UnknownTopic
from headrace.client.lag import timestamps_at
from headrace.client.offsets import Bounds, bounds
from headrace.connect.sync.places import published
from headrace.connect.sync.settings import SyncSettings
from headrace.dead_letters import LetterBox
from headrace.model import TopicPartition
from headrace.status import DERIVED, FAILED, SILENT, Status, read_statuses
from headrace.stores.derived import Place


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
    waiting: str = ""
    dead_letters: int = 0
    dead_letter_reasons: Mapping[str, int] = field(default_factory=dict)
    verified_ms: int | None = None
    differences: int | None = None

    @property
    def is_fine(self) -> bool:
        """Whether nobody has to look at it; it is not while `headrace sync verify` has nothing to compare.

        That is so without a topic, and as long as its target has no place in it.
        """
        return self.state != FAILED and not self.dead_letters and bool(self.ends) and bool(self.offsets)


def status_of(cluster: Cluster, settings: SyncSettings, now_ms: int) -> SyncStatus:
    """Ask the broker alone: a target that is down has a status too."""
    said = read_statuses(cluster, DERIVED).get(settings.name)
    known = said or Status.of(settings.name, settings.sink, "never ran")
    box = LetterBox(settings.dead_letters_topic, settings.topic, settings.name)
    box.look(cluster)
    held: Mapping[TopicPartition, Bounds] = {}
    place, state = None, (known.state_at(now_ms) if said else known.state)
    try:
        held = bounds(cluster, cluster.partitions(settings.topic))
        place = published(Coordinators(cluster), settings.name, settings.topic)
    except UnknownTopic:
        state = state if said is not None else "no topic"
    if said is None and place is not None:
        state = SILENT  # a version before this one ran, and said so elsewhere
    offsets = place.offsets if place is not None else {}
    next_offsets = unread(Place(settings.topic, offsets), held)
    times = timestamps_at(cluster, next_offsets) if next_offsets else {}
    behind = sum(max(bound.end - offsets.get(where.partition, bound.start), 0) for where, bound in held.items())
    return SyncStatus(
        settings.name,
        settings.topic,
        settings.sink,
        state,
        behind if held else None,
        max((max(now_ms - ms, 0) / 1000 for ms in times.values()), default=0.0) if held else None,
        dict(offsets),
        {where.partition: bound.end for where, bound in held.items()},
        said.at_ms if said else None,
        known.text("problem"),
        known.text("waiting"),
        box.count,
        box.reasons,
        known.facts.get("verified_ms"),
        known.facts.get("differences"),
    )


def unread(place: Place, held: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
    """The next offset of each partition that has one to be read."""
    found = {where: max(place.offsets.get(where.partition, 0), bound.start) for where, bound in held.items()}
    return {where: offset for where, offset in found.items() if offset < held[where].end}
