"""Asking the leaders: again where that may help, once where it may not, and whoever answers first is heard first."""

import contextlib
import threading
import time

import pytest

from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ConnectionClosed, Refused, UnknownTopic
from headrace.client.fetch import Fetcher, FetchOptions
from headrace.client.offsets import LATEST, list_offsets
from headrace.client.writer import send
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.records import Record, build_batch
from tests.unit.client.scripted_broker import answer, listening, negotiate, read_request

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = bytes(range(16))


def metadata(addresses, leaders=(0,), *, error=ErrorCode.NONE):
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=a.host, port=a.port) for node, a in enumerate(addresses)],
        controller_id=0,
        topics=[
            MetadataResponseTopic(
                error_code=error,
                name="t",
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader)
                    for index, leader in enumerate(leaders)
                ],
            )
        ],
    )


class Script:
    """Answers each kind of request with the next of its answers, the last of them for ever; None hangs up."""

    def __init__(self, **answers):
        self.answers = {kind: list(given) for kind, given in answers.items()}
        self.asked = []
        self.addresses = []

    def __call__(self, peer):
        negotiate(peer)
        while True:
            request = read_request(peer)
            kind = type(request.body).__name__
            self.asked.append(kind)
            given = self.answers[kind]
            body = given.pop(0) if len(given) > 1 else given[0]
            body = body(self.addresses) if callable(body) else body
            if body is None:
                return
            answer(peer, request, body)


@contextlib.contextmanager
def cluster_of(*scripts, connections=6):
    with contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(listening(*[script] * connections)) for script in scripts]
        for script in scripts:
            script.addresses[:] = addresses
        pauses = []
        settings = ConnectionSettings(request_timeout_s=30)
        with Cluster(addresses[:1], settings, retry=PATIENT.at_most(3), sleep=pauses.append) as cluster:
            cluster.pauses = pauses
            yield cluster


def offsets_answer(code, offset=-1):
    found = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


def test_an_error_that_passes_is_asked_again_with_new_metadata():
    script = Script(
        MetadataRequest=[metadata],
        ListOffsetsRequest=[offsets_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), offsets_answer(0, 42)],
    )
    with cluster_of(script) as cluster:
        assert list_offsets(cluster, {T0: LATEST})[T0].offset == 42
        assert cluster.pauses == [0.1]
    assert script.asked == ["MetadataRequest", "ListOffsetsRequest", "MetadataRequest", "ListOffsetsRequest"]


def test_trying_again_has_an_end():
    script = Script(MetadataRequest=[metadata], ListOffsetsRequest=[offsets_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
    with cluster_of(script) as cluster:
        with pytest.raises(Refused, match=r"partition t-0: this broker does not lead .*NOT_LEADER_OR_FOLLOWER"):
            list_offsets(cluster, {T0: LATEST})
        assert cluster.pauses == [0.1, 0.2, 0.4]


def test_an_error_that_stays_is_told_at_once():
    script = Script(
        MetadataRequest=[metadata], ListOffsetsRequest=[offsets_answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    )
    with cluster_of(script) as cluster:
        with pytest.raises(Refused, match="not allowed on this topic"):
            list_offsets(cluster, {T0: LATEST})
        assert cluster.pauses == []


def test_a_partition_without_a_leader_is_waited_for():
    script = Script(
        MetadataRequest=[lambda addresses: metadata(addresses, [-1]), metadata],
        ListOffsetsRequest=[offsets_answer(0, 7)],
    )
    with cluster_of(script) as cluster:
        assert list_offsets(cluster, {T0: LATEST})[T0].offset == 7


def test_a_broken_connection_is_made_anew():
    script = Script(MetadataRequest=[metadata], ListOffsetsRequest=[None, offsets_answer(0, 7)])
    with cluster_of(script) as cluster:
        assert list_offsets(cluster, {T0: LATEST})[T0].offset == 7


def test_an_unknown_topic_is_looked_for_a_few_times_only():
    unknown = [lambda addresses: metadata(addresses, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    with cluster_of(Script(MetadataRequest=unknown)) as cluster:
        with pytest.raises(UnknownTopic, match="topic 't' does not exist"):
            cluster.topic("t")
        assert len(cluster.pauses) == 2
    with cluster_of(Script(MetadataRequest=[*unknown, metadata])) as cluster:
        assert cluster.topic("t").name == "t"


def produced(offset):
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t", topic_id=TOPIC_ID, partition_responses=[PartitionProduceResponse(index=0, base_offset=offset)]
            )
        ]
    )


RECORDS = [Record(0, 1, b"k", b"v")]


def test_a_batch_whose_answer_was_lost_is_sent_again_only_if_the_broker_knows_it_again():
    script = Script(MetadataRequest=[metadata], ProduceRequest=[None, produced(3)])
    with cluster_of(script) as cluster, pytest.raises(ConnectionClosed):
        send(cluster, {T0: build_batch(RECORDS)})
    assert script.asked.count("ProduceRequest") == 1

    script = Script(MetadataRequest=[metadata], ProduceRequest=[None, produced(3)])
    with cluster_of(script) as cluster:
        batch = build_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0)
        assert send(cluster, {T0: batch})[T0].base_offset == 3
    assert script.asked.count("ProduceRequest") == 2


def fetched(index, records=b"", code=0):
    data = PartitionData(partition_index=index, error_code=code, high_watermark=9, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[data])])


def test_a_quiet_leader_holds_up_no_busy_one():
    hold = threading.Event()
    quiet = Script(
        MetadataRequest=[lambda addresses: metadata(addresses, [0, 1])], FetchRequest=[lambda _: hold.wait(20) and None]
    )
    busy = Script(FetchRequest=[fetched(1, build_batch(RECORDS))])
    with cluster_of(quiet, busy) as cluster:
        fetcher = Fetcher(cluster, {T0: 0, T1: 0}, FetchOptions(max_wait_ms=10_000))
        began = time.monotonic()
        (found,) = fetcher.poll()
        assert (found.partition, found.next_offset) == (T1, 1)
        assert time.monotonic() - began < 9
        assert fetcher.positions == {T0: 0, T1: 1}
        hold.set()


def test_a_fetch_goes_on_where_the_leader_moved_to():
    batch = build_batch(RECORDS)
    old = Script(
        MetadataRequest=[metadata, lambda addresses: metadata(addresses, [1])],
        FetchRequest=[fetched(0, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    )
    new = Script(FetchRequest=[fetched(0, batch)])
    with cluster_of(old, new) as cluster:
        fetcher = Fetcher(cluster, {T0: 0})
        assert fetcher.poll() == []
        (found,) = fetcher.poll()
        assert bytes(found.records) == batch
    assert new.asked == ["FetchRequest"]


def test_what_one_partition_has_is_not_lost_when_another_fails():
    both = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                topic_id=TOPIC_ID,
                partitions=[
                    PartitionData(partition_index=0, high_watermark=9, records=build_batch(RECORDS)),
                    PartitionData(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, records=b""),
                ],
            )
        ]
    )
    script = Script(
        MetadataRequest=[lambda addresses: metadata(addresses, [0, 0])],
        FetchRequest=[both, fetched(1, build_batch(RECORDS))],
    )
    with cluster_of(script) as cluster:
        fetcher = Fetcher(cluster, {T0: 0, T1: 0})
        assert [found.partition for found in fetcher.poll()] == [T0]
        assert [found.partition for found in fetcher.poll()] == [T1]


def test_a_batch_cut_short_is_left_for_the_next_fetch():
    batch = build_batch(RECORDS)
    script = Script(MetadataRequest=[metadata], FetchRequest=[fetched(0, batch + batch[:-1])])
    with cluster_of(script) as cluster:
        (found,) = Fetcher(cluster, {T0: 0}).poll()
        assert bytes(found.records) == batch
        assert found.next_offset == 1
