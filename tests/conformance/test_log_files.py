"""Our log and Kafka's are the same files: Kafka's tool reads ours, we read Kafka's, and a broker takes them back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from headrace.model import TopicPartition
from headrace.records import Codec, ControlType, Header, Record, control_type_of, records_of
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import DirectoryInUse
from headrace.storage.indexes import OffsetIndex, TimeIndex, TransactionIndex
from headrace.storage.producer_snapshot import decode_snapshot, encode_snapshot
from headrace.storage.reading import first_at_or_after, youngest
from headrace.testing import FakeClock
from peers.java import PeerError
from peers.kafka.broker import running_kafka
from peers.kafka.tools import check_index_sanity, check_indexes, dump_files
from tests.small_logs import EPOCH_MS, append, batches_from, committed_from, end_transaction, records_from

pytestmark = pytest.mark.java

SMALL = {"segment_bytes": 4096, "index_interval_bytes": 512}
COMPACT = {**SMALL, "cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.0}
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


# --- ours, read by Kafka's dump tool


@dataclass
class OursWritten:
    """A closed directory of ours, what was read from it before it was closed, and what the tool says of its files."""

    path: Path
    records: dict[str, list[Record]] = field(default_factory=dict)
    kinds: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # markers by offset
    snapshots: dict[str, bytes] = field(default_factory=dict)
    aborted: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    dumps: dict = field(default_factory=dict)

    def files(self, topic: str, suffix: str) -> list[Path]:
        return sorted((self.path / f"{topic}-0").glob(f"*{suffix}"))

    def dumped(self, topic: str, suffix: str = ".log") -> list:
        return [self.dumps[path] for path in self.files(topic, suffix)]


def _varied(first: int, count: int) -> list[Record]:
    headers = [
        (),
        (Header("trace", b"\x00\xff"),),
        (Header("same", b"first"), Header("same", b"second"), Header("null", None), Header("empty", b"")),
        (Header("größe", b"1"),),
    ]
    return [
        Record(
            n,
            EPOCH_MS + i * 1000 - (10_000 if i % 4 == 3 else 0),
            None if i % 5 == 0 else b"key-%d" % (i % 7),
            None if i % 11 == 3 else b"" if i % 13 == 5 else b"value-%d " % i * 8,
            headers[i % 4],
        )
        for n, i in enumerate(range(first, first + count))
    ]


def _plain(first: int, count: int, what: str = "value", size: int = 6) -> list[Record]:
    return [
        Record(n, EPOCH_MS + i * 1000, b"key-%d" % i, f"{what}-{i} ".encode() * size)
        for n, i in enumerate(range(first, first + count))
    ]


def _write_idempotent(log) -> None:
    sequences = {11: 0, 12: 2**31 - 7}  # the second one wraps around on its way
    for turn in range(24):
        producer_id = 11 + turn % 2
        sequence = sequences[producer_id]
        append(log, _plain(turn * 5, 5), producer_id=producer_id, producer_epoch=3, base_sequence=sequence)
        sequences[producer_id] = (sequence + 5) % 2**31


def _write_transactions(log) -> None:
    sequences = {21: 0, 22: 0}

    def some(producer_id: int, what: str) -> None:
        sequence = sequences[producer_id]
        append(
            log,
            _plain(log.end_offset, 3, what),
            producer_id=producer_id,
            producer_epoch=1,
            base_sequence=sequence,
            transactional=True,
        )
        sequences[producer_id] += 3

    for turn in range(8):
        some(21, f"committed {turn}")
        append(log, _plain(log.end_offset, 2, f"outside {turn}"))
        some(22, f"aborted {turn}")
        some(21, f"committed late {turn}")
        end_transaction(log, ControlType.ABORT, 22, producer_epoch=1, coordinator_epoch=5)
        end_transaction(log, ControlType.COMMIT, 21, producer_epoch=1, coordinator_epoch=5)
    some(22, "left open")


def _write_compacted(directory, log) -> None:
    for i in range(60):
        records = [
            Record(
                n,
                EPOCH_MS + i * 1000 + n,
                b"key-%d" % ((i * 3 + n) % 20),
                None if (i * 3 + n) % 20 == 7 else b"value-%d.%d " % (i, n) * 8,
                (Header("turn", b"%d" % i),),
            )
            for n in range(5)
        ]
        append(log, records, codec=list(Codec)[i % 5])
    for what in (ControlType.ABORT, ControlType.COMMIT):
        producer_id = 30 + what
        for sequence in (0, 3):
            append(
                log,
                _plain(100, 3, what.name),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
        end_transaction(log, what, producer_id)
    log.roll(EPOCH_MS)
    append(log, _plain(100, 2, "behind"))
    assert directory.compact()


@pytest.fixture(scope="module")
def ours(kafka_jars, tmp_path_factory) -> OursWritten:
    written = OursWritten(tmp_path_factory.mktemp("ours") / "log")
    clock = FakeClock(EPOCH_MS + 100_000_000)
    with LogDirectory.open(str(written.path), clock=clock) as directory:

        def create(topic: str, **config: object):
            return directory.create(TopicPartition(topic, 0), LogConfig(**config))

        for codec in Codec:
            log = create(f"codec-{codec.name.lower()}")
            for first in range(0, 120, 30):
                append(log, _varied(first, 30), codec=codec)
        log = create("segments", **SMALL)
        for first in range(0, 400, 4):
            append(log, _plain(first, 4), epoch=first // 100)
        _write_idempotent(create("idempotent", **SMALL))
        _write_transactions(create("transactions", **SMALL))
        _write_compacted(directory, create("compacted", **COMPACT))
        log = create("append-time", message_timestamp_type="LogAppendTime")
        for first in range(0, 40, 10):
            append(log, _plain(first, 10), codec=Codec.ZSTD, now_ms=EPOCH_MS + 77_000 + first)
        for partition, log in directory.logs.items():
            topic = partition.topic
            written.records[topic] = records_from(log)
            written.kinds[topic] = [
                (header.base_offset, control_type_of(batch)[0].name)
                for header, batch in batches_from(log)
                if header.is_control
            ]
            written.snapshots[topic] = encode_snapshot(log.producers)
            written.aborted[topic] = [tuple(e) for s in log.segments for e in s.indexes.transactions.entries]
    everything = [p for folder in written.path.iterdir() if folder.is_dir() for p in sorted(folder.iterdir())]
    written.dumps = dump_files(path for path in everything if path.suffix in SUFFIXES)
    return written


def test_kafkas_tool_finds_no_fault_with_any_file_of_ours(ours):
    assert {path: dump.complaints for path, dump in ours.dumps.items() if dump.complaints} == {}
    assert {path.parent.name for path, dump in ours.dumps.items() if dump.gaps} == {"compacted-0"}
    assert {path.suffix for path in ours.dumps} == set(SUFFIXES)
    for topic in ("segments", "idempotent", "transactions"):
        assert len(ours.files(topic, ".log")) > 2, topic


@pytest.mark.parametrize(
    "topic",
    [*(f"codec-{c.name.lower()}" for c in Codec), "segments", "idempotent", "transactions", "compacted", "append-time"],
)
def test_kafkas_tool_reads_the_records_that_we_wrote(ours, topic):
    told = [record for dump in ours.dumped(topic) for record in dump.records]
    assert [(r.offset, r.end_transaction) for r in told if r.end_transaction] == ours.kinds[topic]
    assert [
        (r.offset, r.timestamp_ms, r.key, r.value, r.key_size_bytes, r.value_size_bytes, r.header_keys)
        for r in told
        if not r.end_transaction
    ] == [
        (
            r.offset,
            r.timestamp,
            _text(r.key),
            _text(r.value),
            _size(r.key),
            _size(r.value),
            tuple(h.key for h in r.headers),
        )
        for r in ours.records[topic]
    ]
    assert told


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def test_kafkas_tool_sees_codecs_timestamp_types_epochs_and_sequences(ours):
    for codec in Codec:
        (dump,) = ours.dumped(f"codec-{codec.name.lower()}")
        assert {batch.codec for batch in dump.batches} == {codec.name.lower()}
    (stamped,) = ours.dumped("append-time")
    assert [(b.timestamp_type, b.max_timestamp_ms) for b in stamped.batches] == [
        ("LogAppendTime", EPOCH_MS + 77_000 + first) for first in range(0, 40, 10)
    ]
    assert {r.timestamp_ms for r in stamped.records} == {EPOCH_MS + 77_000 + first for first in range(0, 40, 10)}
    epochs = [batch.leader_epoch for dump in ours.dumped("segments") for batch in dump.batches]
    assert epochs == [first // 100 for first in range(0, 400, 4)]
    assert (ours.path / "segments-0" / "leader-epoch-checkpoint").read_text() == "0\n4\n0 0\n1 100\n2 200\n3 300\n"
    sequences = [r.sequence for d in ours.dumped("idempotent") for r in d.records if (r.offset // 5) % 2]
    assert sequences[5:9] == [2**31 - 2, 2**31 - 1, 0, 1], "sequences wrap where Kafka's do"


def test_kafka_accepts_our_indexes(ours):
    indexes = [path for path in ours.dumps if path.suffix in (".index", ".timeindex")]
    entries = sum(path.stat().st_size for path in indexes)
    assert entries > 100
    assert {p: d.complaints for p, d in check_indexes(indexes).items() if d.complaints} == {}
    # The sanity check is what a starting broker runs; it ends with an error if one fails.
    assert {p: d.complaints for p, d in check_index_sanity(indexes).items() if d.complaints} == {}


def _numbers(line: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+): (-?\d+)", line)}


def test_our_aborted_transactions_read_the_same_to_kafka(ours):
    told = [_numbers(line) for dump in ours.dumped("transactions", ".txnindex") for line in dump.text.splitlines()]
    assert [(e["producerId"], e["firstOffset"], e["lastOffset"], e["lastStableOffset"]) for e in told] == ours.aborted[
        "transactions"
    ]
    assert len(told) == 8


@pytest.mark.parametrize("topic", ["idempotent", "transactions", "compacted"])
def test_our_snapshots_read_the_same_to_kafka(ours, topic):
    newest = ours.dumped(topic, ".snapshot")[-1]
    told = {e["producerId"]: e for e in (_numbers(line) for line in newest.text.splitlines())}
    state = decode_snapshot(ours.snapshots[topic])
    assert set(told) == set(state.producers)
    assert topic != "idempotent" or max(len(producer.batches) for producer in state.producers.values()) == 5
    for producer_id, producer in state.producers.items():
        start = -1 if producer.transaction_start is None else producer.transaction_start
        assert told[producer_id]["producerEpoch"] == producer.epoch
        assert told[producer_id]["coordinatorEpoch"] == producer.coordinator_epoch
        assert told[producer_id]["lastTimestamp"] == producer.last_timestamp
        assert told[producer_id]["lastSequence"] == producer.last_sequence
        assert told[producer_id]["lastOffset"] == producer.last_offset
        first_offset = re.search(
            rf"producerId: {producer_id} .*currentTxnFirstOffset: \S*?(-?\d+|empty|None)", newest.text
        )
        assert first_offset[1] in ((str(start),) if start >= 0 else ("-1", "empty", "None"))


def test_our_compaction_leaves_the_latest_of_every_key_and_says_so_in_kafkas_words(ours):
    records = ours.records["compacted"]
    by_key = {record.key: record.offset for record in records}
    active = int(ours.files("compacted", ".log")[-1].stem)
    assert all(by_key[r.key] == r.offset or by_key[r.key] >= active for r in records if r.offset < active)
    batches = [batch for dump in ours.dumped("compacted") for batch in dump.batches]
    tombstones = [record for record in records if record.value is None]
    assert tombstones
    for tombstone in tombstones:
        (holder,) = (b for b in batches if b.base_offset <= tombstone.offset <= b.last_offset)
        assert holder.delete_horizon_ms == EPOCH_MS + 100_000_000 + LogConfig().delete_retention_ms
    assert not any((r.value or b"").startswith(b"ABORT") for r in records), "aborted records are compacted away"


# --- Kafka's, read by us


def _config_for(partition: TopicPartition) -> LogConfig:
    match partition.topic:
        case "compacted":
            return LogConfig(**COMPACT)
        case "segments" | "idempotent":
            return LogConfig(**SMALL)
        case "append-time":
            return LogConfig(message_timestamp_type="LogAppendTime")
        case _:
            return LogConfig()


@pytest.fixture(scope="module")
def kafkas(kafka_written, tmp_path_factory):
    """A copy of what Kafka wrote, opened by us; nobody changes it."""
    copy = kafka_written.copy_to(tmp_path_factory.mktemp("kafkas") / "log")
    directory = LogDirectory.open(str(copy.log_dir), config_for=_config_for)
    yield directory
    directory.abandon()


def _told(records: list[Record]) -> list[tuple]:
    return [(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in records]


def _expected(records, partition: int) -> list[tuple]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records if r.partition == partition]


def test_we_read_every_record_that_kafka_serves(kafkas, kafka_written):
    for topic in kafka_written.topics.values():
        for partition in range(topic.partitions):
            log = kafkas.log(TopicPartition(topic.name, partition))
            assert _told(committed_from(log)) == _expected(topic.records, partition), log
            # In small reads a batch at a time, transactions have to be found across them.
            assert committed_from(log, max_bytes=1) == committed_from(log), log


def test_we_read_the_aborted_records_too_when_asked_for_all(kafkas, kafka_written):
    topic = kafka_written.topics["transactions"]
    for partition in range(topic.partitions):
        assert _told(records_from(kafkas.log(TopicPartition("transactions", partition)))) == _expected(
            topic.written, partition
        )
    assert topic.gone


def test_kafkas_directory_is_taken_as_it_is(kafkas, kafka_written):
    assert len(kafkas.logs) >= 17
    assert [r for r in kafkas.recoveries if r.scanned_bytes or not r.is_clean] == [], "nothing was scanned or rebuilt"
    for topic in kafka_written.topics:
        folder = kafka_written.partition_dir(topic)
        for path in (Path(kafkas.path) / f"{topic}-0").glob("*.*index"):
            assert path.read_bytes() == (folder / path.name).read_bytes(), path


def test_kafkas_indexes_say_what_ours_would(kafka_written):
    """Encoded again they are the same bytes, and an index that we build of the same segment has the same entries."""
    seen = 0
    for topic in kafka_written.topics:
        for path in kafka_written.log_files(topic, suffix="index"):
            data = path.read_bytes()
            match path.suffix:
                case ".index":
                    decoded = OffsetIndex.decode(int(path.stem), data)
                    assert decoded.is_sane(path.with_suffix(".log").stat().st_size), path
                case ".timeindex":
                    decoded = TimeIndex.decode(int(path.stem), data)
                case _:
                    decoded = TransactionIndex.decode(data)
            assert decoded.encode() == data, path
            seen += len(decoded)
    assert seen > 100


def test_the_indexes_that_we_build_of_kafkas_segments_are_kafkas(kafka_written, tmp_path):
    copy = kafka_written.copy_to(tmp_path / "log")
    before = {}
    for topic in ("segments", "idempotent", "transactions", "codec-lz4"):
        for path in copy.log_files(topic, suffix="index"):
            before[path] = path.read_bytes()
            path.unlink()
    LogDirectory.open(str(copy.log_dir), config_for=_config_for).close()
    assert {p: p.read_bytes().hex() for p in before if before[p]} == {p: d.hex() for p, d in before.items() if d}
    assert sum(map(len, before.values())) > 1000


def test_kafkas_snapshots_are_our_state(kafkas, kafka_written):
    for topic in ("idempotent", "transactions"):
        newest = kafka_written.log_files(topic, suffix=".snapshot")[-1].read_bytes()
        state = decode_snapshot(newest)
        assert len(state) == 2
        assert encode_snapshot(state) == newest
        log = kafkas.log(TopicPartition(topic, 0))
        assert sorted(map(str, (p.facts() for p in log.producers.producers.values()))) == sorted(
            map(str, (p.facts() for p in state.producers.values()))
        )


def test_replaying_kafkas_log_gives_kafkas_snapshot(kafka_written, tmp_path):
    copy = kafka_written.copy_to(tmp_path / "log")
    for topic in ("idempotent", "transactions"):
        for path in copy.log_files(topic, suffix=".snapshot"):
            path.unlink()
    directory = LogDirectory.open(str(copy.log_dir), config_for=_config_for)
    for topic in ("idempotent", "transactions"):
        replayed = directory.log(TopicPartition(topic, 0)).producers
        state = decode_snapshot(kafka_written.log_files(topic, suffix=".snapshot")[-1].read_bytes())
        assert set(replayed.producers) == set(state.producers)
        for producer_id, producer in state.producers.items():
            ours = decode_snapshot(encode_snapshot(replayed)).producers[producer_id]
            while len(ours.batches) > 1:  # those that Kafka's own files do not keep
                ours.batches.popleft()
            assert ours.facts() == producer.facts()
    directory.abandon()


def test_look_up_by_time_agrees_with_looking_at_every_record(kafkas, kafka_written):
    for topic in kafka_written.topics:
        log = kafkas.log(TopicPartition(topic, 0))
        records = [r for header, batch in batches_from(log) for r in records_of(batch)]
        stamps = sorted({r.timestamp + d for r in records for d in (-1, 0, 1)})
        for stamp in stamps[:: max(len(stamps) // 150, 1)]:
            brute = next(((r.offset, r.timestamp) for r in records if r.timestamp >= stamp), None)
            found = first_at_or_after(log, stamp)
            assert (found and (found.offset, found.timestamp)) == brute, (topic, stamp)
        best = max(records, key=lambda r: (r.timestamp, -r.offset))
        assert youngest(log)[:2] == (best.offset, best.timestamp), topic


def test_a_crash_of_kafka_loses_us_nothing(kafka_written, tmp_path):
    """Without the marker of a clean shutdown everything is scanned, and found whole."""
    copy = kafka_written.copy_to(tmp_path / "log")
    (copy.log_dir / ".kafka_cleanshutdown").unlink()
    (copy.log_dir / "recovery-point-offset-checkpoint").unlink()
    directory = LogDirectory.open(str(copy.log_dir), config_for=_config_for)
    assert [r for r in directory.recoveries if not r.is_clean] == []
    for recovery in directory.recoveries:
        folder = copy.log_dir / str(recovery.topic_partition)
        assert recovery.scanned_bytes == sum(path.stat().st_size for path in folder.glob("*.log"))
    for topic in kafka_written.topics.values():
        assert _told(committed_from(directory.log(TopicPartition(topic.name, 0)))) == _expected(topic.records, 0)
    directory.abandon()


# --- the way back: Kafka's, written on by us, served by Kafka


def _consume(
    servers: str, places: list[tuple[str, int]], isolation: str = "read_committed"
) -> dict[tuple, list[tuple]]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "way-back",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[tuple, list[tuple]] = {place: [] for place in places}
    unfinished = set(places)
    try:
        consumer.assign([KafkaPartition(*place, OFFSET_BEGINNING) for place in places])
        while unfinished:
            message = consumer.poll(30)
            assert message is not None, f"Kafka sent nothing for 30 s; not at their ends: {sorted(unfinished)}"
            place = (message.topic(), message.partition())
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                unfinished.discard(place)
                continue
            headers = tuple(message.headers() or ())
            found[place].append((message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    finally:
        consumer.close()
    return found


def _produce(servers: str, places: list[tuple[str, int]], value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for topic, partition in places:
        producer.produce(topic, value, key=b"last", partition=partition)
    assert producer.flush(30) == 0


def test_kafka_serves_what_we_appended_and_compacted_in_its_directory(kafka_written, tmp_path):
    copy = kafka_written.copy_to(tmp_path / "log")
    expected: dict[tuple, list[tuple]] = {}
    with LogDirectory.open(str(copy.log_dir), config_for=_config_for) as directory:
        for topic in kafka_written.topics.values():
            for partition in range(topic.partitions):
                log = directory.log(TopicPartition(topic.name, partition))
                before = committed_from(log)
                _write_on(log, log.epochs.latest)
                if topic.name == "compacted":
                    log.roll(EPOCH_MS)
                    append(log, _varied(901, 4), epoch=log.epochs.latest)
                    size = log.size_bytes
                    assert directory.compact()[log.topic_partition].bytes_after < size
                    latest = {r.key: r.offset for r in records_from(log)}
                    assert len(committed_from(log)) < len(before) + 9
                    assert set(latest) >= {r.key for r in before}
                else:
                    assert committed_from(log)[: len(before)] == before
                expected[topic.name, partition] = _told(committed_from(log))
                assert any((r[3] or b"").startswith(b"ours committed") for r in expected[topic.name, partition])

    properties = {"log.cleaner.enable": "false"}
    with running_kafka(tmp_path, properties=properties) as kafka:
        assert _consume(kafka.bootstrap_servers, list(expected)) == expected
        with pytest.raises(DirectoryInUse):  # Kafka's lock keeps us out
            LogDirectory.open(str(copy.log_dir))
        _produce(kafka.bootstrap_servers, list(expected), b"kafka again")
        again = _consume(kafka.bootstrap_servers, list(expected))
        assert {place: records[:-1] for place, records in again.items()} == expected
        assert {records[-1][3] for records in again.values()} == {b"kafka again"}
    said = kafka.output.read_text()
    assert "Skipping recovery of" in said, "the clean shutdown that we left is one to Kafka"
    about_logs = re.compile(
        r" (?:WARN|ERROR|FATAL) .*(?:storage\.internals|kafka\.log\.|kafka\.server\.ReplicaManager)"
    )
    complaints = [line for line in said.splitlines() if about_logs.search(line) and "is deprecated" not in line]
    assert complaints == [], "no index, snapshot or checkpoint of ours had to be mended"

    with LogDirectory.open(str(copy.log_dir), config_for=_config_for) as directory:
        assert [r for r in directory.recoveries if r.scanned_bytes or not r.is_clean] == []
        for (topic, partition), records in again.items():
            assert _told(committed_from(directory.log(TopicPartition(topic, partition)))) == records


def test_our_lock_keeps_kafka_out(kafka_written, tmp_path):
    copy = kafka_written.copy_to(tmp_path / "log")
    with LogDirectory.open(str(copy.log_dir), config_for=_config_for):
        with pytest.raises(PeerError, match="status 1 while starting"), running_kafka(tmp_path):
            pass
        assert f"Failed to acquire lock on file .lock in {copy.log_dir}." in (tmp_path / "kafka.log").read_text()


def test_kafka_recovers_what_a_crash_of_ours_left(kafka_written, tmp_path):
    """No marker of a clean shutdown, indexes in memory only, and a torn batch at the end."""
    copy = kafka_written.copy_to(tmp_path / "log")
    directory = LogDirectory.open(str(copy.log_dir), config_for=_config_for)
    expected = {}
    for topic, partition in (("segments", 0), ("transactions", 0), ("transactions", 1), ("codec-snappy", 1)):
        log = directory.log(TopicPartition(topic, partition))
        for _ in range(3):
            append(log, _plain(log.end_offset, 5, "ours"), codec=Codec.ZSTD, epoch=log.epochs.latest)
        log.flush()
        expected[topic, partition] = _told(committed_from(log))
        with open(log.segments[-1].path, "ab") as file:
            file.write(log.read(log.end_offset - 1, 1).slice.read()[:-9])
    directory.abandon()

    with running_kafka(tmp_path) as kafka:
        assert _consume(kafka.bootstrap_servers, list(expected)) == expected


def _write_on(log, epoch: int) -> None:
    """Plain records, a transaction that is committed and one that is not, in the epoch that Kafka left."""
    records = [r._replace(key=r.key or b"none") for r in _varied(900, 6)]
    append(log, records, codec=Codec.LZ4, epoch=epoch, now_ms=EPOCH_MS + 5_000_000)
    for kind, what, codec in ((ControlType.ABORT, "ours aborted", 1), (ControlType.COMMIT, "ours committed", 2)):
        append(
            log,
            _plain(950, 3, what),
            codec=codec,
            epoch=epoch,
            producer_id=9000 + kind,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
            now_ms=EPOCH_MS + 5_000_000,
        )
        end_transaction(log, kind, 9000 + kind, now_ms=EPOCH_MS + 5_000_000)
