"""The group coordinator of one partition of `__consumer_offsets`.

`decide` says what follows from an event and changes nothing; `apply` takes over a record and is the only mutation. The
shell writes a decision's records that are kept, applies all of them in their order, sets the timers, and sends the
answers. After a restart it applies what it reads, then tells that all is `Loaded`.

What always holds: a group id belongs to one kind of group at a time; an offset is acknowledged only by a decision whose
records store it; a request that waits is known to the state, and is answered by the decision that ends the waiting.
"""

from collections import Counter
from collections.abc import Iterator

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, together
from headrace.coordinator.group import description
from headrace.coordinator.group.classic.kind import ClassicGroups
from headrace.coordinator.group.consumer.kind import ConsumerGroups
from headrace.coordinator.group.events import Event, Loaded, Request, TimerFired, TopicsDeleted, TransactionEnded
from headrace.coordinator.group.heartbeats import take_news
from headrace.coordinator.group.kinds import GroupKind
from headrace.coordinator.group.offsets import commit, fetch, forgetting
from headrace.coordinator.group.offsets.forgetting import ExpiryTimer
from headrace.coordinator.group.offsets.store import OffsetStore, TransactionMarker
from headrace.coordinator.group.record_formats import OffsetCommitKey, OffsetCommitValue
from headrace.coordinator.group.settings import GroupSettings, SettingsChanged, SettingsKey
from headrace.coordinator.group.share.kind import ShareGroups
from headrace.coordinator.group.streams.kind import StreamsGroups
from headrace.coordinator.group.topics import Topics, TopicsChanged, TopicsKey
from headrace.model import NO_PRODUCER_ID, TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_commit import OffsetCommitRequest
from headrace.protocol.messages.offset_delete import OffsetDeleteRequest
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest
from headrace.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from headrace.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from headrace.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from headrace.protocol.schema import Message


class GroupCoordinator:
    """The groups of one partition, of all kinds, and their offsets."""

    def __init__(
        self,
        settings: GroupSettings,
        consumer: ConsumerGroups | None = None,
        share: ShareGroups | None = None,
        streams: StreamsGroups | None = None,
    ) -> None:
        """`consumer` are the groups of KIP-848, `share` of KIP-932, `streams` of KIP-1071, where there are any."""
        self._settings = settings
        self._classic = ClassicGroups(settings)
        self._consumer = consumer
        self._share = share
        self.streams = streams
        self._beating: tuple[GroupKind, ...] = tuple(kind for kind in (consumer, share, streams) if kind is not None)
        self._kinds: tuple[GroupKind, ...] = (self._classic, *self._beating)
        self._kind_of_record = {key: kind for kind in self._kinds for key in kind.record_keys}
        self._kind_of_timer = {key: kind for kind in self._kinds for key in kind.timer_keys}
        assert not any(issubclass(key, tuple) for key in self._kind_of_timer), "equal tuples would be one timer"
        self._offsets = OffsetStore()

    # Questions that are no events:

    def count_states(self) -> Counter[str]:
        """How many groups there are in each state."""
        return Counter(kind.listing(group_id).state for kind in self._kinds for group_id in kind.group_ids())

    def committed(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Every group with every partition that it has an offset of."""
        for group_id, offsets in self._offsets.all_committed():
            for partition, offset in offsets.items():
                yield group_id, partition, offset.offset

    # The only mutation:

    def apply(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Take over a record; `producer_id` is that of its batch, if the batch is part of a transaction."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None and self._kind_of(key.group) is None:
                self._classic.adopt(key.group)
            self._offsets.apply(key, value, producer_id)
        elif isinstance(key, TransactionMarker):
            self._offsets.apply_marker(key, committed=bool(value))
        elif isinstance(key, TopicsKey | SettingsKey):
            if isinstance(value, Topics):
                self._offsets.topics = value
            for beating in self._beating:
                beating.apply(record)
        else:
            kind = self._kind_of_record[type(key)]
            kind.apply(record)
            if kind is not self._classic:
                self._settle_kind(kind, getattr(key, "group_id", ""))

    def _settle_kind(self, kind: GroupKind, group_id: str) -> None:
        """Compaction may leave a group's offsets in front of its own records, so that it seemed to be a classic one."""
        if kind.holds(group_id):
            self._classic.give_up(group_id)

    # How much there is:

    @property
    def group_count(self) -> int:
        return sum(len(kind.group_ids()) for kind in self._kinds)

    def holds(self, group_id: str) -> bool:
        return self._kind_of(group_id) is not None

    def knows_member(self, group_id: str, member_id: str) -> bool:
        kind = self._kind_of(group_id)
        return kind is not None and kind.knows_member(group_id, member_id)

    def count_members(self) -> int:
        """Of all groups: not for every request, since there may be many groups."""
        return sum(kind.count_members() for kind in self._kinds)

    # Decisions:

    def decide(self, event: Event, now_ms: int) -> Decision:
        match event:
            case Request():
                return self._answer(event, now_ms)
            case TimerFired(key=ExpiryTimer()):
                return forgetting.expire(self._offsets, self._kinds, self._settings, now_ms)
            case TimerFired(key=key):
                return self._kind_of_timer[type(key)].decide(event, now_ms)
            case TransactionEnded(producer_id=producer_id, committed=committed):
                marker = CoordinatorRecord(TransactionMarker(producer_id), committed, is_kept=False)
                return Decision(records=(marker,))
            case TopicsDeleted(topics=names, every=every):
                return forgetting.forget_topics(self._offsets, names, every=every)
            case TopicsChanged() | SettingsChanged():
                return take_news(event)
            case Loaded():
                loaded = (kind.decide(event, now_ms) for kind in self._kinds)
                return together(*loaded, Decision(timers=(forgetting.next_expiry(self._settings, now_ms),)))

    def _kind_of(self, group_id: str) -> GroupKind | None:
        for kind in self._kinds:  # no generator: this runs for every commit
            if kind.holds(group_id):
                return kind
        return None

    def _answer(self, request: Request, now_ms: int) -> Decision:
        asked, store, settings = request.message, self._offsets, self._settings
        match asked:
            case OffsetCommitRequest():
                return commit.commit(store, self._kind_of(asked.group_id), settings, request, asked, now_ms)
            case HeartbeatRequest() | JoinGroupRequest() | SyncGroupRequest() | LeaveGroupRequest():
                return self._classic_request(request, asked.group_id, now_ms)
            case ConsumerGroupHeartbeatRequest():
                return self._heartbeat(self._consumer, request, asked, ConsumerGroupHeartbeatResponse, now_ms)
            case StreamsGroupHeartbeatRequest():
                return self._heartbeat(self.streams, request, asked, StreamsGroupHeartbeatResponse, now_ms)
            case OffsetFetchRequest():
                return fetch.fetch(store, self._kind_of, request, asked)
            case TxnOffsetCommitRequest():
                kind = self._kind_of(asked.group_id)
                return commit.commit_in_transaction(store, kind, settings, request, asked, now_ms)
            case OffsetDeleteRequest():
                return forgetting.delete(store, self._kind_of(asked.group_id), request, asked)
            case ListGroupsRequest():
                return description.list_groups(self._kinds, request, asked)
            case DescribeGroupsRequest():
                return description.describe(self._classic, self._kind_of, request, asked)
            case DeleteGroupsRequest():
                return description.delete_groups(store, self._kind_of, request, asked)
            case ConsumerGroupDescribeRequest() if self._consumer is not None:
                return self._consumer.decide(request, now_ms)
            case StreamsGroupDescribeRequest() if self.streams is not None:
                return self.streams.decide(request, now_ms)
            case ShareGroupHeartbeatRequest() if self._share is not None:
                return self._share_heartbeat(self._share, request, asked, now_ms)
            case AlterShareGroupOffsetsRequest() if self._share is not None:
                return self._alter_share_offsets(self._share, request, asked, now_ms)
            case ShareGroupDescribeRequest() | DeleteShareGroupOffsetsRequest() if self._share is not None:
                return self._share.decide(request, now_ms)
        raise TypeError(f"{type(asked).__name__} is not a request for the group coordinator")

    # Where the kinds meet. A group without members changes its kind with whoever comes next, from classic to another
    # or back, as in Kafka; how one with members does, the consumer groups know.

    # A share group stays one: nobody else's request changes its kind, and it takes over no other group.

    def _share_heartbeat(
        self, share: ShareGroups, request: Request, asked: ShareGroupHeartbeatRequest, now_ms: int
    ) -> Decision:
        if self._kind_of(asked.group_id) in (None, share):
            return share.decide(request, now_ms)
        response = ShareGroupHeartbeatResponse(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {asked.group_id} is not a share group."
        )
        return Decision((Answer(request.token, response),))

    def _alter_share_offsets(
        self, share: ShareGroups, request: Request, asked: AlterShareGroupOffsetsRequest, now_ms: int
    ) -> Decision:
        if self._kind_of(asked.group_id) in (None, share):
            return share.decide(request, now_ms)
        response = AlterShareGroupOffsetsResponse(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {asked.group_id} is not a share group."
        )
        return Decision((Answer(request.token, response),))

    def _classic_request(self, request: Request, group_id: str, now_ms: int) -> Decision:
        former = self._kind_of(group_id)
        if former is None or former is self._classic:
            return self._classic.decide(request, now_ms)
        if former.is_empty(group_id) and former is not self._share:
            return _instead_of(former, group_id, self._classic.decide(request, now_ms))
        if isinstance(former, ConsumerGroups):
            return former.decide(request, now_ms)
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        match request.message:
            case JoinGroupRequest() as asked:
                answer: Message = JoinGroupResponse(error_code=error, member_id=asked.member_id)
            case SyncGroupRequest():
                answer = SyncGroupResponse(error_code=error)
            case _:
                return self._classic.decide(request, now_ms)  # which does not know the member
        return Decision((Answer(request.token, answer),))

    def _heartbeat(
        self,
        kind: GroupKind | None,
        request: Request,
        asked: ConsumerGroupHeartbeatRequest | StreamsGroupHeartbeatRequest,
        response: type[ConsumerGroupHeartbeatResponse | StreamsGroupHeartbeatResponse],
        now_ms: int,
    ) -> Decision:
        group_id = asked.group_id
        if kind is None:
            return Decision((Answer(request.token, response(error_code=ErrorCode.UNSUPPORTED_VERSION)),))
        former = self._kind_of(group_id)
        if former is None or former is kind:
            return kind.decide(request, now_ms)
        if former is self._classic and former.is_empty(group_id):
            return _instead_of(former, group_id, kind.decide(request, now_ms))
        if former is self._classic and isinstance(kind, ConsumerGroups):
            upgraded = kind.upgrade(request, self._classic.group(group_id), now_ms)
            if upgraded is not None:
                return upgraded
        message = f"Group {group_id} is not a {kind.type_name} group."
        answer = response(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
        return Decision((Answer(request.token, answer),))


def _instead_of(former: GroupKind, group_id: str, decision: Decision) -> Decision:
    """The decision with the group's former self removed first, if it makes a new one."""
    if not decision.records:
        return decision
    return together(Decision(records=former.tombstones(group_id)), decision)
