"""Fetch: record batches as bytes, by long poll.

A `Fetcher` has one request with each leader at a time. `poll` waits until any of them has answered, so a quiet broker
holds up no busy one. Positions move on with what was fetched; batches are not looked into, only their headers are.

What always holds: the offsets of a partition come in order and without gaps other than the log's own, and every batch
handed out is whole.
"""

import select
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster, Topic, is_passing
from headrace.client.connection import Connection, Ticket
from headrace.client.errors import ClientError, OffsetOutOfRange, RequestTimedOut, TopicReplaced, UnknownPartition
from headrace.client.leaders import by_leader, by_topic, refused
from headrace.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, bounds
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.protocol.schema import Buffer, Uuid
from headrace.records import headers_in

_LAST_VERSION_BY_NAME = 12
_ASKED_ANEW = 4  # more times, before a topic counts as another one


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How much to ask for, and how long the broker may wait for it."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    committed: bool = False  # leave out what is not committed: records of open transactions are not sent at all
    read_ahead: bool = False  # ask a broker for more before its last answer is worked through


LONG_POLL = FetchOptions()


class AbortedTransaction(NamedTuple):
    """A producer's records from this offset on, up to its next marker, were aborted."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches of one partition, as they are in the log; the first may begin before `offset`."""

    partition: TopicPartition
    offset: int
    next_offset: int
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


class _Asked(NamedTuple):
    connection: Connection
    ticket: Ticket
    positions: dict[TopicPartition, int]
    names: dict[Uuid, str]


class Fetcher:
    """Reads on from a position in each of some partitions."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        options: FetchOptions = LONG_POLL,
        *,
        until: Mapping[TopicPartition, int] | None = None,
        ids: Mapping[str, str] | None = None,
    ) -> None:
        """With `until`, a partition is not asked for more once its position is there.

        A request for what is not there yet waits at the broker, and everything behind it on the connection waits too.
        `ids` are the topics' ids (as texts) that the positions belong to: another topic under such a name is not read,
        but raised as `TopicReplaced`.
        """
        self._cluster = cluster
        self._ids = ids or {}
        self._until = until or {}
        self._positions = dict(positions)
        self._options = options
        self.paused: set[TopicPartition] = set()  # not asked for until they are taken out again
        self._asked: dict[int, _Asked] = {}
        self._pauses = cluster.retry.pauses()
        self._trouble: ClientError | None = None  # of the last poll: mended, or given up, at the next one

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return self._positions

    def drop(self, partition: TopicPartition) -> None:
        """Read no more of a partition."""
        self._positions.pop(partition, None)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from here, also of a partition that was not read before; an answer that is on its way is left out."""
        self._positions[partition] = offset

    def poll(self) -> list[Fetched]:
        """What the first leader to answer has; nothing if its wait ended without news."""
        try:
            if self._trouble:
                self._recover(self._trouble)
            self._ask_idle()
            found = self._read(self._answered()) if self._asked else []
        except ClientError as error:
            self._trouble = error
            if not is_passing(error):
                raise
            return []
        if found:
            self._pauses = self._cluster.retry.pauses()
            if self._options.read_ahead and not self._trouble:
                self._ask_idle()
        return found

    # --- asking

    def _ask_idle(self) -> None:
        waiting = {partition for asked in self._asked.values() for partition in asked.positions}
        for leader, partitions in self._by_leader().items():
            wanted = [
                partition
                for partition in partitions
                if partition not in waiting and partition not in self.paused and not self._is_done(partition)
            ]
            if leader < 0 and wanted:
                raise refused(wanted[0], ErrorCode.LEADER_NOT_AVAILABLE)
            if wanted and leader not in self._asked:
                self._asked[leader] = self._ask(leader, {where: self._positions[where] for where in wanted})

    def _by_leader(self) -> dict[int, list[TopicPartition]]:
        try:
            return by_leader(self._cluster, self._positions)
        except UnknownPartition as error:  # a topic never loses one, but another one under its name may have fewer
            self._topic(error.partition.topic)
            raise

    def _topic(self, name: str) -> Topic:
        """A topic that is read, with the id that its positions belong to.

        What was last heard of may be the one before it, also by a broker that hears of the news later than others.
        """
        topic, wanted = self._cluster.topic(name), self._ids.get(name)
        if is_known_as(topic, wanted):
            return topic
        for pause in (0.0, *self._cluster.retry.at_most(_ASKED_ANEW).pauses()):
            self._cluster.pause(pause)
            topic = self._cluster.topic(name, refresh=True)
            if is_known_as(topic, wanted):
                return topic
        check_id(topic, wanted)
        return topic

    def _is_done(self, partition: TopicPartition) -> bool:
        return partition in self._until and self._positions[partition] >= self._until[partition]

    def _ask(self, leader: int, positions: dict[TopicPartition, int]) -> _Asked:
        options = self._options
        topics = {name: self._topic(name) for name in by_topic(positions)}
        request = FetchRequest(
            max_wait_ms=options.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=options.max_bytes,
            isolation_level=READ_COMMITTED if options.committed else READ_UNCOMMITTED,
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=topics[name].id,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            fetch_offset=positions[TopicPartition(name, index)],
                            partition_max_bytes=options.partition_max_bytes,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(positions).items()
            ],
        )
        connection = self._cluster.broker(leader)
        ticket = connection.send(
            request,
            FetchResponse,
            highest=None if all(topic.has_id for topic in topics.values()) else _LAST_VERSION_BY_NAME,
            timeout_s=connection.request_timeout_s + options.max_wait_ms / 1000,
        )
        return _Asked(connection, ticket, positions, {topic.id: name for name, topic in topics.items()})

    # --- waiting

    def _answered(self) -> int:
        """A leader whose answer is here, as soon as there is one; whoever was asked first comes first."""
        by_descriptor = {}
        poller = select.poll()
        for node, asked in self._asked.items():
            # Of a closed connection the reading will tell what happened.
            if not asked.connection.is_open or asked.connection.has_answer(asked.ticket):
                return node
            by_descriptor[asked.connection.fileno()] = node
            poller.register(asked.connection.fileno(), select.POLLIN)
        first = next(iter(self._asked.values()))
        ready = {by_descriptor[descriptor] for descriptor, _ in poller.poll(first.ticket.timeout_s * 1000)}
        for node in self._asked:
            if node in ready:
                return node
        first.connection.close()
        raise RequestTimedOut(first.connection.address, "Fetch", first.ticket.timeout_s)

    # --- reading

    def _read(self, node: int) -> list[Fetched]:
        asked = self._asked.pop(node)
        response = asked.connection.receive(asked.ticket, FetchResponse)
        if response.error_code:
            raise refused(next(iter(asked.positions)), response.error_code)
        answers = [
            (where, data)
            for topic in response.responses
            for data in topic.partitions
            for where in [TopicPartition(topic.topic or asked.names.get(topic.topic_id, ""), data.partition_index)]
            # It may have been dropped, or somebody went elsewhere, while this was on its way.
            if where in self._positions and self._positions[where] == asked.positions.get(where)
        ]
        # Errors first: once a position has moved, what was before it must be handed out.
        for where, data in answers:
            error = self._error(where, data)
            if error and not is_passing(error):
                raise error
            self._trouble = error or self._trouble
        found = [self._fetched(where, data) for where, data in answers if not data.error_code]
        return [fetched for fetched in found if fetched.records]

    def _error(self, where: TopicPartition, data: PartitionData) -> ClientError | None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            held = bounds(self._cluster, [where], committed=self._options.committed)[where]
            return OffsetOutOfRange(where, self._positions[where], held.start, held.end)
        return refused(where, data.error_code) if data.error_code else None

    def _fetched(self, where: TopicPartition, data: PartitionData) -> Fetched:
        offset = self._positions[where]
        whole, next_offset = _whole_batches(data.records if data.records is not None else b"", offset)
        # To the end of the line, so that no partition with much to tell keeps the others from being served.
        if whole:
            del self._positions[where]
            self._positions[where] = next_offset
        return Fetched(
            where,
            offset,
            next_offset,
            whole,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            tuple(
                AbortedTransaction(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or ()
            ),
        )

    # --- mending

    def _recover(self, error: ClientError) -> None:
        """Look for the leaders anew, or give up."""
        pause = next(self._pauses, None)
        if pause is None or not is_passing(error):
            raise error
        self._trouble = None
        self._asked = {node: asked for node, asked in self._asked.items() if asked.connection.is_open}
        self._cluster.pause(pause)
        self._cluster.refresh(by_topic(self._positions))


def is_known_as(topic: Topic, topic_id: str | None) -> bool:
    """Whether a topic is the one that was known by this id; an id that nobody knows fits."""
    return not topic_id or not topic.has_id or topic.id_text == topic_id


def check_id(topic: Topic, id_before: str | None) -> None:
    """Raise `TopicReplaced` if a topic is not the one that was known by this id."""
    if id_before and not is_known_as(topic, id_before):
        raise TopicReplaced(topic.name, id_before, topic.id_text)


def _whole_batches(data: Buffer, offset: int) -> tuple[memoryview, int]:
    """The part of an answer that is whole batches, and the offset after it."""
    end, next_offset = 0, offset
    for position, header in headers_in(data):
        end = position + header.size
        next_offset = max(next_offset, header.next_offset)
    return memoryview(data)[:end], next_offset
