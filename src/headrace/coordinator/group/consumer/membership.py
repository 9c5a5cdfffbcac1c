"""Who may speak as which member: joining, being replaced, being fenced, leaving.

Where this differs from Kafka: a member that joins again under its own id is taken back at once, with nothing in its
hands, as KIP-848 has it. Kafka fences it (or, if it is static, says that its instance id is not released) until its
old session has run out, which also hits a member whose first join was answered into the void.
"""

from collections.abc import Callable
from dataclasses import replace

from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.consumer import facts, timers
from headrace.coordinator.group.consumer.member import Holding, Member, places
from headrace.coordinator.group.consumer.state import ConsumerGroup
from headrace.coordinator.group.consumer.subscription import update_epoch
from headrace.coordinator.group.heartbeats import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Draft,
    MemberState,
    Refusal,
    fenced,
)
from headrace.coordinator.group.topics import Topics
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Uuid

# One member's next step towards its target assignment.
#
# A partition goes to its new owner only after the old one has given it up and said so. A member therefore first gives
# up what it shall no longer have (and stays in its epoch until it has said so), and then takes, in the epoch of the
# target assignment, whatever of its share nobody else holds. What it keeps, it has since the epoch in which it got it,
# and what it takes since the one in which it takes it, even if that is a partition that it has just given up.


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
    if holding.state is MemberState.UNREVOKED:
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
        return Holding(epoch, holding.epoch, MemberState.UNREVOKED, kept, revoking, holding.since)
    assigned: dict[Uuid, frozenset[int]] = {}
    is_complete = True
    for topic, wanted in target.items():
        have = kept.get(topic, frozenset())
        now = have | {partition for partition in wanted - have if is_free(topic, partition)}
        is_complete = is_complete and now == wanted
        if now:
            assigned[topic] = now
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
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


def union(left: Assignment, right: Assignment) -> Assignment:
    none: frozenset[int] = frozenset()
    return {topic: left.get(topic, none) | right.get(topic, none) for topic in {*left, *right}}


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member that a request speaks for, by its id or, if it is static, by both of its ids."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group.group_id!r}")
        return member
    member = group.static_member(instance_id)
    if member is None:
        raise Refusal(
            ErrorCode.UNKNOWN_MEMBER_ID, f"nobody in group {group.group_id!r} has the instance id {instance_id!r}"
        )
    if member.member_id != member_id:
        raise Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"the instance id {instance_id!r} has been taken over by member {member.member_id!r}",
        )
    return member


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Fence a member that lives in another epoch; it may be one behind if the last answer was lost."""
    holding = member.holding
    if epoch == holding.epoch:
        return
    has_missed_an_answer = (
        epoch == holding.previous_epoch and owned is not None and not difference(owned, holding.assigned)
    )
    if not has_missed_an_answer:
        raise fenced(f"the member's epoch is {holding.epoch}, not {epoch}")


def joining_member(
    draft: Draft[ConsumerGroup], member_id: str, instance_id: str | None, max_size: int, *, is_classic: bool = False
) -> Member:
    """The member that joins: a new one, one that starts over, or one in the place of a static member that has left."""
    group = draft.group
    standing = group.members.get(member_id)
    static = group.static_member(instance_id) if instance_id is not None else None
    if standing is None and static is None and len(group.members) >= max_size:
        raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {max_size} members, and takes no more")
    if static is not None and static.member_id != member_id:
        if not is_classic and not static.is_classic and static.holding.epoch != LEAVE_FOR_A_WHILE_EPOCH:
            raise Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"the instance id {instance_id!r} belongs to member {static.member_id!r}, which has not left",
            )
        return _take_over(draft, static, member_id)
    if standing is None:
        return Member(member_id)
    return standing if is_classic else standing._replace(holding=_started_over(standing.holding))


def _take_over(draft: Draft[ConsumerGroup], old: Member, member_id: str) -> Member:
    """Put a new member in the place of a static one, with what it had."""
    group = draft.group
    new = Member(member_id, old.profile, _started_over(old.holding))
    target = group.target(old.member_id)
    timers.forget(draft, old)
    draft.write(
        *facts.no_member(group.group_id, old.member_id),
        facts.member_profile(group.group_id, member_id, new.profile),
        facts.target_assignment(group.group_id, member_id, target),
        facts.member_holding(group.group_id, member_id, new.holding),
    )
    return new


def _started_over(holding: Holding) -> Holding:
    """A member that joins has nothing in its hands, so there is nothing that it could be asked to give up.

    Nobody else has had its partitions meanwhile, so it has them since it first got them.
    """
    return Holding(JOIN_EPOCH, JOIN_EPOCH, MemberState.STABLE, holding.assigned, since=holding.since)


def leave_for_a_while(draft: Draft[ConsumerGroup], member: Member) -> None:
    """Keep a static member's place and partitions until it is back, or its session ends.

    Nobody else gets them before, so whoever comes back in its place has them since ever, as in Kafka.
    """
    since = dict.fromkeys(places(member.holding.assigned), JOIN_EPOCH)
    holding = replace(member.holding, epoch=LEAVE_FOR_A_WHILE_EPOCH, state=MemberState.STABLE, revoking={}, since=since)
    draft.write(facts.member_holding(draft.group.group_id, member.member_id, holding))
    draft.cancel_timers([timers.MemberRebalanceTimer(draft.group.group_id, member.member_id)])


def remove(draft: Draft[ConsumerGroup], member_ids: list[str], topics: Topics | None, now_ms: int) -> None:
    """Remove members, and have the others share what they had as soon as one of them is heard of."""
    group = draft.group
    for member_id in member_ids:
        timers.forget(draft, group.members[member_id])
        draft.write(*facts.no_member(group.group_id, member_id))
    if topics is not None:
        update_epoch(draft, topics, now_ms, has_changed=True)
    else:
        draft.write(facts.group_epoch(group.group_id, group.epoch + 1, group.metadata_hash))
