"""Producers in a file: Kafka's bytes, what survives, and what is not trusted."""

import struct

import pytest
from crc32c import crc32c

from headrace.storage.producer_snapshot import (
    decode_snapshot,
    encode_snapshot,
    load_snapshot,
    remove_snapshots,
    save_snapshot,
    snapshot_offsets,
)
from headrace.storage.producer_state import Producer, ProducerState, SeenBatch
from headrace.testing import MemoryFileSystem


def _state(*producer_ids):
    state = ProducerState()
    for producer_id in producer_ids:
        producer = Producer(producer_id, 4)
        producer.batches.extend([SeenBatch(1, 11, 1, 900), SeenBatch(5, 17, 3, 1000)])
        producer.coordinator_epoch = 6
        producer.last_timestamp = 1000
        producer.transaction_start = 14 if producer_id % 2 else None
        state.add(producer)
    return state


def _kafkas(body):
    return struct.pack(">hI", 1, crc32c(body)) + body


def test_the_bytes_are_kafkas_and_the_older_batches_stand_behind_them():
    entry = struct.pack(">qhiqiqiq", 7, 4, 5, 17, 3, 1000, 6, 14)
    body = struct.pack(">i", 1) + entry
    older = struct.pack(">iqiqiq", 1, 7, 1, 11, 1, 900)
    assert encode_snapshot(_state(7)) == _kafkas(body + older)
    state = _state(7)
    state.producers[7].batches.popleft()
    assert encode_snapshot(state) == _kafkas(body)


def test_every_remembered_batch_and_the_open_transaction_survive():
    state = decode_snapshot(encode_snapshot(_state(7, 8)))
    assert set(state.producers) == {7, 8}
    one = state.producers[7]
    assert one.facts() == (7, 4, (SeenBatch(1, 11, 1, 900), SeenBatch(5, 17, 3, 1000)), 6, 1000, 14)
    assert state.producers[8].transaction_start is None
    assert state.first_open_offset == 14


def test_a_producer_without_batches_stays_one():
    state = ProducerState()
    state.add(Producer(3, 2))
    again = decode_snapshot(encode_snapshot(state)).producers[3]
    assert (again.epoch, again.last_sequence, again.last_offset, len(again.batches)) == (2, -1, -1, 0)
    assert decode_snapshot(encode_snapshot(ProducerState())).producers == {}


def test_whatever_is_not_whole_is_none():
    data = encode_snapshot(_state(7, 8))
    for size in range(len(data)):
        assert decode_snapshot(data[:size]) is None, size
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 1
        assert decode_snapshot(bytes(wrong)) is None, at
    assert decode_snapshot(data + b"\0") is None


def test_a_snapshot_of_kafkas_or_of_an_earlier_version_has_one_batch_a_producer():
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 4, 5, 17, 3, 1000, 6, -1)
    state = decode_snapshot(_kafkas(body))
    assert list(state.producers[7].batches) == [SeenBatch(5, 17, 3, 1000)]
    for behind in (b"\0", b"\0\0\0\1", struct.pack(">iqiqiq", 1, 8, 1, 11, 1, 900), struct.pack(">i", -1)):
        assert decode_snapshot(_kafkas(body + behind)) is None


@pytest.fixture
def filesystem():
    filesystem = MemoryFileSystem()
    filesystem.make_directory("log")
    for offset in (10, 20, 30):
        save_snapshot(filesystem, "log", offset, _state(offset))
    return filesystem


def test_the_newest_that_is_not_behind_is_loaded(filesystem):
    assert snapshot_offsets(filesystem, "log") == [10, 20, 30]
    for at_most, expected in ((9, None), (10, 10), (29, 20), (30, 30), (99, 30)):
        found = load_snapshot(filesystem, "log", at_most)
        assert (found and (found[0], set(found[1].producers))) == (expected and (expected, {expected}))


def test_an_unreadable_one_is_removed_and_an_older_taken(filesystem):
    filesystem.corrupt("log/00000000000000000030.snapshot", 12, b"\xff")
    assert load_snapshot(filesystem, "log", 99)[0] == 20
    assert snapshot_offsets(filesystem, "log") == [10, 20]


def test_removing_by_offset(filesystem):
    remove_snapshots(filesystem, "log", before=20)
    assert snapshot_offsets(filesystem, "log") == [20, 30]
    remove_snapshots(filesystem, "log", behind=20)
    assert snapshot_offsets(filesystem, "log") == [20]


def test_a_snapshot_that_was_saved_survives_a_crash():
    filesystem = MemoryFileSystem()
    filesystem.make_directory("log")
    filesystem.sync_directory("/")
    save_snapshot(filesystem, "log", 40, _state(1))
    assert load_snapshot(filesystem.crash(mode="lose_everything"), "log", 99)[0] == 40
