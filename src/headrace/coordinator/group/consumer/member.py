"""A member: who it is and what it wants (its profile), and how far it has come (its holding).

The two are two records of the group's log, and change apart from each other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.heartbeats import JOIN_EPOCH, MemberState
from headrace.protocol.schema import Uuid


class ClassicVoice(NamedTuple):
    """What a member that speaks the classic protocol has said in JoinGroup: the protocols it knows, by preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Profile:
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
        return self.topic_names, self.topic_regex


# Topic id and partition → the epoch of the member in which it was given the partition.
Epochs = Mapping[tuple[Uuid, int], int]


@dataclass(frozen=True, slots=True)
class Holding:
    """How far a member has come: its epoch, what it has, and what it has been told to give up.

    `since` has exactly the partitions of `assigned` and `revoking` (KIP-1251). Of those that it is made without, and so
    of those in records that are older than that, the member's own epoch is taken.
    """

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    since: Epochs = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = max(self.epoch, JOIN_EPOCH)  # a member that has left for a while has no epoch to count from
        since = {partition: self.since.get(partition, unknown) for partition in self.partitions()}
        object.__setattr__(self, "since", since)

    def partitions(self) -> Iterator[tuple[Uuid, int]]:
        """All that nobody else may have: what it has, and what it is still giving up."""
        for held in (self.assigned, self.revoking):
            yield from places(held)

    def has_had(self, topic_id: Uuid, partition: int, epoch: int) -> bool:
        """Whether it holds the partition, and has done so without a break since this epoch or an earlier one."""
        since = self.since.get((topic_id, partition))
        return since is not None and since <= epoch

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has all of the target assignment, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


def places(assignment: Assignment) -> Iterator[tuple[Uuid, int]]:
    for topic_id, partitions in assignment.items():
        for partition in partitions:
            yield topic_id, partition


class Member(NamedTuple):
    member_id: str
    profile: Profile = Profile()
    holding: Holding = Holding()

    @property
    def is_classic(self) -> bool:
        return self.profile.classic is not None
