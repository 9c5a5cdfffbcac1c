"""A member: who it is and what it wants (its profile), and how far it has come (its holding).

The two are two records of the group's log, and change apart from each other.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from headrace.coordinator.group.assignors import Assignment

# What a heartbeat's member epoch means when it is not one.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2  # a static member that will be back; its partitions wait for it


class MemberState(IntEnum):
    """Where a member is on its way to the target assignment; the numbers are those of the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has been told to give up partitions, and has not said yet that it did
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others have not given up yet
    UNKNOWN = 127  # written by a newer broker

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":  # noqa: ARG003  # whatever it is, it is not known
        return cls.UNKNOWN


class ClassicVoice(NamedTuple):
    """What a member that speaks the classic protocol has said in JoinGroup: the protocols it knows, by preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Who a member is, and what it wants."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicVoice | None = None  # None: it speaks the new protocol

    @property
    def subscription(self) -> tuple[frozenset[str], str | None]:
        """What decides which topics it wants."""
        return self.topic_names, self.topic_regex


@dataclass(frozen=True, slots=True)
class Holding:
    """How far a member has come: its epoch, what it has, and what it has been told to give up."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has all of the target assignment, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


class Member(NamedTuple):
    """One member of a group."""

    member_id: str
    profile: Profile = Profile()
    holding: Holding = Holding()

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.profile.classic is not None
