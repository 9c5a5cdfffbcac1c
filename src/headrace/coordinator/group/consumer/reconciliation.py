"""One member's next step towards its target assignment.

A partition goes to its new owner only after the old one has given it up and said so. A member therefore first gives up
what it shall no longer have (and stays in its epoch until it has said so), and then takes, in the epoch of the target
assignment, whatever of its share nobody else holds. What it keeps, it has since the epoch in which it got it, and what
it takes since the one in which it takes it, even if that is a partition that it has just given up.
"""

from collections.abc import Callable

from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.consumer.member import Holding, MemberState, fenced, places
from headrace.protocol.schema import Uuid


def reconcile(
    holding: Holding,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[Uuid, int], bool],
) -> Holding:
    """The next holding, or the same one if no step is possible.

    `owned` is what the member says it has, or None if it does not say; `is_free` tells whether no other member has a
    partition or is still giving it up.
    """
    if holding.is_reconciled_to(target_epoch):
        return holding
    epoch = holding.epoch
    if holding.state is MemberState.UNREVOKED_PARTITIONS:
        if _has_any(owned, holding.revoking):
            return holding
        epoch += 1
    elif holding.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise fenced("the member is in a state that only a newer broker knows")
        epoch = target_epoch
    return _step(holding, epoch, target, target_epoch, owned, is_free)


def _step(
    holding: Holding,
    epoch: int,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[Uuid, int], bool],
) -> Holding:
    kept = intersection(holding.assigned, target)
    revoking = difference(holding.assigned, target)
    if revoking and _has_any(owned, revoking):
        return Holding(epoch, holding.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking, holding.since)
    assigned: dict[Uuid, frozenset[int]] = {}
    is_complete = True
    for topic, wanted in target.items():
        have = kept.get(topic, frozenset())
        now = have | {partition for partition in wanted - have if is_free(topic, partition)}
        is_complete = is_complete and now == wanted
        if now:
            assigned[topic] = now
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    if epoch == holding.epoch == target_epoch and state is holding.state and assigned == holding.assigned:
        return holding
    since = {partition: holding.since[partition] for partition in places(kept)}
    return Holding(target_epoch, holding.epoch, state, assigned, since=since)


def _has_any(owned: Assignment | None, partitions: Assignment) -> bool:
    return owned is None or bool(intersection(owned, partitions))


def intersection(left: Assignment, right: Assignment) -> Assignment:
    common = ((topic, partitions & right.get(topic, frozenset())) for topic, partitions in left.items())
    return {topic: partitions for topic, partitions in common if partitions}


def difference(left: Assignment, right: Assignment) -> Assignment:
    rest = ((topic, partitions - right.get(topic, frozenset())) for topic, partitions in left.items())
    return {topic: partitions for topic, partitions in rest if partitions}
