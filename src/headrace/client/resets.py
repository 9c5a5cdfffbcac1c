"""Where a group shall go on reading: looked up first, so that it can be shown, and set afterwards."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import NothingCommitted
from headrace.client.groups import SHARE, alter_offsets, committed_offsets, describe_group
from headrace.client.offsets import Bounds, Start, bounds, find_stretch
from headrace.client.share_groups import alter_share_offsets, share_offsets
from headrace.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Shift:
    """So many offsets onward, or back if negative, from where the group is."""

    by: int


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's offset before, None if there was none, and after."""

    partition: TopicPartition
    old: int | None
    new: int


def shift_offset(committed: int, shift: Shift, held: Bounds) -> int:
    """The offset so far away; at most to the start or the end of what is there."""
    return min(max(committed + shift.by, held.start), held.end)


def plan_reset(
    coordinators: Coordinators, name: str, topics: Mapping[str, Collection[int]] | None, target: Start | Shift
) -> list[Move]:
    """What a reset would do: for these topics and partitions (none given means all), or None for wherever it has been.

    Refuses a group that does not exist or has members.
    """
    group = describe_group(coordinators, name)
    group.check_empty()
    found = share_offsets(coordinators, name) if group.kind == SHARE else committed_offsets(coordinators, name)
    committed = {where: each.offset for where, each in found.items()}
    partitions = _choose(coordinators.cluster, name, topics, committed)
    if isinstance(target, Shift):
        places = _shift_all(coordinators.cluster, name, partitions, committed, target)
    else:
        places = find_stretch(coordinators.cluster, partitions, target).starts
    return [Move(where, committed.get(where), places[where]) for where in partitions]


def reset(coordinators: Coordinators, name: str, moves: Collection[Move]) -> None:
    """Do what was planned; refused if members have come meanwhile."""
    alter = alter_share_offsets if describe_group(coordinators, name).kind == SHARE else alter_offsets
    alter(coordinators, name, {move.partition: move.new for move in moves})


def _choose(
    cluster: Cluster,
    name: str,
    topics: Mapping[str, Collection[int]] | None,
    committed: Mapping[TopicPartition, int],
) -> list[TopicPartition]:
    if topics is not None:
        return sorted(where for topic, indexes in topics.items() for where in cluster.partitions(topic, indexes))
    if not committed:
        raise NothingCommitted(name)
    return sorted(committed)


def _shift_all(
    cluster: Cluster,
    name: str,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    shift: Shift,
) -> dict[TopicPartition, int]:
    for where in partitions:
        if where not in committed:
            raise NothingCommitted(name, where)
    held = bounds(cluster, partitions)
    return {where: shift_offset(committed[where], shift, held[where]) for where in partitions}
