"""The compiled map of offsets decides as the dictionary does, for every batch, also for a broken one."""

from functools import partial
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records import Record, build_batch, header_at
from headrace.records.errors import CorruptBatch
from headrace.records.record import body_of, decode, encode
from headrace.storage.compaction.columnar import OffsetTable, hash_key
from headrace.storage.compaction.retained import OffsetMap
from tests.property.storage_model import examples

SECRET = bytes(range(16))
keys = (
    st.none() | st.sampled_from([b"", b"a", b"b", b"k" * 8, b"k" * 9, b"k" * 33, b"k" * 300]) | st.binary(max_size=20)
)
records = st.tuples(keys, st.none() | st.binary(max_size=300), st.integers(-(2**40), 2**40), st.integers(1, 200))
batches = st.lists(st.lists(records, min_size=1, max_size=20), min_size=1, max_size=6)


def _built(drawn):
    """Batches behind each other, with gaps between offsets, as a compacted log has them: header and body of each."""
    built, offset = [], 0
    for drawn_records in drawn:
        offsets = list(accumulate((gap for *_, gap in drawn_records), initial=offset))
        made = [
            Record(at, 10**12 + time, key, value)
            for at, (key, value, time, _) in zip(offsets, drawn_records, strict=False)
        ]
        batch = build_batch(made)
        header = header_at(batch)
        built.append((header, body_of(batch, header)))
        offset = offsets[-1]
    return built


@given(batches, st.integers(-1, 4000), st.booleans())
@examples(200)
def test_what_remains_is_what_the_dictionary_keeps(drawn, latest_offset, drops_tombstones):
    built = _built(drawn)
    plain, table = OffsetMap(10), OffsetTable(10, SECRET)
    for offsets in (plain, table):
        for header, body in built:
            offsets.note(header, body)
        offsets.latest_offset = latest_offset
    assert (len(table), table.is_full) == (len(plain), plain.is_full)
    _assert_same(built, plain, table, drops_tombstones)


def _assert_same(built, plain, table, drops_tombstones):
    for header, body in built:
        expected = plain.select(header, body, drops_tombstones=drops_tombstones)
        assert table.select(header, body, drops_tombstones=drops_tombstones) == expected
        assert not (table.supersedes(header) and expected.kept)


@given(batches, st.sets(st.integers(0, 5)), st.integers(0, 6), st.booleans())
@examples(200)
def test_batches_that_were_not_noted_are_judged_by_their_keys(drawn, unnoted, noted_later, drops_tombstones):
    built = _built(drawn)
    plain, table = OffsetMap(10), OffsetTable(10, SECRET)
    for offsets in (plain, table):
        for number, (header, body) in enumerate(built):
            if number not in unnoted and number < noted_later:
                offsets.note(header, body)
        offsets.latest_offset = built[-1][0].last_offset
    _assert_same(built, plain, table, drops_tombstones)
    for offsets in (plain, table):  # more of them, after some were judged
        for header, body in built[noted_later:]:
            offsets.note(header, body)
    _assert_same(built, plain, table, drops_tombstones)


@given(batches, st.data())
@examples(200)
def test_offsets_in_no_order_are_judged_as_the_dictionary_does(drawn, data):
    built = []
    for header, body in _built(drawn):
        records = list(decode(header, body))
        moved = data.draw(st.permutations(records))
        base = data.draw(st.sampled_from([header.base_offset, 0, header.base_offset + 50]))
        body = b"".join(encode(record, base, header.base_timestamp) for record in moved)
        built.append((header._replace(base_offset=base), body))
    plain, table = OffsetMap(10), OffsetTable(10, SECRET)
    for offsets in (plain, table):
        for header, body in built:
            offsets.note(header, body)
        offsets.latest_offset = data.draw(st.integers(0, 4000)) if offsets is plain else plain.latest_offset
    _assert_same(built, plain, table, drops_tombstones=False)


WILD = [-(2**63), -64, -2, -1, 0, 1, 3, 200, 2**40, 2**63 - 2, 2**63 - 1]
wild = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from(WILD)), min_size=1)),
    min_size=1,
    max_size=4,
)


@given(wild, st.integers(0, 12))
@examples(200)
def test_offsets_that_no_record_can_have_are_judged_as_the_dictionary_does(drawn, latest_offset):
    built, base = [], 0
    for gap, claimed in drawn:
        base += gap
        header = header_at(build_batch([Record(base + n, 0, b"k", b"v") for n in range(len(claimed))]))
        built.append((header, b"".join(encode(Record(delta, 0, key, b"v"), 0, 0) for key, delta in claimed)))
        base = header.next_offset
    plain, table = OffsetMap(10), OffsetTable(10, SECRET)
    for offsets in (plain, table):
        for header, body in built:
            offsets.note(header, body)
        offsets.latest_offset = latest_offset
    _assert_same(built, plain, table, drops_tombstones=False)


@given(batches, st.data())
@examples(100)
def test_a_broken_body_is_refused_by_both(drawn, data):
    header, body = _built(drawn)[0]
    at = data.draw(st.integers(0, len(body) - 1))
    broken = data.draw(st.sampled_from([body[:at], body + b"\0", body[:at] + b"\xff" * 11 + body[at:]]))
    assert _outcomes(OffsetTable(10, SECRET), header, broken) == _outcomes(OffsetMap(10), header, broken)


@pytest.mark.parametrize("most", [8, 3000, 8000, 1 << 28])
def test_what_is_marked_is_bounded_and_what_is_not_is_looked_up(monkeypatch, most):
    monkeypatch.setattr("headrace.storage.compaction.columnar._MOST_MARKS", most)
    built = _built([[(b"key %d" % (n * turn % 41), b"v", 0, 7) for n in range(50)] for turn in range(1, 31)])
    plain, table = OffsetMap(100), OffsetTable(100, SECRET)
    for offsets in (plain, table):
        for header, body in built:
            offsets.note(header, body)
        offsets.latest_offset = built[-1][0].last_offset
    _assert_same(built, plain, table, drops_tombstones=False)
    known = [table.supersedes(header) for header, _ in built]
    kept = [plain.select(header, body, drops_tombstones=False).kept for header, body in built]
    assert known == [header.last_offset < most and not count for (header, _), count in zip(built, kept, strict=True)]
    assert sum(known) >= (most > 8)


def test_a_count_that_no_body_could_hold_takes_no_room():
    header, body = _built([[(b"a", b"v", 0, 1)]])[0]
    header = header._replace(record_count=2**31 - 1)
    assert _outcomes(OffsetTable(10, SECRET), header, body) == _outcomes(OffsetMap(10), header, body)


def _outcomes(offsets, header, body):
    outcomes = []
    for use in (offsets.note, partial(offsets.select, drops_tombstones=False)):
        try:
            use(header, body)
            outcomes.append("taken")
        except CorruptBatch:
            outcomes.append("refused")
    return outcomes


def test_a_table_that_grows_keeps_all_it_had():
    table, plain = OffsetTable(10**6, SECRET), OffsetMap(10**6)
    for number in range(60):
        made = [Record(number * 1000 + n, 0, b"key %d" % (number * 700 + n), b"v") for n in range(1000)]
        header, body = header_at(batch := build_batch(made)), body_of(batch, header_at(batch))
        table.note(header, body)
        plain.note(header, body)
    table.latest_offset = plain.latest_offset = 60_000
    assert len(table) == len(plain) == 59 * 700 + 1000
    assert table.select(header, body, drops_tombstones=False) == plain.select(header, body, drops_tombstones=False)
    first = build_batch([Record(n, 0, b"key %d" % n, b"v") for n in range(1000)])
    kept = table.select(header_at(first), body_of(first, header_at(first)), drops_tombstones=False)
    assert kept.kept == 700  # the other 300 were written again by the second batch


def test_another_secret_is_another_hash():
    import numpy as np

    arena = np.frombuffer(b"customer-17", np.uint8)
    hashes = {hash_key(arena, 0, 11, np.frombuffer(bytes([n]) * 16, np.uint64)) for n in range(50)}
    assert len(hashes) == 50


# The official vectors of SipHash are for its 2-4 form; that of 1-3 is held to its purpose: every bit of a key changes
# about half of the hash's.
@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 40])
def test_every_bit_of_a_key_counts(size):
    import numpy as np

    secret = np.frombuffer(SECRET, np.uint64)
    key = bytearray(range(size))
    before = hash_key(np.frombuffer(bytes(key), np.uint8), 0, size, secret)
    for bit in range(size * 8):
        changed = bytearray(key)
        changed[bit // 8] ^= 1 << bit % 8
        after = hash_key(np.frombuffer(bytes(changed), np.uint8), 0, size, secret)
        differing = sum(int(a ^ b).bit_count() for a, b in zip(before, after, strict=True))
        assert 30 <= differing <= 98
