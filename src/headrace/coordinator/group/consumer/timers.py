"""The timers of consumer groups.

Their keys are dataclasses and not named tuples: two named tuples of different types are equal if their fields are, and
all timers of a member would be one.
"""

from dataclasses import dataclass

from headrace.coordinator.group.consumer.member import Member
from headrace.coordinator.group.consumer.state import ConsumerGroup
from headrace.coordinator.group.heartbeats import Draft, MemberState
from headrace.coordinator.group.settings import GroupSettings


@dataclass(frozen=True, slots=True)
class MemberSessionTimer:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class MemberRebalanceTimer:
    """When a member is removed that was told to give up partitions, and has not said that it did."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class MemberRejoinTimer:
    """When a classic member is removed that was told to join again, and has not."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class MemberSyncTimer:
    """When a classic member is removed that has joined, and has not fetched its assignment."""

    group_id: str
    member_id: str


TimerKey = MemberSessionTimer | MemberRebalanceTimer | MemberRejoinTimer | MemberSyncTimer


def renew_session(draft: Draft[ConsumerGroup], member: Member, settings: GroupSettings, now_ms: int) -> None:
    """Expect the next sign of life within the session timeout."""
    classic = member.profile.classic
    timeout_ms = settings.group_consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
    draft.set_timer(MemberSessionTimer(draft.group.group_id, member.member_id), now_ms + timeout_ms)


def watch_revocation(draft: Draft[ConsumerGroup], member: Member, now_ms: int) -> None:
    """Expect the member to give up what it has been told to, within its own rebalance timeout."""
    key = MemberRebalanceTimer(draft.group.group_id, member.member_id)
    if member.holding.state is MemberState.UNREVOKED:
        draft.set_timer(key, now_ms + member.profile.rebalance_timeout_ms)
    else:
        draft.cancel_timers([key])


def await_sync(draft: Draft[ConsumerGroup], member: Member, now_ms: int) -> None:
    """Expect a classic member to fetch its assignment within its own rebalance timeout."""
    key = MemberSyncTimer(draft.group.group_id, member.member_id)
    draft.set_timer(key, now_ms + member.profile.rebalance_timeout_ms)


def forget(draft: Draft[ConsumerGroup], member: Member) -> None:
    draft.cancel_timers(all_of(draft.group.group_id, member))


def all_of(group_id: str, member: Member) -> tuple[TimerKey, ...]:
    member_id = member.member_id
    if member.is_classic:
        return (
            MemberSessionTimer(group_id, member_id),
            MemberRejoinTimer(group_id, member_id),
            MemberSyncTimer(group_id, member_id),
        )
    return MemberSessionTimer(group_id, member_id), MemberRebalanceTimer(group_id, member_id)


def is_due(key: TimerKey, member: Member) -> bool:
    """Whether the timer still means anything; a member may have changed the protocol that it speaks since."""
    match key:
        case MemberRebalanceTimer():
            return not member.is_classic and member.holding.state is MemberState.UNREVOKED
        case MemberRejoinTimer() | MemberSyncTimer():
            return member.is_classic
        case MemberSessionTimer():
            return True
