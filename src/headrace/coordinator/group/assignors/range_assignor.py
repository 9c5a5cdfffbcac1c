"""`range`: each topic is cut into as many contiguous ranges as it has subscribers.

Where all members want the same topics, and these have equally many partitions, a member gets the same partition numbers
of each topic: that is what a join of two topics by key needs. Static members stand first, in the order of their
instance ids, so that a restart under a new member id moves nothing.
"""

from collections.abc import Mapping

from headrace.coordinator.group.assignors.assignment import Assignment, Subscriber
from headrace.protocol.schema import Uuid


def assign(members: Mapping[str, Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Assignment]:
    """Give each member a range of each topic that it subscribes to."""
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in sorted(members, key=lambda member_id: _place(member_id, members[member_id])):
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    shares: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic in sorted(subscribers):
        quota, extra = divmod(partition_counts.get(topic, 0), len(subscribers[topic]))
        start = 0
        for place, member_id in enumerate(subscribers[topic]):
            end = start + quota + (place < extra)
            if end > start:
                shares[member_id][topic] = frozenset(range(start, end))
            start = end
    return {member_id: shares[member_id] for member_id in sorted(shares)}


def _place(member_id: str, member: Subscriber) -> tuple[bool, str, str]:
    return (member.instance_id is None, member.instance_id or "", member_id)
