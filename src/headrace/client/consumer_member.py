"""A member of a consumer group by the protocol of KIP-848, on Kafka 4.0 or newer, or ours; or one who only commits.

It beats at the group's coordinator, reads what it is assigned from where the group has come to, and commits. `poll`
does what is due and waits for records; whoever does not poll calls `beat` often enough.

What always holds: a partition is given up only after `on_revoked` was called for it, and the coordinator hears of it
afterwards; records of a partition come from its committed offset on, or from where `reset` says; a member that was
fenced forgets what it had and joins anew. An object belongs to one thread.
"""

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from uuid import uuid4

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.coordinators import Coordinators
from headrace.client.errors import ClientError, OffsetOutOfRange, Refused, TopicReplaced, UnknownTopic
from headrace.client.fetch import Fetcher, FetchOptions
from headrace.client.groups import Committed
from headrace.client.leaders import by_topic
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.client.reader import ReadRecord, records_in
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.protocol.schema import Uuid

_JOIN, _LEAVE, _NOBODY = 0, -1, -1
_LAST_VERSION_BY_NAME: Final = 9  # of OffsetCommit and OffsetFetch
_REJOIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
_STALE: Final = (ErrorCode.STALE_MEMBER_EPOCH, *_REJOIN)
_SOON_S: Final = 0.1
_REBALANCE_MS: Final = 60_000
_CLOSING_S: Final = 5.0
_WAIT_AT_MOST_MS: Final = 500

Revoked = Callable[[Collection[TopicPartition]], None]


class ConsumerMember:
    """One member; the cluster is its own, and is closed with it."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        from_earliest: bool,
        options: FetchOptions,
        on_revoked: Revoked = lambda _: None,
    ) -> None:
        self.group = group
        self.member_id = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._reset = EARLIEST if from_earliest else LATEST
        self._options = options
        self._on_revoked = on_revoked
        self._topics: list[str] | None = None  # that it is subscribed to
        self._told: list[str] | None = None  # of them, what the coordinator knows
        self._epoch = _JOIN
        self._beat_at = 0.0
        self._owned: set[TopicPartition] = set()
        self._is_owned_told = True
        self._names: dict[Uuid, str] = {}
        self._fetcher = Fetcher(cluster, {}, options)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._owned)

    @property
    def is_member(self) -> bool:
        return self._topics is not None

    @property
    def is_settled(self) -> bool:
        """Whether the coordinator has assigned it something, or nobody needs to."""
        return self._topics is None or bool(self._owned)

    # --- what it reads

    def subscribe(self, topics: Sequence[str]) -> None:
        """Share these topics with the other members of the group."""
        if topics != self._topics:
            self._topics, self._beat_at = list(topics), 0.0

    def topic_names(self) -> list[str]:
        return [topic.name for topic in self._cluster.topics()]

    def unsubscribe(self) -> None:
        self._give_up(self._owned)
        self._leave()
        self._topics = None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, whatever others of the group do."""
        wanted = set(partitions)
        for each in wanted:
            self._cluster.partitions(each.topic, (each.partition,))
        self._give_up(self._owned - wanted)
        self._take(wanted - self._owned)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on from these offsets; those of partitions that it reads."""
        for where, offset in positions.items():
            self._fetcher.seek(where, offset)

    def seek_to(self, partitions: Collection[TopicPartition], *, beginning: bool) -> None:
        """Go on from the beginning or the end."""
        found = list_offsets(
            self._cluster, dict.fromkeys(partitions, EARLIEST if beginning else LATEST), committed=True
        )
        self.seek({where: each.offset for where, each in found.items()})

    def poll(self, max_wait_ms: int) -> list[ReadRecord]:
        """What there is, or what comes within this time; beats while it waits."""
        until = time.monotonic() + max_wait_ms / 1000
        while True:
            self.beat()
            left_ms = max(0, int((until - time.monotonic()) * 1000))
            found = self._poll_once(min(left_ms, _WAIT_AT_MOST_MS))
            if found or left_ms == 0:
                return found

    def _poll_once(self, max_wait_ms: int) -> list[ReadRecord]:
        if not self._fetcher.positions:
            self._cluster.pause(min(max_wait_ms / 1000, _SOON_S))
            return []
        try:
            return [read for fetched in self._fetcher.poll() for read in records_in(fetched, committed=True)]
        except (UnknownTopic, TopicReplaced):
            self._fetcher = Fetcher(self._cluster, {}, self._options)
            self._cluster.refresh({where.topic for where in self._owned})
            self.seek(self._begins(self._owned))
        except OffsetOutOfRange as error:
            found = list_offsets(self._cluster, {error.partition: self._reset}, committed=True)
            self.seek({error.partition: found[error.partition].offset})
        return []

    # --- membership

    def beat(self) -> None:
        """Tell the coordinator what is due, and take up what it says."""
        if self._topics is None or time.monotonic() < self._beat_at:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=_REBALANCE_MS if self._epoch == _JOIN else -1,
            subscribed_topic_names=self._topics if self._epoch == _JOIN or self._told != self._topics else None,
            topic_partitions=self._owned_by_id() if self._epoch == _JOIN or not self._is_owned_told else None,
        )
        try:
            response = self._coordinators.ask(self.group, lambda connection: _beaten(connection, request, self.group))
        except Refused as refusal:
            if refusal.code not in _REJOIN or self._epoch == _JOIN:
                raise
            self._epoch, self._beat_at = _JOIN, 0.0
            self._forget()
            self.beat()
            return
        self._epoch, self._told, self._is_owned_told = response.member_epoch, self._topics, True
        interval_s = response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._take_up(response.assignment.topic_partitions)
        if not self._is_owned_told or not self._owned:
            interval_s = min(interval_s, _SOON_S if not self._is_owned_told else 5 * _SOON_S)
        self._beat_at = time.monotonic() + interval_s

    def _take_up(self, assigned: Sequence[TopicPartitions]) -> None:
        if any(each.topic_id not in self._names for each in assigned):
            self._names = {topic.id: topic.name for topic in self._cluster.topics()}
        wanted = {
            TopicPartition(self._names[each.topic_id], partition)
            for each in assigned
            if each.topic_id in self._names
            for partition in each.partitions
        }
        if wanted == self._owned:
            return
        self._give_up(self._owned - wanted)
        self._take(wanted - self._owned)
        self._is_owned_told = False

    def _owned_by_id(self) -> list[TopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        return [
            TopicPartitions(topic_id=ids[name], partitions=indexes)
            for name, indexes in by_topic(self._owned).items()
            if name in ids
        ]

    def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        gone = set(partitions)
        self._on_revoked(gone)
        self._owned -= gone
        for where in gone:
            self._fetcher.drop(where)

    def _take(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            begins = self._begins(partitions)
            self._owned |= set(partitions)
            self.seek(begins)

    def _forget(self) -> None:
        """Somebody else may have had all of it meanwhile: nothing is committed of it."""
        for where in self._owned:
            self._fetcher.drop(where)
        self._owned = set()

    def _leave(self) -> None:
        if self._topics is None or self._epoch == _JOIN:
            return
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=_LEAVE)
        with suppress(ClientError):
            self._coordinators.ask(
                self.group,
                lambda connection: connection.request(request, ConsumerGroupHeartbeatResponse, timeout_s=_CLOSING_S),
            )
        self._epoch, self._told = _JOIN, None

    def close(self) -> None:
        """Leave the group, so that others need not wait until it is missed."""
        with suppress(ClientError):
            self._give_up(self._owned)
        self._leave()
        self._cluster.close()

    # --- positions

    def _begins(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to begin: where the group has come to, or where one begins that has come nowhere."""
        committed = self.committed(partitions)
        missing = [where for where in partitions if where not in committed]
        found = list_offsets(self._cluster, dict.fromkeys(missing, self._reset), committed=True) if missing else {}
        return {where: committed[where].offset if where in committed else found[where].offset for where in partitions}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """How far the group has come, in those partitions where it has come anywhere."""
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]

        def ask(connection: Connection) -> dict[TopicPartition, Committed]:
            who = self._who()
            group = OffsetFetchRequestGroup(group_id=self.group, member_id=who[0], member_epoch=who[1], topics=topics)
            request = OffsetFetchRequest(groups=[group], require_stable=True)
            response = connection.request(request, OffsetFetchResponse, highest=_LAST_VERSION_BY_NAME)
            (answer,) = response.groups
            _check(f"cannot read the offsets of group {self.group!r}", answer.error_code)
            found = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    where = TopicPartition(topic.name, each.partition_index)
                    _check(f"cannot read the offset of group {self.group!r} for {where}", each.error_code)
                    if each.committed_offset >= 0:
                        found[where] = Committed(each.committed_offset, each.metadata or "")
            return found

        return self._coordinators.ask(self.group, ask)

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Say how far the group has come."""
        if not offsets:
            return
        try:
            self._commit(offsets)
        except Refused as refusal:
            if refusal.code not in _STALE or self._topics is None:
                raise
            self._beat_at = 0.0  # the epoch may have moved since the last beat
            self.beat()
            mine = {where: offset for where, offset in offsets.items() if where in self._owned}
            if len(mine) < len(offsets):
                raise
            self._commit(mine)

    def _commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        member_id, epoch = self._who()
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id or "",
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(name, index)].offset,
                            committed_metadata=offsets[TopicPartition(name, index)].metadata,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(offsets).items()
            ],
        )

        def ask(connection: Connection) -> None:
            response = connection.request(request, OffsetCommitResponse, highest=_LAST_VERSION_BY_NAME)
            for topic in response.topics:
                for each in topic.partitions:
                    where = TopicPartition(topic.name, each.partition_index)
                    _check(f"cannot commit the offset of group {self.group!r} for {where}", each.error_code)

        self._coordinators.ask(self.group, ask)

    def _who(self) -> tuple[str | None, int]:
        """As whom it commits: as a member, or as somebody outside."""
        return (None, _NOBODY) if self._topics is None or self._epoch == _JOIN else (self.member_id, self._epoch)


def _beaten(
    connection: Connection, request: ConsumerGroupHeartbeatRequest, group: str
) -> ConsumerGroupHeartbeatResponse:
    response = connection.request(request, ConsumerGroupHeartbeatResponse)
    _check(f"consumer group {group!r}", response.error_code, response.error_message)
    return response


def _check(doing: str, code: int, message: str | None = None) -> None:
    if code:
        raise Refused(doing, ErrorCode.of(code), message)
