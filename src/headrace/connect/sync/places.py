"""How far a sink is: the place that its target holds checked against the topic, and a copy of it shown to the world.

A sink goes on from the place that its target holds, and only in the topic that this place is of. The copy is offsets of
a consumer group: for `headrace sync status`, which can then speak of a target that is down or locked, and for every
tool that knows consumer groups. Nobody goes on from there. What a sink is doing is in its status record.
"""

import time
from dataclasses import asdict, dataclass

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import TopicReplaced
from headrace.client.fetch import check_id
from headrace.client.groups import alter_offsets, committed_offsets
from headrace.client.offsets import bounds
from headrace.connect.errors import ConnectError
from headrace.model import TopicPartition
from headrace.status import DERIVED, SILENT, read_statuses
from headrace.stores.derived import Place, ReadableSink, RebuildableSink, Sink
from headrace.stores.errors import SinkRefused


def checked_place(cluster: Cluster, topic: str, name: str, sink: Sink | ReadableSink, stored: Place | None) -> Place:
    """Where a sink goes on, with all partitions and the id of its topic; what the log does not hold is told at once."""
    if stored is not None and stored.topic != topic:
        raise SinkRefused(
            f"the target of {name!r} was filled from topic {stored.topic!r} and not from {topic!r}: name another "
            f"target, or {remedy(name, sink)}"
        )
    known = stored.offsets if stored is not None else {}
    found = cluster.topic(topic, refresh=True)
    try:
        check_id(found, stored.topic_id if stored is not None else "")
    except TopicReplaced as error:
        raise replaced(error, name, sink) from error
    offsets = {}
    for where, held in bounds(cluster, cluster.partitions(topic)).items():
        offset = known.get(where.partition, held.start)
        if not held.start <= offset <= held.end:
            raise SinkRefused(
                f"{name!r} is at offset {offset} of {where}, which holds {held.start} to {held.end}: records are gone, "
                f"or the topic was made again; {remedy(name, sink)}"
            )
        offsets[where.partition] = offset
    surplus = sorted(set(known) - set(offsets))
    if surplus:
        raise SinkRefused(
            f"{name!r} is at offset {known[surplus[0]]} of {TopicPartition(topic, surplus[0])}, which does not exist: "
            f"the topic was made again with fewer partitions; {remedy(name, sink)}"
        )
    return Place(topic, offsets, found.id_text)


def replaced(error: TopicReplaced, name: str, sink: Sink | ReadableSink) -> SinkRefused:
    """What a sink says about a topic that is not the one its place is of."""
    return SinkRefused(
        f"{error}; the target of {name!r} was filled from that one and stays as it is: {remedy(name, sink)}"
    )


def remedy(name: str, sink: Sink | ReadableSink) -> str:
    """What to do about a place that is of no use any more."""
    if isinstance(sink, RebuildableSink):
        return f"fill it again with headrace sync rebuild {name}"
    return f"begin at the topic's first record by giving [sync.{name}] another name"


def group_of(name: str) -> str:
    """The consumer group that shows a sink's place."""
    return f"headrace-sync.{name}"


def owner_of(group: str) -> str | None:
    """The derived system whose place a group shows; None for a group of somebody else's."""
    prefix = group_of("")
    return group.removeprefix(prefix) if group.startswith(prefix) else None


def publish(coordinators: Coordinators, name: str, place: Place) -> None:
    """Show where a sink is."""
    offsets = {TopicPartition(place.topic, partition): offset for partition, offset in place.offsets.items()}
    alter_offsets(coordinators, group_of(name), offsets)


def published(coordinators: Coordinators, name: str, topic: str) -> Place | None:
    """What was shown last; None if nothing ever was."""
    found = committed_offsets(coordinators, group_of(name))
    mine = {where.partition: committed.offset for where, committed in found.items() if where.topic == topic}
    return Place(topic, mine) if mine else None


_AT_REST = frozenset({"stopped", "failed", "silent", "never ran"})


class GroupInUse(ConnectError):
    """A group that belongs to a part of ours."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The part that a group belongs to, and its state."""

    part: str
    state: str

    def __str__(self) -> str:
        return f"{self.part} {self.state}"

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def find_owner(coordinators: Coordinators, group: str) -> Owner | None:
    """Who reads for a group without being its member; None if the group is not one of ours."""
    name = owner_of(group)
    if name is None:
        return None
    said = read_statuses(coordinators.cluster, DERIVED).get(name)
    return Owner(f"sync.{name}", SILENT if said is None else said.state_at(time.time_ns() // 1_000_000))


def check_movable(group: str) -> None:
    """Refuse to move the place of a derived system: the one that counts is in its target."""
    name = owner_of(group)
    if name is not None:
        raise GroupInUse(
            f"group {group!r} shows the position of sync.{name}, which is stored in its target, so moving the group "
            f"would have no effect: to read the topic again, run headrace sync rebuild {name}"
        )


def check_unused(group: str, owner: Owner | None) -> None:
    """Refuse to delete the group of a derived system that runs."""
    if owner is not None and owner.state not in _AT_REST:
        raise GroupInUse(f"group {group!r} belongs to {owner.part}, which is {owner.state}: stop it first")
