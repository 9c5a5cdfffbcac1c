"""Appends and selections of events, on a broker of ours: what no other Kafka has (`headrace.events`).

An append is one batch for one partition. It names its command, so it may be sent again when its answer was lost.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.leaders import Question, ask_leaders, refused
from headrace.client.writer import ACKS_ALL
from headrace.delivery.events import Selection
from headrace.model import TopicPartition
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from headrace.protocol.schema import Buffer
from headrace.records import headers_in

FEATURE: Final = "headrace.events"  # a broker that has it knows topics with events
_TIMEOUT_MS: Final = 30_000
_SELECTED_BYTES: Final = 1024 * 1024


class Appended(NamedTuple):
    """Where the first event of an append is; `is_repeat` if it was there before.

    `is_again` if it was sent more than once: what was there before may be what the first request did.
    """

    base_offset: int
    is_repeat: bool
    is_again: bool


class Selected(NamedTuple):
    """Batches with the events that were asked for; there are more of them unless `next_offset` is `end`."""

    records: Buffer
    next_offset: int
    end: int
    stream_version: int


def append_events(cluster: Cluster, where: TopicPartition, batch: Buffer) -> Appended:
    """Append a batch of events; a conflict is `Refused` with POLICY_VIOLATION."""
    sent = 0

    def ask(_: list[TopicPartition]) -> ProduceRequest:
        nonlocal sent
        sent += 1
        data = PartitionProduceData(index=where.partition, records=batch)
        topic = TopicProduceData(name=where.topic, topic_id=cluster.topic(where.topic).id, partition_data=[data])
        return ProduceRequest(acks=ACKS_ALL, timeout_ms=_TIMEOUT_MS, topic_data=[topic])

    def read(response: ProduceResponse) -> Iterator[tuple[TopicPartition, Appended | ClientError]]:
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    yield where, refused(where, answer.error_code, answer.error_message)
                else:
                    yield where, Appended(answer.base_offset, answer.is_repeat, sent > 1)

    question = Question(ProduceResponse, ask, read, timeout_s=_TIMEOUT_MS / 1000 + 5)
    return ask_leaders(cluster, [where], question)[where]


def select_events(
    cluster: Cluster,
    where: TopicPartition,
    selection: Selection | None,
    offset: int = 0,
    *,
    max_wait_ms: int = 0,
    max_bytes: int = _SELECTED_BYTES,
) -> Selected:
    """Some of the events that are asked for; of a query, from an offset on.

    Without a selection, which any Kafka can answer, all batches from an offset on.
    """

    def ask(_: list[TopicPartition]) -> FetchRequest:
        wanted = FetchPartition(
            partition=where.partition,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
            select=selection.to_text() if selection else "",
        )
        topic = FetchTopic(topic=where.topic, topic_id=cluster.topic(where.topic).id, partitions=[wanted])
        return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])

    def read(response: FetchResponse) -> Iterator[tuple[TopicPartition, Selected | ClientError]]:
        if response.error_code:
            yield where, refused(where, response.error_code)
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code:
                    yield where, refused(where, data.error_code)
                else:
                    records = data.records if data.records is not None else b""
                    next_offset = data.next_offset if selection else _end_of(records, offset)
                    yield where, Selected(records, next_offset, data.high_watermark, data.stream_version)

    question = Question(FetchResponse, ask, read)
    return ask_leaders(cluster, [where], question)[where]


def _end_of(batches: Buffer, offset: int) -> int:
    """The offset behind whole batches; the last may be cut."""
    return max((header.next_offset for _, header in headers_in(batches)), default=offset)
