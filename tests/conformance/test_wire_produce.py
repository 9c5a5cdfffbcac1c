"""What the broker takes from a producer and what it refuses, byte by byte, beyond what any client lets one send."""

from __future__ import annotations

import struct
import time

import pytest

from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.schema import ZERO_UUID, Uuid
from headrace.records import Codec, ControlType, Record, build_batch, build_marker, crc_of, header_at
from tests.conformance.clients.wire import NOON_MS, Wire, batch_of, error_name, plain

pytestmark = pytest.mark.java

_HOUR_MS = 3_600_000
# Where fields stand in a batch.
_LENGTH, _MAGIC, _CRC, _ATTRIBUTES, _LAST_DELTA, _COUNT = 8, 16, 17, 21, 23, 57


def _patched(batch: bytes, position: int, layout: str, value: int, *, mend_crc: bool = True) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    if mend_crc:
        struct.pack_into(">I", changed, _CRC, crc_of(bytes(changed)))
    return bytes(changed)


def refusals(wire, topic):
    """Broken batches of every kind; each is refused, and the log stays as it was."""
    wire.create(topic)
    good = batch_of(b"one", b"two")
    now = int(time.time() * 1000)

    def send(batch, **options):
        try:
            answer = plain(wire.produce(topic, batch, **options))
        except OSError as error:
            wire.reconnect()
            return str(error)
        return {key: answer[key] for key in ("error_code", "base_offset", "log_start_offset")}

    return {
        "good": send(good),
        "empty": send(b""),
        "garbage": send(b"garbage that is longer than any header of a batch could be, so it is read as one"),
        "cut short": send(good[:-1]),
        "cut in the header": send(good[:30]),
        "trailing bytes": send(good + b"\0\0\0"),
        "trailing piece of a batch": send(good + good[:40]),
        "trailing garbage": send(good + b"\0" * 40),
        "length of no batch": send(_patched(good, _LENGTH, ">i", 20)),
        "crc": send(_patched(good, _CRC, ">I", 7, mend_crc=False)),
        "magic 0": send(_patched(good, _MAGIC, ">b", 0)),
        "magic 1": send(_patched(good, _MAGIC, ">b", 1)),
        "magic 3": send(_patched(good, _MAGIC, ">b", 3)),
        "length too small": send(_patched(good, _LENGTH, ">i", 10)),
        "length negative": send(_patched(good, _LENGTH, ">i", -1)),
        "length too large": send(_patched(good, _LENGTH, ">i", 1 << 20)),
        "count differs from last delta": send(_patched(good, _COUNT, ">i", 1)),
        "count of zero": send(_patched(_patched(good, _COUNT, ">i", 0), _LAST_DELTA, ">i", -1)),
        "unknown codec": send(_patched(good, _ATTRIBUTES, ">h", 7)),
        "control batch": send(
            build_marker(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOON_MS)
        ),
        "transactional, of nobody": send(batch_of(b"x", transactional=True)),
        "too far ahead": send(batch_of(b"x", timestamp=now + _HOUR_MS + 60_000)),
        "a little ahead": send(batch_of(b"x", timestamp=now + _HOUR_MS - 60_000)),
        "no timestamp": send(build_batch([Record(0, -1, b"k", b"v")])),
        "two batches": send(good + good),
        "unknown partition": send(good, partition=5),
        "negative partition": send(good, partition=-1),
        "acks 2": send(good, acks=2),
        "acks 1": send(good, acks=1),
        "old version": send(good, version=3),
        "end": send(good)["base_offset"],
    }


def test_refusals(brokers):
    told = brokers.compare(refusals, Wire)
    assert told["crc"]["error_code"] == "CORRUPT_MESSAGE"
    assert told["too far ahead"]["error_code"] == "INVALID_TIMESTAMP"


def internal_topics(wire, topic):
    """The topics in which the broker keeps its books: nobody else writes there, or takes something out."""
    wire.create(topic)
    wire.find_coordinator(topic)
    told = {}
    for name in ("__consumer_offsets", "__no_internal_topic_of_this_name"):
        told[name, "produced"] = error_name(wire.produce(name, batch_of(b"x")).error_code)
        partitions = [DeleteRecordsPartition(partition_index=0, offset=-1)]
        asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=9000)
        told[name, "deleted"] = error_name(wire.ask(asked).topics[0].partitions[0].error_code)
    return {str(key): value for key, value in told.items()}


def test_internal_topics(brokers):
    told = brokers.compare(internal_topics, Wire)
    assert told[str(("__consumer_offsets", "produced"))] == "INVALID_TOPIC_EXCEPTION"
    assert told[str(("__consumer_offsets", "deleted"))] == "INVALID_TOPIC_EXCEPTION"


def odd_producers(wire, topic):
    """A producer id without an epoch or a sequence, an epoch without an id; and no records at all."""
    wire.create(topic)
    mine = wire.producer_id()

    def send(epoch, sequence, producer_id=mine):
        batch = batch_of(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return error_name(wire.produce(topic, batch).error_code)

    def send_nothing():
        with Wire(wire.servers) as other:
            other.wait_at_most(3)  # Kafka fails in the middle of it and does not answer at all
            try:
                return error_name(other.produce(topic, None).error_code)
            except TimeoutError:
                return "no answer"

    return {
        "an id and no epoch": send(-1, 0),
        "an id and no sequence": send(0, -1),
        "an id, no epoch, no sequence": send(-1, -1),
        "an id and an epoch below": send(-5, 0),
        "a sequence and an epoch of nobody": send(3, 7, producer_id=-1),
        "a good one": send(0, 0),
        "back to no epoch": send(-1, 1),
        "no records": send_nothing(),
        "after all": send(0, 1),
    }


def test_odd_producers(brokers):
    told = brokers.compare(odd_producers, Wire)
    assert told["after all"] == "NONE"


def lying_batches(wire, topic):
    """Batches whose header is sound, and whose records are not what it says."""
    wire.create(topic)
    good = batch_of(b"one", b"two")
    lies = {
        "more records than there are": _patched(_patched(good, _COUNT, ">i", 5), _LAST_DELTA, ">i", 4),
        "compressed, and it is not": _patched(good, _ATTRIBUTES, ">h", Codec.GZIP),
        "the broker's clock": batch_of(b"x", log_append_time=True),
    }
    return {name: plain(wire.produce(topic, batch))["error_code"] for name, batch in lies.items()}


def test_lying_batches(brokers):
    brokers.compare(lying_batches, Wire)


def produce_versions(wire, topic):
    """The whole answer in each version, for what is taken and for what is not."""
    wire.create(topic)
    told = {}
    for version in range(3, 13):
        told[f"{version} good"] = plain(wire.produce(topic, batch_of(b"v"), version=version))
        told[f"{version} bad"] = plain(wire.produce(topic, b"bad", version=version))
        told[f"{version} unknown"] = plain(wire.produce(f"{topic}-none", batch_of(b"v"), version=version))
    for name, topic_id in ("good", wire.topic_id(topic)), ("unknown", Uuid(b"nobody's topicid")), ("zero", ZERO_UUID):
        data = [PartitionProduceData(index=0, records=batch_of(b"v"))]
        request = ProduceRequest(
            acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)]
        )
        told[f"13 {name}"] = plain(wire.ask(request, 13))
    return told


def test_produce_versions(brokers):
    brokers.compare(produce_versions, Wire)


def many_partitions(wire, topic):
    """One request for good and bad partitions of several topics: each is judged by itself."""
    wire.create(topic, 2)
    wire.create(f"{topic}-b", 1)
    data = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=i, records=batch_of(b"v")) for i in indexes],
        )
        for name, indexes in ((topic, (1, 0, 7)), (f"{topic}-none", (0,)), (f"{topic}-b", (0,)))
    ]
    return plain(wire.ask(ProduceRequest(acks=1, timeout_ms=9000, topic_data=data), 12))


def test_many_partitions(brokers):
    brokers.compare(many_partitions, Wire)


def topic_rules(wire, topic):
    """What a topic's settings make of batches: broker's time, keys in a compacted topic, limits, codecs."""
    settings = {
        "appended": {"message.timestamp.type": "LogAppendTime"},
        "compacted": {"cleanup.policy": "compact"},
        "small": {"max.message.bytes": "1000"},
        "recent": {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"},
        "replicated": {"min.insync.replicas": "2"},
        "policyless": {"cleanup.policy": ""},
        "segmented": {"internal.segment.bytes": "500", "max.message.bytes": "900"},
    }
    for name, configs in settings.items():
        wire.create(f"{topic}-{name}", configs=configs)

    def send(name, batch, **options):
        answer = plain(wire.produce(f"{topic}-{name}", batch, **options))
        return {key: answer[key] for key in ("error_code", "base_offset", "log_append_time_ms", "record_errors")}

    def sized(size):
        return batch_of(b"v" * (size - len(batch_of(b"v" * size)) + size))

    assert len(sized(1000)) == 1000
    now = int(time.time() * 1000)
    two_keys = build_batch(
        [Record(0, NOON_MS, b"k", b"v"), Record(1, NOON_MS, None, b"v"), Record(2, NOON_MS, None, b"v")]
    )
    told = {
        "broker's time": send("appended", batch_of(b"a", b"b")),
        "broker's time, far ahead": send("appended", batch_of(b"a", timestamp=now + 10 * _HOUR_MS)),
        "no key": send("compacted", batch_of(b"v", key=None)),
        "some without key": send("compacted", two_keys),
        "some without key, compressed": send("compacted", batch_of(b"v", key=None, codec=Codec.ZSTD)),
        "tombstone": send("compacted", batch_of(None)),
        "empty key": send("compacted", batch_of(b"v", key=b"")),
        "at the limit": send("small", sized(1000)),
        "over the limit": send("small", sized(1001)),
        "two under the limit, together over": send("small", sized(900) + sized(900)),
        "as large as a segment": send("segmented", sized(500)),
        "larger than a segment": send("segmented", sized(501)),
        "larger than that and the limit": send("segmented", sized(901)),
        "too old": send("recent", batch_of(b"v")),
        "recent": send("recent", batch_of(b"v", timestamp=now)),
        "too young": send("recent", batch_of(b"v", timestamp=now + 120_000)),
        "not enough replicas": send("replicated", batch_of(b"v")),
        "not enough replicas, acks 1": send("replicated", batch_of(b"v"), acks=1),
        "no policy": send("policyless", batch_of(b"v", key=None)),
    }
    (stored,) = plain(wire.fetch(f"{topic}-appended", 0).records)[:1]
    return told | {"stored": stored}


def test_topic_rules(brokers):
    brokers.compare(topic_rules, Wire)


def codecs(wire, topic):
    """Every codec is kept as the producer made it, byte by byte; zstd needs version 7."""
    wire.create(topic)
    told = {}
    for codec in Codec:
        batch = batch_of(b"value " * 50, b"value " * 50, codec=codec)
        offset = wire.produce(topic, batch).base_offset
        stored = bytes(wire.fetch(topic, offset).records)
        told[codec.name] = plain(stored), stored[_CRC:] == batch[_CRC:], header_at(stored).codec == codec
    old = wire.produce(topic, batch_of(b"v", codec=Codec.ZSTD), version=6)
    return told | {"zstd in version 6": error_name(old.error_code)}


def test_codecs(brokers):
    brokers.compare(codecs, Wire)


def another_codec(wire, topic):
    """A topic that names a codec, and a producer that used none."""
    wire.create(topic, configs={"compression.type": "gzip"})
    told = wire.produce(topic, batch_of(b"value " * 100))
    return {
        "error": error_name(told.error_code),
        "stored": Codec(header_at(bytes(wire.fetch(topic, 0).records)).codec).name,
    }


def test_another_codec(brokers):
    brokers.compare(another_codec, Wire)


def idempotence(wire, topic):
    """A producer's numbers: in order, repeated, skipped, of an old epoch, of another producer."""
    wire.create(topic, 2)
    first, second = wire.producer_id(), wire.producer_id()

    def send(sequence, *values, producer=first, epoch=0, partition=0, again=1):
        batch = batch_of(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        answers = [plain(wire.produce(topic, batch, partition=partition)) for _ in range(again)]
        return [(answer["error_code"], answer["base_offset"]) for answer in answers]

    told = {
        "given": second > first,
        "first": send(0, b"a", b"b"),
        "next": send(2, b"c"),
        "repeated": send(2, b"c", again=3),
        "an older one repeated": send(0, b"a", b"b"),
        "skipped": send(9, b"x"),
        "goes on after that": send(3, b"d"),
        "begins high in another partition": send(5, b"e", partition=1),
        "overlapping": send(2, b"c", b"d", b"e"),
        "newer epoch": send(0, b"n", epoch=1),
        "newer epoch not from 0": send(5, b"n", epoch=2),
        "old epoch": send(4, b"o", epoch=0),
        "unknown producer": send(0, b"u", producer=99_999_999),
        "unknown producer not from 0": send(7, b"u", producer=88_888_888),
        "another producer": send(0, b"s", producer=second),
        "no sequence": send(-1, b"s", producer=second),
    }
    for i in range(6):
        told[f"six: {i}"] = send(1 + i, b"s%d" % i, producer=second)
    # Kafka remembers the last five batches of a producer.
    told["five back"] = send(2, b"s1", producer=second)
    told["six back"] = send(1, b"s0", producer=second)
    return told


def test_idempotence(brokers):
    told = brokers.compare(idempotence, Wire)
    assert told["repeated"] == [("NONE", 2)] * 3


def without_answer(wire, topic):
    """acks=0: nothing is answered, not even an error, and the next request's answer comes first."""
    wire.create(topic)

    def send(batch, name=topic):
        data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])]
        wire.send(ProduceRequest(acks=0, timeout_ms=9000, topic_data=data), 12)

    send(batch_of(b"a"))
    send(batch_of(b"b"))
    after = plain(wire.produce(topic, batch_of(b"c")))
    # An error cannot be told, so the connection is closed for the client to notice.
    send(b"bad")
    try:
        closed = error_name(wire.metadata(topic).error_code)
    except ConnectionError as error:
        closed = str(error)
    wire.reconnect()
    return {"after": after["base_offset"], "an error": closed}


def test_without_answer(brokers):
    brokers.compare(without_answer, Wire)
