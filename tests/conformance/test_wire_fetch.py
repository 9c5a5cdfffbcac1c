"""Reading: ranges, limits, waiting, sessions, ends, times and epochs, as the protocol itself tells them."""

from __future__ import annotations

import time

import pytest

from headrace.protocol.frame import decode_response
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.schema import ZERO_UUID, Uuid
from headrace.records import Record, build_batch
from tests.conformance.clients.wire import NOON_MS, Wire, batch_of, plain
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3


def _offsets(wire, topic, timestamp, *, partition=0, version=None, isolation=0, epoch=-1):
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=9000)
    return plain(wire.ask(request, version).topics[0].partitions[0])


def ranges(wire, topic):
    """From the start, from the middle of a batch, at the end, outside; unknown and illegal places."""
    wire.create(topic)
    for i in range(3):
        wire.produce(topic, batch_of(*(b"%d-%d" % (i, j) for j in range(4))))
    return {
        "start": plain(wire.fetch(topic, 0)),
        "middle of a batch": plain(wire.fetch(topic, 6)),
        "last": plain(wire.fetch(topic, 11)),
        "end": plain(wire.fetch(topic, 12)),
        "behind the end": plain(wire.fetch(topic, 13)),
        "negative": plain(wire.fetch(topic, -1)),
        "unknown partition": plain(wire.fetch(topic, 0, partition=4)),
        "negative partition": plain(wire.fetch(topic, 0, partition=-1)),
        "unknown topic": plain(wire.fetch(f"{topic}-none", 0)),
        "committed": plain(wire.fetch(topic, 4, isolation_level=1)),
        "newer leader epoch": plain(wire.fetch(topic, 0, current_leader_epoch=99)),
        "known leader epoch": plain(wire.fetch(topic, 0, current_leader_epoch=0)),
        "fetched in this epoch": plain(wire.fetch(topic, 8, last_fetched_epoch=0)),
        "fetched in a newer epoch": plain(wire.fetch(topic, 8, last_fetched_epoch=5)),
        "fetched in no epoch": plain(wire.fetch(topic, 8, last_fetched_epoch=-1)),
        **{f"version {version}": plain(wire.fetch(topic, 4, version=version)) for version in range(4, 13)},
    }


def test_ranges(brokers):
    told = brokers.compare(ranges, Wire)
    assert told["behind the end"]["error_code"] == "OFFSET_OUT_OF_RANGE"


def by_id(wire, topic):
    """By topic id since version 13: known, unknown, none."""
    wire.create(topic)
    wire.produce(topic, batch_of(b"v"))

    def fetch(topic_id, version):
        partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
        request = FetchRequest(topics=[FetchTopic(topic_id=topic_id, partitions=partitions)], max_wait_ms=0)
        return plain(wire.ask(request, version))

    ids = {"known": wire.topic_id(topic), "unknown": Uuid(b"nobody's topicid"), "none": ZERO_UUID}
    return {f"{name} {version}": fetch(each, version) for name, each in ids.items() for version in range(13, 19)}


def test_by_id(brokers):
    brokers.compare(by_id, Wire)


def limits(wire, topic):
    """How much comes: at least one whole batch, and as many as fit into the limits."""
    wire.create(topic, 2)
    for _ in range(4):
        for partition in range(2):
            wire.produce(topic, batch_of(b"v" * 900), partition=partition)
    size = len(batch_of(b"v" * 900))

    def fetch(max_bytes, partition_max_bytes):
        partitions = [
            FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=partition_max_bytes) for i in range(2)
        ]
        topics = [FetchTopic(topic=topic, partitions=partitions)]
        response = wire.ask(FetchRequest(topics=topics, max_bytes=max_bytes, max_wait_ms=0), 12)
        # Kafka may cut the last batch anywhere; what counts are whole ones.
        return {
            each.partition_index: len(plain(_whole(each.records, size))) for each in response.responses[0].partitions
        }

    return {
        f"{max_bytes} and {partition_max_bytes}": fetch(max_bytes, partition_max_bytes)
        for max_bytes in (0, 1, size, 2 * size, 3 * size + 10, 100 * size)
        for partition_max_bytes in (0, 1, size, 2 * size, 2 * size + 10, 100 * size)
    }


def _whole(records, size):
    return bytes(records)[: len(records) // size * size]


def test_limits(brokers):
    brokers.compare(limits, Wire)


def waiting(wire, topic):
    """A fetch with nothing to tell waits; an append wakes it, long before its time is over."""
    wire.create(topic)
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]

    def ask(max_wait_ms, min_bytes):
        request = FetchRequest(
            topics=[FetchTopic(topic=topic, partitions=partitions)], max_wait_ms=max_wait_ms, min_bytes=min_bytes
        )
        return wire.send(request, 12)

    def answer_after(begin):
        wire.receive()
        return time.monotonic() - begin

    with Wire(wire.servers) as writer:
        begin = time.monotonic()
        ask(300, 1)
        waited = answer_after(begin)
        begin = time.monotonic()
        ask(9000, 1)
        writer.produce(topic, batch_of(b"wakes"))
        woken = answer_after(begin)
        begin = time.monotonic()
        ask(9000, 200)
        writer.produce(topic, batch_of(b"not enough"))
        writer.produce(topic, batch_of(b"enough" * 30))
        enough = answer_after(begin)
        begin = time.monotonic()
        ask(9000, 0)
        at_once = answer_after(begin)
    return {
        "waits its time": 0.28 < waited < 8,
        "woken": woken < 8,
        "woken by enough": enough < 8,
        "waits for nothing": at_once < 8,
    }


def test_waiting(brokers):
    assert set(brokers.compare(waiting, Wire).values()) == {True}


def pipelined(wire, topic):
    """Requests sent without waiting are answered in their order, a waiting fetch before what came after it."""
    wire.create(topic)
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic=topic, partitions=partitions)]
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch_of(b"v"))])]
    sent = [wire.send(ProduceRequest(acks=1, timeout_ms=9000, topic_data=data), 12) for _ in range(5)]
    sent.append(wire.send(FetchRequest(topics=topics, max_wait_ms=200, min_bytes=1 << 20), 12))
    sent += [wire.send(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=data), 12) for _ in range(5)]
    answered = [int.from_bytes(wire.receive()[:4], "big") for _ in sent]
    return {"in order": answered == sent, "end": _offsets(wire, topic, _LATEST)["offset"]}


def test_pipelined(brokers):
    assert brokers.compare(pipelined, Wire) == {"in order": True, "end": 10}


def sessions(wire, topic):
    """An incremental session: what comes at first, when nothing is new, after an append, after changes; its errors."""
    names = [topic, f"{topic}-b"]
    for name in names:
        wire.create(name, 2)
        for partition in range(2):
            wire.produce(name, batch_of(b"first"), partition=partition)
    ids = {name: wire.topic_id(name) for name in names}
    session = 0

    def fetch(epoch, wanted=(), forgotten=(), *, session_id=None):
        nonlocal session
        topics = [
            FetchTopic(
                topic_id=ids[name],
                partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
            for name, partition, offset in wanted
        ]
        request = FetchRequest(
            topics=topics,
            forgotten_topics_data=[ForgottenTopic(topic_id=ids[name], partitions=[i]) for name, i in forgotten],
            max_wait_ms=0,
            session_id=session if session_id is None else session_id,
            session_epoch=epoch,
        )
        response = wire.ask(request)
        if epoch == 0:
            session = response.session_id
        told = sorted(
            (
                list(ids.values()).index(each.topic_id),
                part.partition_index,
                len(part.records or b"") > 0,
                part.error_code,
                part.high_watermark,
                part.log_start_offset,
            )
            for each in response.responses
            for part in each.partitions
        )
        return {"error": response.error_code, "in the session": response.session_id == session != 0, "told": told}

    everything = [(name, partition, 0) for name in names for partition in range(2)]
    told = {
        "opened": fetch(0, everything),
        "the same again": fetch(1),
        "read on": fetch(2, [(name, partition, 1) for name, partition, _ in everything]),
        "nothing new": fetch(3),
    }
    wire.produce(topic, batch_of(b"second"), partition=1)
    told |= {
        "one has something new": fetch(4),
        "still": fetch(5),
        "read": fetch(6, [(topic, 1, 2)]),
        "one forgotten": fetch(7, [(topic, 0, 0)], [(topic, 1)]),
        "forgotten and added again": fetch(8, [(topic, 1, 0)], [(topic, 1)]),
        "out of range": fetch(9, [(topic, 0, 99)]),
        "still out of range": fetch(10),
        "wrong epoch": fetch(5),
        "the epoch after that": fetch(11),
        "unknown session": fetch(1, session_id=session + 12345),
        "session of nobody": fetch(3, session_id=0),
        "closed": fetch(-1),
        "after closing": fetch(12),
        "full, with no session": fetch(-1, everything, session_id=0),
    }
    return told


def test_sessions(brokers):
    brokers.compare(sessions, Wire)


def ends_and_times(wire, topic):
    """ListOffsets: ends, times inside, between, before and after; unordered and equal times; an empty log."""
    wire.create(topic, 2)
    stamps = [[0, 10, 20], [40, 30, 50], [50, 50], [45], [60, 25]]
    for batch in stamps:
        wire.produce(topic, build_batch([Record(i, NOON_MS + at, b"k", b"v") for i, at in enumerate(batch)]))
    times = [-100, 0, 1, 10, 15, 20, 21, 30, 35, 40, 45, 46, 50, 51, 60, 61, 100_000]
    return {
        **{f"time {at}": _offsets(wire, topic, NOON_MS + at) for at in times},
        "time 0 of 1970": _offsets(wire, topic, 0),
        "latest": _offsets(wire, topic, _LATEST),
        "earliest": _offsets(wire, topic, _EARLIEST),
        "max timestamp": _offsets(wire, topic, _MAX_TIMESTAMP),
        "latest committed": _offsets(wire, topic, _LATEST, isolation=1),
        "max timestamp committed": _offsets(wire, topic, _MAX_TIMESTAMP, isolation=1),
        "empty: latest": _offsets(wire, topic, _LATEST, partition=1),
        "empty: earliest": _offsets(wire, topic, _EARLIEST, partition=1),
        "empty: max timestamp": _offsets(wire, topic, _MAX_TIMESTAMP, partition=1),
        "empty: by time": _offsets(wire, topic, NOON_MS, partition=1),
        "local": _offsets(wire, topic, -4),
        "tiered": _offsets(wire, topic, -5),
        "pending upload": _offsets(wire, topic, -6),
        "undefined": _offsets(wire, topic, -9),
        "unknown partition": _offsets(wire, topic, _LATEST, partition=9),
        "unknown topic": _offsets(wire, f"{topic}-none", _LATEST),
        "newer epoch": _offsets(wire, topic, _LATEST, epoch=99),
        "known epoch": _offsets(wire, topic, _LATEST, epoch=0),
        **{f"version {v}": _offsets(wire, topic, NOON_MS + 15, version=v) for v in range(1, 12)},
        **{f"max timestamp in version {v}": _offsets(wire, topic, _MAX_TIMESTAMP, version=v) for v in (1, 6, 7)},
        **{f"local in version {v}": _offsets(wire, topic, -4, version=v) for v in (7, 8)},
        **{f"tiered in version {v}": _offsets(wire, topic, -5, version=v) for v in (8, 9)},
    }


def test_ends_and_times(brokers):
    brokers.compare(ends_and_times, Wire)


def deleted_records(wire, topic):
    """The start moves; what lies before it is out of range; and what times and ends say then."""

    def delete(offset, *, partition=0, name=topic):
        partitions = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=9000)
        return plain(wire.ask(request).topics[0].partitions[0])

    wire.create(topic)
    wire.find_coordinator(topic)  # whose topic is there from here on
    for i in range(4):
        wire.produce(topic, batch_of(b"a", b"b", b"c", timestamp=NOON_MS + 100 * i))
    return {
        "internal": delete(0, name="__consumer_offsets"),
        "internal, an unknown partition": delete(0, name="__consumer_offsets", partition=99),
        "internal, behind the end": delete(1 << 40, name="__consumer_offsets"),
        "in the middle of a batch": delete(4),
        "before the start now": plain(wire.fetch(topic, 3)),
        "at the start now": plain(wire.fetch(topic, 4)),
        "earliest": _offsets(wire, topic, _EARLIEST),
        "by time, before the start": _offsets(wire, topic, NOON_MS),
        "backwards": delete(2),
        "behind the end": delete(13),
        "negative": delete(-2),
        "unknown partition": delete(0, partition=7),
        "unknown topic": delete(0, name=f"{topic}-none"),
        "everything": delete(-1),
        "nothing left": plain(wire.fetch(topic, 12)),
        "nothing left by time": _offsets(wire, topic, NOON_MS),
        "nothing left, the youngest": _offsets(wire, topic, _MAX_TIMESTAMP),
        "ends": [_offsets(wire, topic, end)["offset"] for end in (_EARLIEST, _LATEST)],
        "goes on": plain(wire.produce(topic, batch_of(b"d"))),
        "read": plain(wire.fetch(topic, 12)),
    }


def test_deleted_records(brokers):
    told = brokers.compare(deleted_records, Wire)
    assert told["in the middle of a batch"]["low_watermark"] == 4


def epoch_ends(wire, topic):
    """OffsetForLeaderEpoch: where an epoch ended."""

    def ask(leader_epoch, *, current=-1, partition=0, name=topic, version=None):
        wanted = OffsetForLeaderPartition(partition=partition, leader_epoch=leader_epoch, current_leader_epoch=current)
        topics = [OffsetForLeaderTopic(topic=name, partitions=[wanted])]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        return plain(wire.ask(request, version).topics[0].partitions[0])

    wire.create(topic, 2)
    wire.produce(topic, batch_of(b"a", b"b"))
    return {
        "this epoch": ask(0),
        "a newer one": ask(5),
        "none": ask(-1),
        "empty": ask(0, partition=1),
        "empty, newer": ask(3, partition=1),
        "current epoch": ask(0, current=0),
        "current epoch wrong": ask(0, current=9),
        "unknown partition": ask(0, partition=7),
        "unknown topic": ask(0, name=f"{topic}-none"),
        **{f"version {version}": ask(0, version=version) for version in (2, 3, 4)},
    }


def test_epoch_ends(brokers):
    brokers.compare(epoch_ends, Wire)


def deleted_under_way(wire, topic):
    """A topic goes while a fetch waits for it, and while writers and readers still name it, by name or by id."""
    wire.create(topic)
    wire.produce(topic, batch_of(b"v"))
    topic_id = wire.topic_id(topic)
    partitions = [FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)]
    waiting = FetchRequest(topics=[FetchTopic(topic_id=topic_id, partitions=partitions)], max_wait_ms=8000, min_bytes=1)
    begin = time.monotonic()
    wire.send(waiting, 17)
    with Wire(wire.servers) as other:
        other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=9000))
        other.wait_for(topic, None)
    _, answer = decode_response(FetchResponse, 17, wire.receive())
    waited = time.monotonic() - begin
    # Kafka's broker stops serving a deleted partition a moment after its metadata forgets the topic.
    by_name = wait_until(lambda: plain(wire.fetch(topic, 0))["error_code"], "UNKNOWN_TOPIC_OR_PARTITION")
    waiting.max_wait_ms = 0
    data = [PartitionProduceData(index=0, records=batch_of(b"v"))]
    by_id = ProduceRequest(
        acks=1, timeout_ms=9000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)]
    )
    return {
        "the waiting one": plain(answer),
        "at once": waited < 5,
        "fetch by name": by_name,
        "fetch by id": plain(wire.ask(waiting, 17)),
        "produce by name": plain(wire.produce(topic, batch_of(b"v"))),
        "produce by id": plain(wire.ask(by_id, 13)),
        "offsets": _offsets(wire, topic, _LATEST),
    }


def test_deleted_under_way(brokers):
    brokers.compare(deleted_under_way, Wire)
