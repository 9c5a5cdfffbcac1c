"""What the kinds of groups have in common whose members join, stay and leave by heartbeats alone (KIP-848, KIP-1071).

A heartbeat is answered by a decision in the making, a `Draft`: a group as it will be once the records so far are
applied. Each step writes its records there and goes on with the group that they make, by the same `apply` that will run
on the real one. The real one is not touched; a step that raises a `Refusal` leaves nothing behind.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Generic, Protocol, Self, TypeVar

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, Timer
from headrace.coordinator.group.kinds import CommitClaim
from headrace.coordinator.group.settings import GroupSettings, SettingsChanged, SettingsKey
from headrace.coordinator.group.topics import Topics, TopicsChanged, TopicsKey
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode

# What a heartbeat's member epoch means when it is not one.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2  # a static member that will be back; its partitions wait for it

EPOCHS_IN_COMMITS_SINCE = 9  # the version of OffsetCommit that knows STALE_MEMBER_EPOCH


class Refusal(HeadraceError):
    """The request is answered with this error, and nothing changes."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def fenced(message: str) -> Refusal:
    """The member has to give up all that it has and to join again."""
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"{message}; give up all partitions and join again")


def invalid(message: str) -> Refusal:
    """The request makes no sense, whatever the group's state is."""
    return Refusal(ErrorCode.INVALID_REQUEST, message)


class MemberState(IntEnum):
    """Where a member is on its way to the target assignment; the numbers are those of consumer groups' records."""

    STABLE = 0
    UNREVOKED = 1  # it has been told to give something up, and has not said yet that it did
    UNRELEASED = 2  # it waits for what others have not given up yet
    UNKNOWN = 127  # written by a newer broker

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":  # noqa: ARG003  # whatever it is, it is not known
        return cls.UNKNOWN


class Group(Protocol):
    """A group: what its records say. `apply` is the only thing that changes it."""

    group_id: str
    exists: bool
    members: dict[str, Any]

    def copy(self) -> Self:
        """A copy that may be changed without changing this one."""
        ...

    def apply(self, record: CoordinatorRecord) -> None: ...


G = TypeVar("G", bound=Group)


class Draft(Generic[G]):
    """Records and timers that add up to a decision about one group."""

    def __init__(self, group: G, sees: Callable[[str], bool] | None = None) -> None:
        """`sees` tells which topics whoever asks may know of; without it, no expression is resolved."""
        self.sees = sees
        self._group = group
        self._is_copy = False
        self._records: list[CoordinatorRecord] = []
        self._timers: dict[Hashable, int | None] = {}

    @property
    def group(self) -> G:
        return self._group

    def write(self, *records: CoordinatorRecord) -> None:
        """Add records, and go on with the group that they make."""
        if not self._is_copy:
            self._group = self._group.copy()
            self._is_copy = True
        for record in records:
            self._group.apply(record)
        self._records += records

    def set_timer(self, key: Hashable, at_ms: int) -> None:
        """Ask again at this time."""
        self._timers[key] = at_ms

    def cancel_timers(self, keys: Iterable[Hashable]) -> None:
        self._timers.update(dict.fromkeys(keys))

    def decision(self, *answers: Answer) -> Decision:
        return Decision(answers, tuple(self._records), tuple(Timer(key, at_ms) for key, at_ms in self._timers.items()))


def take_news(news: TopicsChanged | SettingsChanged) -> Decision:
    """The record, not kept, by which every kind learns of topics or of the settings of single groups."""
    if isinstance(news, TopicsChanged):
        return Decision(records=(CoordinatorRecord(TopicsKey(), news.topics, is_kept=False),))
    return Decision(records=(CoordinatorRecord(SettingsKey(), news.by_group, is_kept=False),))


class HeartbeatGroups(Generic[G]):
    """All groups of one such kind, by id, with what they know of the rest of the broker."""

    def __init__(self, settings: GroupSettings, make: Callable[[str], G]) -> None:
        self._settings = settings
        self._make = make
        self._by_group: Mapping[str, GroupSettings] = {}
        self._groups: dict[str, G] = {}
        self._topics: Topics | None = None

    def group_ids(self) -> Collection[str]:
        return self._groups.keys()

    def count_members(self) -> int:
        return sum(len(group.members) for group in self._groups.values())

    def knows_member(self, group_id: str, member_id: str) -> bool:
        return member_id in self._groups[group_id].members

    def holds(self, group_id: str) -> bool:
        return group_id in self._groups

    def group(self, group_id: str) -> G:
        """The group as it is; it must not be changed."""
        return self._groups[group_id]

    def is_empty(self, group_id: str) -> bool:
        return not self._groups[group_id].members

    # The only mutation:

    def apply(self, record: CoordinatorRecord) -> None:
        key = record.key
        if isinstance(key, TopicsKey):
            assert isinstance(record.value, Topics)
            self._topics = record.value
            return
        if isinstance(key, SettingsKey):
            assert isinstance(record.value, Mapping)
            self._by_group = record.value
            return
        group_id: str = key.group_id  # type: ignore[union-attr]  # every other key has one
        group = self._groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self._groups[group_id] = self._make(group_id)
        group.apply(record)
        if not group.exists:
            del self._groups[group_id]

    # What decisions need:

    def _settings_of(self, group_id: str) -> GroupSettings:
        return self._by_group.get(group_id, self._settings)

    def _known_topics(self) -> Topics:
        if self._topics is None:
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator does not know the topics yet")
        return self._topics

    def _group_to_join(self, group_id: str, member_epoch: int) -> G:
        """The group of a heartbeat, a new one if it joins one that does not exist."""
        group = self._groups.get(group_id)
        if group is None:
            if member_epoch != JOIN_EPOCH:
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no {self.type_name} group {group_id!r}")
            group = self._make(group_id)
        return group

    type_name = ""

    def session_timers(self, claim: CommitClaim, now_ms: int) -> tuple[Timer, ...]:
        """A commit is no sign of life here."""
        del claim, now_ms
        return ()
