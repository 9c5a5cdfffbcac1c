"""The timers of consumer groups.

Their keys are dataclasses and not named tuples: two named tuples of different types are equal if their fields are, and a
member's timers would be one.
"""

from dataclasses import dataclass

from headrace.coordinator.group.consumer.draft import Draft
from headrace.coordinator.group.consumer.member import Member, MemberState
from headrace.coordinator.group.settings import GroupSettings


@dataclass(frozen=True, slots=True)
class MemberSessionTimer:
    """When a member that is not heard of is removed."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class MemberRebalanceTimer:
    """When a member is removed that was told to give up partitions, and has not said that it did."""

    group_id: str
    member_id: str


def renew_session(draft: Draft, member: Member, settings: GroupSettings, now_ms: int) -> None:
    """Expect the next sign of life within the session timeout."""
    classic = member.profile.classic
    timeout_ms = settings.group_consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
    draft.set_timer(MemberSessionTimer(draft.group.group_id, member.member_id), now_ms + timeout_ms)


def watch_revocation(draft: Draft, member: Member, now_ms: int) -> None:
    """Expect the member to give up what it has been told to, within its own rebalance timeout."""
    key = MemberRebalanceTimer(draft.group.group_id, member.member_id)
    if member.holding.state is MemberState.UNREVOKED_PARTITIONS:
        draft.set_timer(key, now_ms + member.profile.rebalance_timeout_ms)
    else:
        draft.cancel_timers([key])


def forget(draft: Draft, member_id: str) -> None:
    """Expect nothing of the member any more."""
    group_id = draft.group.group_id
    draft.cancel_timers([MemberSessionTimer(group_id, member_id), MemberRebalanceTimer(group_id, member_id)])
