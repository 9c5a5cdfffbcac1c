"""`uniform`: as even as can be, and then as few moves as can be.

Where all members want the same topics, the loads differ by one at most, and exactly those partitions move that have to:
the members that hold most are those that may keep one more. Where they want different topics, see `balancing`.
"""

from collections.abc import Mapping

from headrace.coordinator.group.assignors.assignment import Assignment, Subscriber
from headrace.coordinator.group.assignors.balancing import balance
from headrace.protocol.schema import Uuid


def assign(members: Mapping[str, Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Spread the partitions over the members evenly, and leave them where they are if that is possible."""
    kept = _keep(members, partition_counts)
    first, *others = (member.topics & partition_counts.keys() for member in members.values()) if members else ((),)
    if all(topics == first for topics in others):
        _spread(kept, _unassigned(kept, frozenset(first), partition_counts))
    else:
        balance(
            kept,
            {member_id: members[member_id].topics for member_id in kept},
            _unassigned(kept, frozenset().union(*(member.topics for member in members.values())), partition_counts),
        )
    return {member_id: _by_topic(partitions) for member_id, partitions in kept.items()}


def _keep(members: Mapping[str, Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, list[tuple[Uuid, int]]]:
    """What each member has and may still have, in order; of two that have the same partition the first one keeps it."""
    taken: set[tuple[Uuid, int]] = set()
    kept: dict[str, list[tuple[Uuid, int]]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        mine = kept[member_id] = []
        for topic in sorted(member.topics & member.has.keys()):
            count = partition_counts.get(topic, 0)
            mine += [
                (topic, partition)
                for partition in sorted(member.has[topic])
                if partition < count and (topic, partition) not in taken
            ]
        taken.update(mine)
    return kept


def _unassigned(
    kept: Mapping[str, list[tuple[Uuid, int]]], topics: frozenset[Uuid], partition_counts: Mapping[Uuid, int]
) -> list[tuple[Uuid, int]]:
    taken = {partition for mine in kept.values() for partition in mine}
    return [
        (topic, partition)
        for topic in sorted(topics)
        for partition in range(partition_counts.get(topic, 0))
        if (topic, partition) not in taken
    ]


def _spread(kept: dict[str, list[tuple[Uuid, int]]], unassigned: list[tuple[Uuid, int]]) -> None:
    """Bring every member to its quota, all of them wanting the same topics."""
    if not kept:
        return
    quota, extra = divmod(sum(map(len, kept.values())) + len(unassigned), len(kept))
    by_load = sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id))
    quotas = {member_id: quota + (place < extra) for place, member_id in enumerate(by_load)}
    for member_id, mine in kept.items():
        unassigned += mine[quotas[member_id] :]
        del mine[quotas[member_id] :]
    left = iter(unassigned)
    for member_id, mine in kept.items():
        mine += [next(left) for _ in range(quotas[member_id] - len(mine))]


def _by_topic(partitions: list[tuple[Uuid, int]]) -> Assignment:
    grouped: dict[Uuid, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return {topic: frozenset(numbers) for topic, numbers in grouped.items()}
