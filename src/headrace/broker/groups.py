"""Consumer groups at work: the pure coordinator, its topic, and what it has to know of the rest of the broker."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

from headrace.broker.coordinator_log import CoordinatorLog, Producer, batches_of, replay, report_unusable
from headrace.broker.coordinator_shell import CoordinatorShell, Durability
from headrace.broker.limits import MAX_GROUPS, MAX_MEMBERS, Limits
from headrace.broker.topics import TopicCatalog
from headrace.broker.turns import Deferred
from headrace.coordinator.decision import CoordinatorRecord, Decision
from headrace.coordinator.group.consumer.kind import ConsumerGroups
from headrace.coordinator.group.coordinator import GroupCoordinator
from headrace.coordinator.group.events import Loaded, Request, TimerFired, TopicsDeleted, TransactionEnded
from headrace.coordinator.group.offsets.commit import InTransaction
from headrace.coordinator.group.records import decode, encode
from headrace.coordinator.group.settings import GroupSettings, SettingsChanged
from headrace.coordinator.group.share.group import ShareGroup
from headrace.coordinator.group.share.kind import ShareGroups
from headrace.coordinator.group.streams.kind import StreamsGroups
from headrace.coordinator.group.topics import Topic, Topics, TopicsChanged
from headrace.model import NO_PRODUCER_ID
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from headrace.protocol.messages.shared import PartitionOutcome, TopicInfo, TopicOutcome
from headrace.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from headrace.protocol.schema import Message, Uuid
from headrace.records import BatchHeader, ControlType, RecordsError, control_type_of, header_at
from headrace.storage.errors import StorageError
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger

OFFSETS_TOPIC = "__consumer_offsets"
_MAY_MAKE_A_MEMBER = (JoinGroupRequest, ConsumerGroupHeartbeatRequest)  # the others are spared the making of an id
_JOINS = (*_MAY_MAKE_A_MEMBER, ShareGroupHeartbeatRequest, StreamsGroupHeartbeatRequest)
_MAY_MAKE_A_GROUP = (*_JOINS, OffsetCommitRequest, TxnOffsetCommitRequest, AlterShareGroupOffsetsRequest)
_COUNT_AGAIN_MS = 1_000
_log = get_logger(__name__)


class GroupRoom:
    """How many groups and members there may be, and what whoever wants more is answered."""

    def __init__(self, max_groups: int, max_members: int, limits: Limits) -> None:
        self._max_groups = max_groups
        self._max_members = max_members
        self._limits = limits
        self._most_members = 0  # there are no more than that: counting them takes longer than a request should
        self._counted_ms = 0

    def refuse(self, coordinator: GroupCoordinator, message: Message, now_ms: int) -> Message | None:
        """The answer to a request that would make a group or a member too many; None if it would not."""
        if not isinstance(message, _MAY_MAKE_A_GROUP):
            return None
        if coordinator.group_count >= self._max_groups and not coordinator.holds(message.group_id):
            self._limits.reach(MAX_GROUPS, f"group {message.group_id!r} would be one more than there may be")
            return _refuse(message, f"{MAX_GROUPS}={self._max_groups} allows no more groups")
        if isinstance(message, _JOINS) and not self._has_room_for(coordinator, message, now_ms):
            self._limits.reach(MAX_MEMBERS, f"group {message.group_id!r} would have a member more than there may be")
            return _refuse(message, f"{MAX_MEMBERS}={self._max_members} allows no more members")
        return None

    def _has_room_for(self, coordinator: GroupCoordinator, message: Message, now_ms: int) -> bool:
        if coordinator.knows_member(message.group_id, message.member_id):  # type: ignore[attr-defined]
            return True
        if self._most_members >= self._max_members and now_ms - self._counted_ms >= _COUNT_AGAIN_MS:
            self._most_members, self._counted_ms = coordinator.count_members(), now_ms
        if self._most_members >= self._max_members:
            return False
        self._most_members += 1
        return True


def _refuse(message: Message, reason: str) -> Message:
    match message:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=message.member_id)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, error_message=reason)
        case ShareGroupHeartbeatRequest():
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, error_message=reason)
        case AlterShareGroupOffsetsRequest():
            return AlterShareGroupOffsetsResponse(error_code=ErrorCode.POLICY_VIOLATION, error_message=reason)
        case StreamsGroupHeartbeatRequest():
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, error_message=reason)
        case OffsetCommitRequest():
            return OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=_outcomes(topic))
                    for topic in message.topics
                ]
            )
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse(
                topics=[TopicOutcome(name=topic.name, partitions=_outcomes(topic)) for topic in message.topics]
            )
    raise TypeError(f"{type(message).__name__} makes no group")


def _outcomes(topic: Any) -> list[PartitionOutcome]:
    return [
        PartitionOutcome(partition_index=partition.partition_index, error_code=ErrorCode.POLICY_VIOLATION)
        for partition in topic.partitions
    ]


class Groups:
    def __init__(
        self,
        runtime: Durability,
        topics: TopicCatalog,
        settings: GroupSettings,
        *,
        partitions: int,
        room: GroupRoom,
        acl_revision: Callable[[], int] = lambda: 0,
    ) -> None:
        self._runtime = runtime
        self._room = room
        self._topics = topics
        self._acl_revision = acl_revision  # which topics members may know of may change with it
        self._topics_told = -1  # the revision of the topics that the coordinator was told last
        self._gone = TopicsDeleted()  # topics whose offsets are yet to be forgotten
        self._forgetting: list[Deferred[StorageError | None]] = []  # who waits until they are
        self._is_forgetting = False
        self._settings = settings
        self._by_group: dict[str, GroupSettings] = {}  # of those that have settings of their own
        self.on_effect: Callable[[object], None] = lambda _: None  # for whom it is to do what was decided about groups
        self.coordinator = self._make()
        self.log = CoordinatorLog(topics, OFFSETS_TOPIC, partitions=partitions, encode=encode, owner_of=_group_of)
        self._shell = CoordinatorShell(
            runtime,
            self.log,
            decide=lambda event, now_ms: self.coordinator.decide(event, now_ms),
            apply=lambda record, producer_id: self.coordinator.apply(record, producer_id),
            on_timer=lambda key: self._shell.tell(TimerFired(key)) is not None,
            on_effect=lambda effect: self.on_effect(effect),
            load=self.load,
            producer_of=_producer_of,
        )

    def _make(self) -> GroupCoordinator:
        settings = self._settings
        self._share = ShareGroups(settings)
        return GroupCoordinator(settings, ConsumerGroups(settings), self._share, StreamsGroups(settings))

    def share_group(self, group_id: str) -> ShareGroup | None:
        """A share group as it is; it must not be changed."""
        return self._share.group(group_id) if self._share.holds(group_id) else None

    def sharers(self, topic_id: Uuid) -> Collection[str]:
        """The share groups that have a topic."""
        return self._share.sharers(topic_id)

    def settings_of(self, group_id: str) -> GroupSettings:
        return self._by_group.get(group_id, self._settings)

    def load(self) -> None:
        """Take in what was written, and begin; or begin anew."""
        self.coordinator = self._make()
        self.log.note_cuts()
        for log in self.log.partitions():
            self._take_in(log)
        self.topics_changed()
        if self._by_group:
            self._tell(SettingsChanged(self._by_group))
        self._tell(Loaded())
        left_over = TopicsDeleted(every=True)  # what a crash kept from being forgotten goes before anybody is served
        while (forgotten := self._shell.tell(left_over)) and forgotten.records:
            pass
        if forgotten is None:
            self._gone = left_over
            self.topics_deleted(frozenset())

    def _take_in(self, log: Log) -> None:
        """Apply one partition.

        A marker ends what its transaction wrote to this partition, and the coordinator, which serves all of them, does
        not know partitions: a marker of an old transaction here would end the producer's open one in another partition.
        So what was ended is applied by its outcome where it stands, and only what is still open waits for its marker.
        """
        ends = _ends_in(log)

        def apply(record: CoordinatorRecord, header: BatchHeader) -> None:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            if producer_id != NO_PRODUCER_ID:
                mine = ends.get(producer_id, [])
                end = bisect_left(mine, (header.base_offset, False))
                if end < len(mine):
                    if not mine[end].committed:
                        return
                    producer_id = NO_PRODUCER_ID
            self.coordinator.apply(record, producer_id)

        replay(log, decode, apply)

    def _tell(self, event: object) -> None:
        self._shell.tell(event)

    @property
    def _revision(self) -> int:
        return self._topics.revision + self._acl_revision()

    def ask(
        self,
        message: Message,
        version: int,
        client_id: str | None,
        host: str,
        sees: Callable[[str], bool] | None = None,
    ) -> Deferred[Message | None]:
        """`sees` tells which topics the client may know of, where that matters."""
        if self._topics_told != self._revision:  # changed in a thread, whose news is on its way, or ACLs have
            self.topics_changed()
        if isinstance(message, OffsetCommitRequest) and self.coordinator.holds(message.group_id):
            weight = 0
            for topic in message.topics:
                weight += len(topic.partitions)
            return self._shell.gather(
                lambda token: Request(token, message, version, client_id or "", f"/{host}", "", sees),
                message.group_id,
                weight,
            )
        refused = self._room.refuse(self.coordinator, message, self._runtime.now_ms())
        if refused is not None:
            answer: Deferred[Message | None] = Deferred()
            answer.set(refused)
            return answer
        fresh_id = str(uuid4()) if isinstance(message, _MAY_MAKE_A_MEMBER) else ""
        return self._shell.request(
            lambda token: Request(token, message, version, client_id or "", f"/{host}", fresh_id, sees)
        )

    def missing_topics(self, group_id: str) -> tuple[TopicInfo, ...]:
        """The topics that have yet to be made for the streams application of this group."""
        streams = self.coordinator.streams
        return streams.missing_topics(group_id) if streams is not None else ()

    def settings_changed(self, by_group: Mapping[str, Mapping[str, Any]]) -> None:
        """Have groups follow settings of their own, by the names of the broker's, wherever they have any."""
        before, self._by_group = (
            self._by_group,
            {name: replace(self._settings, **own) for name, own in by_group.items()},
        )
        if self._by_group != before and self._topics_told >= 0:  # else it is told when it is loaded
            self._tell(SettingsChanged(self._by_group))

    def topics_changed(self) -> None:
        self._topics_told = self._revision
        by_name = {
            name: Topic(Uuid(topic.id), len(topic.partitions), topic.priorities > 1)
            for name, topic in list(self._topics.by_name.items())
        }
        self._tell(TopicsChanged(Topics(self._topics_told, by_name)))

    def topics_deleted(self, names: frozenset[str]) -> Deferred[StorageError | None]:
        """Forget the offsets of topics that are gone; the answer comes when that is on the disk, or with the error.

        What cannot be written is tried again until it can.
        """
        forgotten: Deferred[StorageError | None] = Deferred()
        self._gone = replace(self._gone, topics=self._gone.topics | names)
        self._forgetting.append(forgotten)
        self.topics_changed()
        if not self._is_forgetting:
            self._is_forgetting = True
            self._forget()
        return forgotten

    def _forget(self) -> None:
        """Forget a portion; the rest follows when others had their turn."""
        decision = self._shell.tell(self._gone)
        if decision and decision.records:
            self._shell.retry(self._forget, delay_s=0)
            return
        waiting, self._forgetting = self._forgetting, []
        if decision is None:
            self._shell.retry(self._forget)
            _tell_all(
                waiting, StorageError("the offsets of a deleted topic could not be forgotten yet: check the disk")
            )
            return
        self._gone, self._is_forgetting = TopicsDeleted(), False
        self._shell.when_durable(lambda error: _tell_all(waiting, error))

    def transaction_ended(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        """A marker is in the log: offsets that were committed in the transaction count from now on, or never."""
        self._tell(TransactionEnded(producer_id, epoch, committed))

    def close(self) -> None:
        self._shell.close()


def _tell_all(waiting: list[Deferred[StorageError | None]], error: StorageError | None) -> None:
    for each in waiting:
        each.set(error)


class _End(NamedTuple):
    offset: int
    committed: bool


def _ends_in(log: Log) -> dict[int, list[_End]]:
    """The ends of transactions in a log, in order, by producer id."""
    ends: dict[int, list[_End]] = {}
    unusable = 0
    for batch in batches_of(log, reports=False):  # whoever applies it does
        header = header_at(batch)
        try:
            marker = control_type_of(batch) if header.is_control and header.record_count else None
        except RecordsError as error:  # of anybody's making: the other transactions have nothing to do with it
            unusable += 1
            report_unusable(log, header.base_offset, error, unusable)
            continue
        if marker:
            ends.setdefault(header.producer_id, []).append(_End(header.base_offset, marker[0] is ControlType.COMMIT))
    return ends


def _group_of(record: CoordinatorRecord) -> str:
    group = getattr(record.key, "group", None)
    return str(group if group is not None else getattr(record.key, "group_id", ""))


def _producer_of(decision: Decision) -> Producer | None:
    for effect in decision.effects:
        if isinstance(effect, InTransaction):
            return Producer(effect.producer_id, effect.producer_epoch)
    return None
