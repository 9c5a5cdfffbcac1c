"""The seam between the coordinator and the kinds of groups: classic ones, those of KIP-848, and of Kafka Streams.

A kind keeps the groups of its protocol and decides about their members. Offsets belong to no kind: one store serves
all groups, and asks the group's kind who may commit and what may expire. A group id belongs to one kind at a time.

What a kind has to keep to:
- `decide` and every question change nothing; `apply` is the only mutation;
- a record of its own that need not survive has a key of a type in `record_keys` too, so that it finds its way back;
- a timer's key is of a type in `timer_keys`, for the same reason;
- both kinds of keys are frozen dataclasses: named tuples of different types can be equal, and one timer would replace
  the other.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.coordinator.decision import CoordinatorRecord, Decision, Timer
from headrace.coordinator.group.events import GroupEvent
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode


class GroupListing(NamedTuple):
    """A group as ListGroups tells it, besides its id and its kind."""

    state: str
    protocol_type: str


class CommitClaim(NamedTuple):
    """As whom a client commits offsets; the generation of a KIP-848 member is its epoch."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    is_transactional: bool
    version: int


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """Since when offsets of a group are not needed: since a time, or (None) each since it was committed."""

    unneeded_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """An effect: the group is gone, and with it whatever else is known of it."""

    group_id: str


class GroupKind(Protocol):
    """All groups of one protocol, in one partition of `__consumer_offsets`."""

    @property
    def type_name(self) -> str:
        """The kind as ListGroups tells and filters it: `classic`, `consumer`, `streams`."""
        ...

    @property
    def record_keys(self) -> frozenset[type]: ...

    @property
    def timer_keys(self) -> frozenset[type]: ...

    def group_ids(self) -> Collection[str]: ...

    def holds(self, group_id: str) -> bool: ...

    def count_members(self) -> int: ...

    def decide(self, event: GroupEvent, now_ms: int) -> Decision:
        """What follows from a request of this kind's protocol, from one of its timers, or from news."""
        ...

    def apply(self, record: CoordinatorRecord) -> None: ...

    # About one group that it holds:

    def is_empty(self, group_id: str) -> bool: ...

    def knows_member(self, group_id: str, member_id: str) -> bool: ...

    def listing(self, group_id: str) -> GroupListing: ...

    def tombstones(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the group, its members and its assignments, but not its offsets."""
        ...

    def check_commit(self, claim: CommitClaim, partitions: Iterable[TopicPartition]) -> ErrorCode:
        """NONE if the claim entitles to commit offsets of all these partitions, otherwise why not."""
        ...

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE if the member may read the group's offsets."""
        ...

    def check_offset_deletion(self, group_id: str) -> ErrorCode:
        """NONE if offsets of the group may be deleted, as far as it is not subscribed to their topics."""
        ...

    def is_subscribed(self, group_id: str, topic: str) -> bool: ...

    def expiry(self, group_id: str) -> ExpiryRule | None:
        """By which rule offsets of topics that nobody is subscribed to expire; None if they do not."""
        ...

    def session_timers(self, claim: CommitClaim, now_ms: int) -> tuple[Timer, ...]:
        """The timers that an accepted commit moves: it keeps the session of a classic member alive."""
        ...
