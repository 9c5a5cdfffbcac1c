"""A disk that is full, refuses, lies or rots: what is told, what stays readable, and that nothing wrong is served."""

import errno
import threading
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.records import ControlType, Record, build_batch, build_marker, records_of
from headrace.storage import checkpoint
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import DamagedLog, DiskFull, StorageError, SyncFailed, WriteFailed
from headrace.storage.reading import first_at_or_after
from headrace.testing import FakeClock, MemoryFileSystem
from tests.property.storage_model import examples, producer_facts, read_committed, read_records

PARTITION = TopicPartition("orders", 0)
FOLDER = "data/orders-0"
NOW = FakeClock().now_ms()
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=1000)
ONE_SEGMENT = LogConfig(index_interval_bytes=100)


def _open(filesystem, config=CONFIG, clock=None):
    return LogDirectory.open("data", config_for=lambda _: config, filesystem=filesystem, clock=clock or FakeClock())


def _begin(config=CONFIG, **options):
    filesystem = MemoryFileSystem(page_bytes=256, sector_bytes=64, **options)
    directory = _open(filesystem, config)
    return filesystem, directory, directory.create(PARTITION, config)


def _append(log, number, count=1, epoch=0, **options):
    records = [Record(n, NOW + number + n, b"%d" % (number + n), b"v" * 80) for n in range(count)]
    return log.append(build_batch(records, **options), now_ms=NOW, leader_epoch=epoch)


def _keys(log):
    return [record.key for record in read_records(log)]


def _numbers(*numbers):
    return [b"%d" % number for number in numbers]


# --- a full disk, and other refusals


@examples(60)
@given(
    room=st.integers(0, 1500),
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    epochs=st.booleans(),
    seed=st.integers(0, 999),
)
def test_an_append_that_does_not_fit_leaves_nothing_and_works_when_there_is_room(room, counts, epochs, seed):
    filesystem, _, log = _begin()
    _append(log, 0, 2)
    log.flush()
    filesystem.capacity_bytes = filesystem.used_bytes + room
    written, refused = [0, 1], 0
    for turn, count in enumerate(counts):
        had = log.end_offset
        try:
            _append(log, had, count, epoch=turn if epochs else 0)
            written += range(had, had + count)
        except DiskFull:
            refused += 1
            assert log.end_offset == had
        assert _keys(log) == _numbers(*written)
        assert log.size_bytes == sum(
            filesystem.size(f"{FOLDER}/{name}") for name in filesystem.list(FOLDER) if name.endswith(".log")
        )
    log.flush()  # side files may not fit, but the batches are there, and syncing them takes no room
    durable = log.end_offset
    filesystem.capacity_bytes = None
    _append(log, durable, epoch=99)
    assert _keys(log) == _numbers(*written, durable)
    after = _open(filesystem.crash(Random(seed)))
    assert _keys(after.log(PARTITION))[: len(written)] == _numbers(*written)


@examples(60)
@given(
    kind=st.sampled_from(["write", "short", "open", "replace", "remove", "truncate", "sync_directory"]),
    skip=st.integers(0, 5),
    error=st.sampled_from([errno.EIO, errno.ENOSPC]),
    written=st.integers(0, 100),
    mode=st.sampled_from(["lose_everything", "keep_everything", "random"]),
)
def test_a_refused_append_is_told_and_the_log_goes_on(kind, skip, error, written, mode):
    filesystem, directory, log = _begin()
    for number in range(3):
        _append(log, number)
    directory.close()
    directory = _open(filesystem)
    log = directory.log(PARTITION)
    if kind == "write":
        filesystem.fail_write("*.log", skip=skip, error=error, written_bytes=written)
    elif kind == "short":
        filesystem.short_write(skip=skip, times=None, at_most_bytes=written + 1)
    else:
        filesystem.fail(kind, f"{FOLDER}*", skip=skip, error=error)
    expected, told = [0, 1, 2], set()
    for turn in range(6):
        try:
            _append(log, log.end_offset, 2, epoch=turn)
            expected += [log.end_offset - 2, log.end_offset - 1]
        except (DiskFull, WriteFailed) as refused:
            told.add(type(refused))
        assert _keys(log) == _numbers(*expected)
    filesystem.heal()
    assert told <= {DiskFull if error == errno.ENOSPC else WriteFailed}
    assert log.flush() == len(expected)
    assert _keys(_open(filesystem.crash(Random(0), mode=mode)).log(PARTITION)) == _numbers(*expected)


def test_retention_gives_a_full_disk_room_again():
    clock = FakeClock()
    filesystem = MemoryFileSystem(clock=clock)
    directory = _open(filesystem, clock=clock)
    log = directory.create(PARTITION, CONFIG)
    for number in range(12):
        _append(log, number)
    directory.flush_rolled()
    filesystem.capacity_bytes = filesystem.used_bytes
    with pytest.raises(DiskFull):
        _append(log, 12, 3)
    clock.advance(5000)
    assert directory.enforce_retention() == {PARTITION: 5}  # there was no room to begin another, so the last stays
    assert directory.enforce_retention() == {PARTITION: 1}
    assert (log.start_offset, log.size_bytes) == (12, 0)
    log.append(build_batch([Record(0, clock.now_ms(), b"12", b"v" * 80)]), now_ms=clock.now_ms())
    assert _keys(log) == [b"12"]
    assert log.flush() == 13
    after = _open(filesystem.crash(mode="lose_everything"), clock=clock).log(PARTITION)
    assert (after.start_offset, _keys(after)) == (12, [b"12"])


def test_a_log_whose_making_failed_is_not_there_and_can_be_made_later():
    other = TopicPartition("other", 0)
    made = False
    for skip in range(40):
        filesystem, directory, _ = _begin()
        fault = filesystem.fail(("write", "open", "sync_directory", "sync")[skip % 4], "data/other*", skip=skip // 4)
        try:
            directory.create(other, CONFIG)
            filesystem.heal()
            made = True
        except StorageError:
            assert other not in directory.logs
            assert "other-0" not in filesystem.list("data")
            filesystem.heal(fault)
            directory.create(other, CONFIG)
        _append(directory.log(other), 0)
        assert directory.log(other).flush() == 1
        assert _keys(_open(filesystem.crash(mode="lose_everything")).log(other)) == [b"0"]
    assert made


# --- syncs that fail


@examples(80)
@given(
    faults=st.lists(st.sampled_from(["*.log", "dir", None]), min_size=1, max_size=5),
    actions=st.lists(
        st.sampled_from(["append", "roll", "flush", "flush_rolled", "checkpoint", "restart"]), max_size=14
    ),
    seed=st.integers(0, 999),
    config=st.sampled_from([CONFIG, ONE_SEGMENT]),
)
def test_a_failed_sync_is_never_taken_for_done(faults, actions, seed, config):
    filesystem, directory, log = _begin(config)
    random = Random(seed)
    confirmed = failed = 0
    for action in ["append", *actions, "flush"]:
        if faults and random.random() < 0.5:
            fault = faults.pop()
            if fault == "dir":
                filesystem.fail("sync_directory", FOLDER)
            elif fault:
                filesystem.fail_sync(f"{FOLDER}/{fault}")
        try:
            if action == "append":
                _append(log, log.end_offset, random.randint(1, 3))
            elif action == "roll":
                log.roll(NOW)
            elif action == "flush":
                confirmed = max(confirmed, log.flush())
                assert confirmed == log.end_offset
            elif action == "flush_rolled":
                directory.flush_rolled()
            elif action == "restart":  # the machine lives, and its page cache with it
                filesystem = filesystem.crash(mode="keep_everything")
                directory = _open(filesystem, config)
                log = directory.log(PARTITION)
                assert log.durable_offset == log.end_offset
            else:
                directory.checkpoint()
        except SyncFailed:
            failed += 1
        except WriteFailed:
            failed += action == "append"
        assert confirmed <= log.durable_offset <= log.end_offset
        confirmed = log.durable_offset
        if random.random() < 0.3:
            filesystem.write_back(random)
    assert failed <= 5
    expected = _numbers(*range(confirmed))
    for mode in ("lose_everything", "random"):
        after = _open(filesystem.crash(Random(seed), mode=mode), config).log(PARTITION)
        assert _keys(after)[:confirmed] == expected


def test_a_failed_sync_moves_nothing_and_a_sync_of_full_segments_does_not_forget_it():
    filesystem, directory, log = _begin(ONE_SEGMENT)
    _append(log, 0)
    filesystem.fail_sync(f"{FOLDER}/*.log")
    with pytest.raises(SyncFailed, match="not confirmed"):
        log.flush()
    assert log.durable_offset == 0
    directory.flush_rolled()
    directory.checkpoint()
    assert log.flush() == 1
    assert _keys(_open(filesystem.crash(mode="lose_everything"), ONE_SEGMENT).log(PARTITION)) == [b"0"]


def test_what_a_failed_sync_left_in_the_page_cache_is_durable_before_it_is_acknowledged_after_a_restart():
    filesystem, _, log = _begin(ONE_SEGMENT)
    _append(log, 0, producer_id=7, producer_epoch=0, base_sequence=0)
    log.flush()
    _append(log, 1, producer_id=7, producer_epoch=0, base_sequence=1)
    filesystem.fail_sync(f"{FOLDER}/*.log")
    with pytest.raises(SyncFailed):
        log.flush()
    filesystem = filesystem.crash(mode="keep_everything")
    log = _open(filesystem, ONE_SEGMENT).log(PARTITION)
    assert _append(log, 1, producer_id=7, producer_epoch=0, base_sequence=1).is_duplicate
    assert log.flush() == 2  # so the producer's second attempt is acknowledged
    assert _keys(_open(filesystem.crash(mode="lose_everything"), ONE_SEGMENT).log(PARTITION)) == _numbers(0, 1)


def test_damage_does_not_keep_what_is_behind_it_from_being_written_again():
    filesystem, directory, log = _begin(ONE_SEGMENT)
    for number in range(6):
        _append(log, number)
    log.flush()
    directory.checkpoint()
    size = log.size_bytes // 6
    filesystem.corrupt(f"{FOLDER}/00000000000000000000.log", 2 * size + 30, b"rot")
    filesystem = filesystem.crash(mode="keep_everything")
    log = _open(filesystem, ONE_SEGMENT).log(PARTITION)
    _append(log, 6)
    filesystem.fail_sync(f"{FOLDER}/*.log")
    with pytest.raises(SyncFailed):
        log.flush()
    filesystem.remove("data/recovery-point-offset-checkpoint")  # everything is checked, and in doubt
    filesystem = filesystem.crash(mode="keep_everything")
    _open(filesystem, ONE_SEGMENT)
    log = _open(filesystem.crash(mode="lose_everything"), ONE_SEGMENT).log(PARTITION)
    with pytest.raises(DamagedLog):
        log.read(2, 100)
    assert [record.key for record in read_records(log, 3)] == _numbers(3, 4, 5, 6)


def test_an_error_that_another_sync_of_the_file_was_given_counts_for_both():
    """Linux gives the error of a failed write-back to one of two syncs through the same descriptor."""
    filesystem, _, log = _begin(ONE_SEGMENT)
    _append(log, 0)
    file = log.segments[-1].file

    def refused():
        with pytest.raises(WriteFailed):
            _append(log, 1)

    other = threading.Thread(target=refused)

    class _File:
        """Lets an append that fails, and syncs what it cuts off, come between a sync and its beginning."""

        def __getattr__(self, name):
            return getattr(file, name)

        def sync(self):
            if not other.ident:
                filesystem.fail_write(f"{FOLDER}/*.log", written_bytes=10)
                filesystem.fail_sync(f"{FOLDER}/*.log")
                other.start()
                other.join(0.3)
            file.sync()

    log.segments[-1]._file = _File()
    confirmed = 0
    with suppress(SyncFailed):
        confirmed = log.flush()
    other.join()
    assert confirmed <= log.flush() == 1
    after = _open(filesystem.crash(mode="lose_everything"), ONE_SEGMENT).log(PARTITION)
    assert _keys(after) == _numbers(0)


# --- reads that fail


@examples(40)
@given(start=st.integers(0, 1200), size=st.integers(1, 300), offset=st.integers(0, 11))
def test_a_bad_sector_is_an_error_and_never_wrong_data(start, size, offset):
    filesystem, _, log = _begin(ONE_SEGMENT)
    for number in range(12):
        _append(log, number)
    good = read_records(log)
    fault = filesystem.fail_read(f"{FOLDER}/*.log", start=start, end=start + size)
    try:
        assert read_records(log, offset) == good[offset:]
        assert not fault.hits
    except (OSError, StorageError):
        assert fault.hits
    filesystem.heal()
    assert read_records(log, offset) == good[offset:]


# --- bit rot


def _rotten(filesystem, path, position, mask=0xFF):
    byte = filesystem.read(path)[position]
    filesystem.corrupt(path, position, bytes([byte ^ mask]))


@examples(120)
@given(place=st.floats(0, 0.999), mask=st.integers(1, 255), more=st.integers(0, 2), tail=st.booleans())
def test_rot_before_the_recovery_point_is_told_remembered_and_never_served(place, mask, more, tail):
    filesystem, directory, log = _begin(ONE_SEGMENT)
    for number in range(8):
        _append(log, number, 1 + number % 2)
    log.flush()
    directory.checkpoint()
    good = {record.offset: record for record in read_records(log)}
    path = log.segments[0].path
    size = log.segments[0].size
    for extra in range(more):
        _append(log, 100 + extra)
    crashed = filesystem.crash(mode="keep_everything" if tail else "lose_everything")
    position = int(size * place)
    _rotten(crashed, path, position, mask)
    directory = _open(crashed, ONE_SEGMENT)
    (damage,) = directory.recoveries[0].damage or [None]
    log = directory.log(PARTITION)
    if damage is None:  # the leader epoch in a header is under no checksum, and served as it is
        assert {r.offset: r for r in read_records(log)}.items() >= good.items()
        return
    assert damage.position <= position < damage.position + damage.size
    assert damage.segment == 0

    def check(log):
        with pytest.raises(DamagedLog, match=r"0\.log is damaged at byte"):
            log.read(damage.first_offset, 1000)
        there = dict.fromkeys(good)
        for offset in good:
            if not damage.first_offset <= offset < damage.next_offset:
                there[offset] = read_records_at(log, offset)
        assert there == {
            offset: record if not damage.first_offset <= offset < damage.next_offset else None
            for offset, record in good.items()
        }
        first_at_or_after(log, NOW)

    check(log)
    assert log.end_offset >= max(good) + 1
    _append(log, 200)
    last = log.end_offset - 1
    assert read_records_at(log, last).key == b"200"
    directory.close()
    for _ in range(2):
        directory = _open(crashed, ONE_SEGMENT)
        check(directory.log(PARTITION))
        assert read_records_at(directory.log(PARTITION), last).key == b"200"
        directory.close()
    _rotten(crashed, f"{FOLDER}/damaged-ranges", 6, 1)
    check(_open(crashed, ONE_SEGMENT).log(PARTITION))


def read_records_at(log, offset):
    """One record, as a client reads it that does not mind what lies behind."""
    found = log.read(offset, 1).slice
    assert found is not None
    return next((record for record in records_of(found.read()) if record.offset == offset), None)


def _rich_log(directory):
    """Several segments with an aborted transaction across them, times out of order, a producer."""
    log = directory.log(PARTITION)
    data = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    for number in range(16):
        options = {**data, "base_sequence": number // 4} if number % 4 == 0 else {}
        records = [Record(0, NOW + number * 37 % 11, b"%d" % number, b"v" * 70)]
        log.append(build_batch(records, **options), now_ms=NOW)
    marker = build_marker(ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW)
    log.append(marker, now_ms=NOW, from_client=False)
    log.roll(NOW)
    _append(log, 17)
    return log


def _answers(log):
    return (
        read_records(log),
        read_committed(log),
        [first_at_or_after(log, NOW + shift) for shift in range(-1, 13)],
        [segment.largest_timestamp for segment in log.segments if segment.size],
        producer_facts(log),
    )


SIDE_FILES = (".index", ".timeindex", ".txnindex", ".indexsums", ".snapshot")


@pytest.mark.parametrize("suffix", SIDE_FILES)
@examples(25)
@given(which=st.integers(0, 99), place=st.floats(0, 0.999), mask=st.integers(1, 255), lost=st.booleans())
def test_rot_in_what_can_be_made_again_changes_no_answer(suffix, which, place, mask, lost):
    filesystem, directory, _ = _begin()
    right = _answers(_rich_log(directory))
    directory.close()
    paths = [f"{FOLDER}/{name}" for name in filesystem.list(FOLDER) if name.endswith(suffix)]
    paths = [path for path in paths if filesystem.size(path)]
    path = paths[which % len(paths)]
    if lost and suffix != ".txnindex":
        filesystem.remove(path)
    else:
        _rotten(filesystem, path, int(filesystem.size(path) * place), mask)
    directory = _open(filesystem)
    assert _answers(directory.log(PARTITION)) == right
    directory.flush_rolled()
    assert _answers(directory.log(PARTITION)) == right


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (checkpoint.RECOVERY_POINT, b"0\n1\norders 0 x\n"),
        (checkpoint.LOG_START, b"\xff\xfe"),
        (checkpoint.LOG_START, b"0\n1\norders 0 4711\n"),
        (checkpoint.CLEANER, b"0\n2\norders 0 1\n"),
        ("orders-0/leader-epoch-checkpoint", b"0\n1\nzero 0\n"),
        ("orders-0/partition.metadata", b"version: 0\ntopic_id: ???"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused_in_a_sentence(name, content):
    filesystem, directory, log = _begin()
    _append(log, 0)
    directory.close()
    file = filesystem.open(f"data/{name}", create=True)
    file.truncate(0)
    file.write_at([content], 0)
    with pytest.raises(StorageError, match=r"remove|restore"):
        _open(filesystem)
    with pytest.raises(StorageError):
        _open(filesystem)  # the lock was given back, and the refusal is the same
