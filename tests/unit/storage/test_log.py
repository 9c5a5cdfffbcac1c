"""One partition: append, refuse, roll, read, cut."""

import threading

import pytest

from headrace.records import (
    BatchTooLarge,
    Codec,
    ControlType,
    CorruptBatch,
    InvalidRecord,
    Record,
    build_batch,
    crc_of,
    header_at,
    records_of,
)
from headrace.storage.atomic_file import make_folder
from headrace.storage.errors import OffsetOutOfRange, OutOfOrderSequence, StaleCoordinatorEpoch, StaleProducerEpoch
from headrace.testing import MemoryFileSystem
from tests.small_logs import (
    EPOCH_MS,
    FOLDER,
    append,
    batches_from,
    committed_from,
    end_transaction,
    new_log,
    open_small_log,
    records_from,
    some_records,
)


@pytest.fixture
def filesystem():
    return MemoryFileSystem()


def test_records_come_back_with_their_offsets(filesystem):
    log = new_log(filesystem)
    assert append(log, some_records(3))[:2] == (0, 2)
    assert append(log, some_records(2, first=3), codec=Codec.SNAPPY)[:2] == (3, 4)
    expected = [record._replace(offset=n) for n, record in enumerate(some_records(5))]
    assert records_from(log) == expected
    assert [record.offset for record in records_from(log, 4)] == [3, 4], "the whole batch that holds the offset"
    assert (log.start_offset, log.end_offset, log.last_stable_offset) == (0, 5, 5)


def test_several_batches_are_appended_all_or_none(filesystem):
    log = new_log(filesystem)
    good = build_batch(some_records(2))
    assert log.append(good + good + good, now_ms=EPOCH_MS)[:2] == (0, 5)
    wrong = bytearray(good)
    wrong[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append(good + wrong, now_ms=EPOCH_MS)
    assert log.end_offset == 6
    assert [header.base_offset for header, _ in batches_from(log)] == [0, 2, 4]


def test_an_append_rewrites_offset_and_epoch_and_nothing_else(filesystem):
    log = new_log(filesystem)
    append(log, some_records(7))
    sent = build_batch(some_records(2), codec=Codec.ZSTD)
    log.append(sent, now_ms=EPOCH_MS, leader_epoch=9)
    header, stored = list(batches_from(log))[-1]
    assert (header.base_offset, header.leader_epoch) == (7, 9)
    assert stored[16:] == sent[16:]
    assert log.epochs.entries == ((0, 0), (9, 7))


def test_log_append_time_stamps_the_batch_and_mends_its_checksum(filesystem):
    log = new_log(filesystem, message_timestamp_type="LogAppendTime")
    info = append(log, some_records(3), codec=Codec.LZ4, now_ms=EPOCH_MS + 123_456)
    assert info.append_time_ms == EPOCH_MS + 123_456
    ((header, batch),) = batches_from(log)
    assert header.is_log_append_time
    assert header.max_timestamp == EPOCH_MS + 123_456
    assert header.crc == crc_of(batch)
    assert [(r.timestamp, r.value) for r in records_of(batch)] == [
        (EPOCH_MS + 123_456, r.value) for r in some_records(3)
    ]
    assert append(new_log(MemoryFileSystem()), some_records(1)).append_time_ms == -1


def test_a_compacted_topic_refuses_records_without_a_key(filesystem):
    log = new_log(filesystem, cleanup_policy=frozenset({"compact"}))
    with pytest.raises(InvalidRecord, match="has no key"):
        append(log, [Record(0, EPOCH_MS, None, b"v")])
    assert log.end_offset == 0
    append(log, [Record(0, EPOCH_MS, b"k", None)])


def test_a_batch_over_the_limit_is_refused(filesystem):
    log = new_log(filesystem, max_message_bytes=200)
    append(log, some_records(1))
    with pytest.raises(BatchTooLarge):
        append(log, some_records(1, size=300))
    log.config = type(log.config)(max_message_bytes=1000)
    assert append(log, some_records(1, size=300)).base_offset == 1, "the new limit holds at once"


# --- producers


def test_a_duplicate_is_answered_with_its_first_place_and_not_appended(filesystem):
    log = new_log(filesystem)
    append(log, some_records(2))
    producer = {"producer_id": 5, "producer_epoch": 0}
    first = append(log, some_records(3), **producer, base_sequence=0)
    append(log, some_records(1), **producer, base_sequence=3)
    again = append(log, some_records(3), **producer, base_sequence=0)
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (2, 4, True)
    assert (first.base_offset, first.is_duplicate) == (2, False)
    assert log.end_offset == 6
    with pytest.raises(OutOfOrderSequence):
        append(log, some_records(1), **producer, base_sequence=9)


def test_batches_of_one_producer_in_one_append_follow_each_other(filesystem):
    log = new_log(filesystem)

    def numbered(sequence):
        return build_batch(some_records(2), producer_id=5, producer_epoch=0, base_sequence=sequence)

    assert log.append(numbered(0) + numbered(2), now_ms=EPOCH_MS)[:2] == (0, 3)
    for wrong in (numbered(4) + numbered(8), numbered(2) + numbered(4)):
        # The second begins with what is there already: acknowledging it as a duplicate would lose its second batch.
        with pytest.raises(OutOfOrderSequence):
            log.append(wrong, now_ms=EPOCH_MS)
        assert log.end_offset == 4
    assert log.append(numbered(4), now_ms=EPOCH_MS).base_offset == 4


def test_duplicates_are_known_after_a_restart(filesystem):
    log = new_log(filesystem)
    producer = {"producer_id": 5, "producer_epoch": 2}
    for n in range(3):
        append(log, some_records(2), **producer, base_sequence=2 * n)
    log.close()
    log, _ = open_small_log(filesystem, was_clean=True)
    assert append(log, some_records(2), **producer, base_sequence=4)[:2] == (4, 5)
    assert log.end_offset == 6
    with pytest.raises(StaleProducerEpoch):
        append(log, some_records(2), producer_id=5, producer_epoch=1, base_sequence=0)


def test_readers_of_committed_records_stop_at_the_oldest_open_transaction(filesystem):
    log = new_log(filesystem)
    append(log, some_records(2))
    for pid in (1, 2):
        append(
            log, some_records(2, first=10 * pid), producer_id=pid, producer_epoch=0, base_sequence=0, transactional=True
        )
    append(log, some_records(1, first=90))
    assert log.last_stable_offset == 2
    assert [r.offset for r in committed_from(log)] == [0, 1]
    assert log.read(2, 1000, committed=True).slice is None
    assert len(records_from(log)) == 7
    end_transaction(log, ControlType.ABORT, 2)
    assert log.last_stable_offset == 2
    end_transaction(log, ControlType.COMMIT, 1)
    assert log.last_stable_offset == log.end_offset == 9
    assert [r.offset for r in committed_from(log)] == [0, 1, 2, 3, 6]
    (aborted,) = log.read(0, 10**6, committed=True).aborted
    assert aborted == (2, 4, 7, 2)
    assert log.read(0, 10**6).aborted == ()


def test_the_last_stable_offset_is_never_before_the_start(filesystem):
    """A reader of committed records that wants the end would be sent where nothing is, again and again."""
    log = new_log(filesystem)
    append(log, some_records(2), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    append(log, some_records(2, first=2))
    log.advance_start(3)
    assert log.last_stable_offset == 3
    assert log.read(3, 1000, committed=True).slice is None
    end_transaction(log, ControlType.COMMIT, 1)
    assert log.last_stable_offset == log.end_offset == 5


def test_a_fenced_coordinator_writes_no_marker(filesystem):
    log = new_log(filesystem)
    append(log, some_records(1), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, ControlType.COMMIT, 1, coordinator_epoch=4)
    with pytest.raises(StaleCoordinatorEpoch):
        end_transaction(log, ControlType.ABORT, 1, coordinator_epoch=3)
    assert log.end_offset == 2


def test_aborted_transactions_are_found_across_segments(filesystem):
    log = new_log(filesystem, segment_bytes=400)
    append(log, some_records(1), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    for n in range(10):
        append(log, some_records(2, first=n))
    end_transaction(log, ControlType.ABORT, 1)
    assert len(log.segments) > 2
    assert log.read(0, 1, committed=True).aborted == [(1, 0, 21, 22)]
    assert [r.offset for r in committed_from(log, max_bytes=1)] == list(range(1, 21))


# --- rolling


def test_it_rolls_when_a_batch_would_not_fit(filesystem):
    size = len(build_batch(some_records(3)))
    log = new_log(filesystem, segment_bytes=2 * size)
    for _ in range(5):
        append(log, some_records(3))
    assert [(s.base_offset, s.size) for s in log.segments] == [(0, 2 * size), (6, 2 * size), (12, size)]
    append(log, some_records(50))
    assert log.segments[-1].base_offset == 15, "a batch that is larger than a segment has one of its own"


def test_it_rolls_by_the_time_of_its_records(filesystem):
    log = new_log(filesystem, segment_ms=1000)
    for at_ms in (0, 1000, 1001, 2001, 2002):
        append(log, [Record(0, EPOCH_MS + at_ms, b"k", b"v")], now_ms=EPOCH_MS + 50)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_it_rolls_by_the_clock_where_records_have_no_time(filesystem):
    log = new_log(filesystem, segment_ms=1000)
    for at_ms in (0, 1000, 1001, 2001, 2002):
        append(log, [Record(0, -1, b"k", b"v")], now_ms=EPOCH_MS + at_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_it_rolls_when_its_index_is_full(filesystem):
    log = new_log(filesystem, segment_index_bytes=3 * 8, index_interval_bytes=0)
    for _ in range(10):
        append(log, some_records(1))
    # The first batch of a segment has no entry: the beginning needs none.
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]
    assert {len(segment.indexes.offsets) for segment in log.segments[:-1]} == {3}


def test_rolling_by_hand_leaves_an_empty_segment_alone(filesystem):
    log = new_log(filesystem)
    log.roll(EPOCH_MS)
    assert len(log.segments) == 1
    append(log, some_records(1))
    log.roll(EPOCH_MS)
    log.roll(EPOCH_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


# --- reading


def test_offsets_out_of_range_are_told_with_the_range(filesystem):
    log = new_log(filesystem)
    append(log, some_records(4))
    log.advance_start(2)
    for wrong in (0, 1, 5, -1):
        with pytest.raises(
            OffsetOutOfRange, match=rf"offset {wrong} of orders-0 is out of range: the log holds 2 to 4"
        ) as e:
            log.read(wrong, 100)
        assert (e.value.offset, e.value.start, e.value.end) == (wrong, 2, 4)
    assert log.read(4, 100).slice is None


def test_a_read_is_of_one_segment_and_at_least_one_batch(filesystem):
    log = new_log(filesystem, segment_bytes=500)
    for n in range(12):
        append(log, some_records(2, first=n * 2))
    first = log.read(0, 10**6).slice
    assert first.size == log.segments[0].size
    assert log.read(0, 0).slice.size == len(build_batch(some_records(2)))
    assert [r.offset for r in records_from(log, 7)] == list(range(6, 24))


# --- removing


def test_retention_moves_the_start_and_then_removes_the_files(filesystem):
    log = new_log(filesystem, segment_bytes=300, retention_ms=1000)
    for n in range(10):
        append(log, [Record(0, EPOCH_MS + n * 100, b"k", b"v" * 50)], epoch=n // 5)
    bases = [segment.base_offset for segment in log.segments]
    assert log.expire(EPOCH_MS + 1450) == 4
    assert log.start_offset == 4
    assert [segment.base_offset for segment in log.segments] == bases
    dead = log.remove_dead_segments(EPOCH_MS + 1450)
    assert [segment.base_offset for segment in dead] == [0, 2]
    assert not any(filesystem.exists(segment.path) for segment in dead)
    assert log.epochs.entries == ((0, 4), (1, 5))
    assert [record.offset for record in records_from(log)] == list(range(4, 10))


def test_a_log_whose_every_record_has_expired_begins_anew_at_its_end(filesystem):
    log = new_log(filesystem, retention_ms=1000)
    append(log, some_records(5))
    log.expire(EPOCH_MS + 10_000)
    log.remove_dead_segments(EPOCH_MS + 10_000)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (5, 5, 0)
    assert append(log, some_records(1)).base_offset == 5


def test_records_cannot_be_deleted_beyond_the_end(filesystem):
    log = new_log(filesystem)
    append(log, some_records(3))
    with pytest.raises(OffsetOutOfRange):
        log.advance_start(4)
    assert log.advance_start(3) == 3
    assert log.advance_start(1) == 3


def test_cutting_forgets_records_producers_transactions_and_epochs(filesystem):
    log = new_log(filesystem, segment_bytes=400, index_interval_bytes=0)
    producer = {"producer_id": 5, "producer_epoch": 0}
    for n in range(10):
        append(log, some_records(2), **producer, base_sequence=2 * n, transactional=n >= 6, epoch=n // 4)
    assert log.last_stable_offset == 12
    log.truncate_to(8)
    assert (log.end_offset, log.last_stable_offset) == (8, 8)
    assert log.epochs.entries == ((0, 0),)
    assert [r.offset for r in records_from(log)] == list(range(8))
    assert append(log, some_records(2), **producer, base_sequence=8).base_offset == 8
    log.truncate_to(99)
    assert log.end_offset == 10


# --- durability


def test_flush_makes_it_durable_and_says_how_far(filesystem):
    log = new_log(filesystem)
    append(log, some_records(3))
    assert log.durable_offset == 0
    assert log.flush() == log.durable_offset == 3
    append(log, some_records(3))
    assert log.flush(rolled_only=True) == 3
    log.roll(EPOCH_MS)
    assert log.flush(rolled_only=True) == 6


def test_a_header_of_each_batch_is_as_the_log_says(filesystem):
    log = new_log(filesystem)
    append(log, some_records(2))
    found = log.read(0, 10**6).slice
    assert header_at(found.read()).next_offset == 2
    assert repr(log) == "Log(orders-0, 0..2, 1 segments)"


# --- what the appending thread does not wait for


def test_the_first_append_after_a_start_waits_for_no_disk():
    """The index files of the last life go, and a leader epoch begins; both are made durable by the flush."""
    filesystem = MemoryFileSystem()
    make_folder(filesystem, FOLDER)
    log = new_log(filesystem)
    append(log, some_records(3), epoch=1)
    log.close()
    log, _ = open_small_log(filesystem, was_clean=True, recovery_point=3)
    before = filesystem.counts("*").syncs
    append(log, some_records(1, first=3), epoch=2)
    assert filesystem.counts("*").syncs == before
    log.flush()
    after = filesystem.crash(mode="lose_everything")
    names = after.list(FOLDER)
    assert "leader-epoch-checkpoint" in names
    assert not [name for name in names if name.endswith("index")]
    log, _ = open_small_log(after, recovery_point=0)
    assert log.epochs.entries == ((1, 0), (2, 3))


@pytest.mark.parametrize("mode", ["lose_everything", "keep_everything"])
def test_leader_epochs_that_were_not_written_are_made_again_from_the_batches(mode):
    filesystem = MemoryFileSystem()
    make_folder(filesystem, FOLDER)
    log = new_log(filesystem)
    append(log, some_records(3), epoch=1)
    log.flush()
    append(log, some_records(2, first=3), epoch=4)
    filesystem.fail("open", "*leader-epoch*")
    log.flush()
    log, _ = open_small_log(filesystem.crash(mode=mode), recovery_point=3)
    assert log.epochs.entries == ((1, 0), (4, 3))
    log.flush()
    again, _ = open_small_log(log.filesystem._filesystem.crash(mode="lose_everything"), was_clean=True)
    assert again.epochs.entries == ((1, 0), (4, 3))


class _AppendsWhileReading(MemoryFileSystem):
    """Lets an append come in whenever an index is read."""

    log = None

    def read(self, path):
        if self.log and path.endswith(".timeindex"):
            other = threading.Thread(target=lambda: append(self.log, some_records(1)))
            other.start()
            other.join(20)
            assert not other.is_alive(), "the append waits until the index is read"
        return super().read(path)


def test_appends_go_on_while_retention_reads_indexes():
    filesystem = _AppendsWhileReading()
    log = new_log(filesystem, segment_bytes=300, retention_ms=1000)
    append(log, some_records(8))
    append(log, some_records(8))
    log.close()
    log, _ = open_small_log(filesystem, log.config, was_clean=True)
    filesystem.log = log
    assert log.expire(EPOCH_MS + 100_000) == 16
    assert (log.start_offset, log.end_offset) == (16, 17)
    assert len(records_from(log)) == 1
