"""Produce: batches that are ready, written as they are.

A batch of an idempotent producer carries a producer id and a sequence, so the broker knows it again and it may be sent
twice without harm. One without may be sent again only if the broker said that it was not written; if the answer was
lost, that is an error, because nobody knows.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, Refused
from headrace.client.leaders import Question, ask_leaders, by_leader, by_topic, refused
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.schema import Buffer, Uuid
from headrace.records import headers_in

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
_LAST_VERSION_BY_NAME = 12
_LAST_VERSION_WITHOUT_ADDING = 11  # from 12 on the broker adds partitions by itself, and the epoch moves (KIP-890)


class Written(NamedTuple):
    """Where a partition's first record now is; the time is the broker's, -1 where records keep their own."""

    base_offset: int
    append_time_ms: int


class Producer(NamedTuple):
    id: int
    epoch: int


def init_producer(cluster: Cluster) -> Producer:
    """A producer id of our own, for idempotent batches."""

    def ask() -> Producer:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = cluster.any_broker().request(request, InitProducerIdResponse)
        if response.error_code:
            raise Refused("a producer id", ErrorCode.of(response.error_code))
        return Producer(response.producer_id, response.producer_epoch)

    return cluster.run_with_retries(ask)


def send(
    cluster: Cluster,
    batches: Mapping[TopicPartition, Buffer],
    *,
    acks: int = ACKS_ALL,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> dict[TopicPartition, Written]:
    """Write each partition's batches; nothing is known of where they are with `ACKS_NONE`.

    With a transactional id the batches are part of its open transaction, to which their partitions were added.
    Raises the first error that stays. Other partitions may have been written then.
    """
    names = by_topic(batches)
    highest = None if all(cluster.topic(name).has_id for name in names) else _LAST_VERSION_BY_NAME
    if transactional_id is not None:
        highest = _LAST_VERSION_WITHOUT_ADDING

    def ask(partitions: list[TopicPartition]) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=cluster.topic(name).id,
                    partition_data=[
                        PartitionProduceData(index=index, records=batches[TopicPartition(name, index)])
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )

    if acks == ACKS_NONE:
        for leader, partitions in by_leader(cluster, batches).items():
            cluster.broker(leader).send_unanswered(ask(partitions), highest=highest)
        return {}
    question = Question(
        ProduceResponse,
        ask,
        lambda response: _read(response, {cluster.topic(name).id: name for name in names}),
        highest=highest,
        timeout_s=timeout_ms / 1000 + 5,
        may_repeat=all(header.producer_id >= 0 for data in batches.values() for _, header in headers_in(data)),
    )
    return ask_leaders(cluster, batches, question)


def _read(
    response: ProduceResponse, names: Mapping[Uuid, str]
) -> Iterator[tuple[TopicPartition, Written | ClientError]]:
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            where = TopicPartition(name, answer.index)
            if answer.error_code:
                yield where, refused(where, answer.error_code, answer.error_message)
            else:
                yield where, Written(answer.base_offset, answer.log_append_time_ms)
