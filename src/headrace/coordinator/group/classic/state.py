"""A classic group as a value: every change makes a new one, and what is not said to change stays shared."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord, RequestToken
from headrace.coordinator.group.record_formats import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from headrace.protocol import codec
from headrace.protocol.errors import ErrorCode, ProtocolError
from headrace.protocol.schema import STRING, Message, array, int16


class SubscriptionPrefix(Message, versions=range(1)):
    """How a consumer's subscription starts in every version of it."""

    version: int = int16()
    topics: list[str] = array(STRING)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None if it is not one."""
    try:
        prefix, _ = codec.decode_prefix(SubscriptionPrefix, 0, metadata)
    except ProtocolError:
        return None
    return frozenset(prefix.topics)


CONSUMER_PROTOCOL_TYPE = "consumer"


class Phase(Enum):
    """Where a group is in its cycle; the values are the names that Kafka shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class JoinTimer:
    group_id: str


@dataclass(frozen=True, slots=True)
class SyncTimer:
    """When members that have not asked for their assignment in this generation are removed."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class SessionTimer:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicGroupKey:
    """The key of the record that carries a group as it is just now, with all that need not survive a restart."""

    group_id: str


class Supported(NamedTuple):
    """A protocol that a member speaks, and what it says in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Member:
    """A member; `joining` and `syncing` are its requests that wait for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Supported, ...]  # the preferred first
    assignment: bytes = b""
    joining: RequestToken | None = None
    syncing: RequestToken | None = None
    is_new: bool = False  # it has not been in a generation yet, so it cannot send heartbeats

    def metadata(self, protocol: str | None) -> bytes:
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    @property
    def is_excused(self) -> bool:
        """Whether it need not send heartbeats, because it waits for the group."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """A group. Its leader is always one of its members, and the group has none only if it has no members."""

    group_id: str
    phase: Phase = Phase.EMPTY
    since_ms: int | None = None  # when the phase began; None for a group that nobody has ever joined
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    pending_joins: frozenset[str] = frozenset()  # ids that were given out, and have not come back to join
    pending_syncs: frozenset[str] = frozenset()  # members that have not asked for their assignment
    topics: frozenset[str] | None = None  # what the members are subscribed to, as far as that can be read
    # The first rebalance of an empty group waits a while for more members (KIP-134).
    is_initial: bool = False
    has_newcomer: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0

    @property
    def is_consumer(self) -> bool:
        """Whether its members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def has_everybody_joined(self) -> bool:
        """Whether nobody is left to wait for."""
        return not self.pending_joins and all(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether a request is from a member; an older incarnation of a static member is fenced (KIP-345)."""
        if instance_id is not None:
            known = self.static_member(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        if self.phase is Phase.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        return not self._common_protocols().isdisjoint(names) if self.members else bool(names)

    def selected_protocol(self) -> str:
        """The protocol of the next generation: of those that all members speak, the one that most prefer."""
        candidates = self._common_protocols()
        votes = Counter(
            next(known.name for known in member.protocols if known.name in candidates)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str]:
        spoken = [{known.name for known in member.protocols} for member in self.members.values()]
        return set.intersection(*spoken) if spoken else set()

    def with_member(self, member: Member) -> "ClassicGroup":
        return replace(
            self,
            leader=self.leader or member.member_id,
            members={**self.members, member.member_id: member},
            pending_joins=self.pending_joins - {member.member_id},
        )

    def without(self, member_ids: Collection[str]) -> "ClassicGroup":
        """The group without these members; if the leader is among them, another takes its place."""
        members = {known: member for known, member in self.members.items() if known not in member_ids}
        leader = self.leader if self.leader in members else next(iter(members), None)
        return replace(
            self,
            leader=leader,
            members=members,
            pending_joins=self.pending_joins.difference(member_ids),
            pending_syncs=self.pending_syncs.difference(member_ids),
        )

    def enter(self, phase: Phase, now_ms: int) -> "ClassicGroup":
        return replace(self, phase=phase, since_ms=now_ms)

    def next_generation(self, now_ms: int) -> "ClassicGroup":
        """The group with everybody joined: a generation that has to be assigned or, without members, is empty."""
        group = replace(
            self,
            generation=self.generation + 1,
            protocol=self.selected_protocol() if self.members else None,
            pending_syncs=frozenset(self.members),
            is_initial=False,
            has_newcomer=False,
        ).with_topics_read()
        return group.enter(Phase.COMPLETING_REBALANCE if group.members else Phase.EMPTY, now_ms)

    def with_topics_read(self) -> "ClassicGroup":
        """The group that knows what its members are subscribed to."""
        topics: frozenset[str] | None = None
        if self.is_consumer:
            read = [subscribed_topics(member.metadata(self.protocol)) for member in self.members.values()]
            known = [topics for topics in read if topics is not None]
            topics = frozenset().union(*known) if len(known) == len(read) else None
        return replace(self, topics=topics)


_UNKNOWN = -1


def group_record(group: ClassicGroup) -> CoordinatorRecord:
    """The record that keeps a group; of each member's protocols only the chosen one is kept."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=_UNKNOWN if group.since_ms is None else group.since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def stored_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group that a record keeps: empty, or stable with its last assignment."""
    members = {
        stored.member_id: Member(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=(
                stored.session_timeout if stored.rebalance_timeout == _UNKNOWN else stored.rebalance_timeout
            ),
            session_timeout_ms=stored.session_timeout,
            protocols=(Supported(value.protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )
        for stored in value.members
    }
    return ClassicGroup(
        group_id=group_id,
        phase=Phase.STABLE if members else Phase.EMPTY,
        since_ms=None if value.current_state_timestamp == _UNKNOWN else value.current_state_timestamp,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader if value.leader in members else next(iter(members), None),
        members=members,
    ).with_topics_read()
