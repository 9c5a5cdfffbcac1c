"""The offset index: Kafka's bytes, look-up, cutting, and what is not trusted."""

import pytest

from headrace.storage.indexes import OffsetIndex


def _index(*entries, base=100):
    index = OffsetIndex(base)
    for offset, position in entries:
        index.append(offset, position)
    return index


def test_an_entry_is_two_big_endian_numbers_relative_to_the_base():
    index = _index((103, 0x01020304), (2**32 + 99, 0xFFFFFFFE))
    assert index.encode().hex() == "00000003" + "01020304" + "ffffffff" + "fffffffe"
    assert OffsetIndex.decode(100, index.encode()).encode() == index.encode()
    assert len(index) == 2


def test_look_up_gives_a_position_at_or_before_the_offset():
    index = _index((109, 1000), (119, 2000), (129, 3000))
    found = {offset: index.lookup(offset) for offset in (0, 100, 108, 109, 110, 119, 128, 129, 10_000)}
    assert found == {0: 0, 100: 0, 108: 0, 109: 1000, 110: 1000, 119: 2000, 128: 2000, 129: 3000, 10_000: 3000}
    assert OffsetIndex(100).lookup(500) == 0


def test_what_lies_before_a_position_has_an_upper_bound():
    index = _index((109, 1000), (119, 2000))
    assert [index.offset_behind(p) for p in (0, 1000, 1001, 2000, 2001)] == [109, 109, 119, 119, None]


def test_cutting_forgets_the_batches_behind():
    index = _index((109, 1000), (119, 2000), (129, 3000))
    index.truncate(2000)
    assert (len(index), index.lookup(10_000)) == (1, 1000)
    index.truncate(0)
    assert len(index) == 0


def test_room_that_kafka_set_aside_is_no_entries():
    data = _index((109, 1000), (119, 2000)).encode()
    assert OffsetIndex.decode(100, data + bytes(80)).encode() == data
    assert OffsetIndex.decode(100, data + bytes(5)).encode() == data, "a torn entry is none"
    assert len(OffsetIndex.decode(100, b"")) == 0


def test_an_index_of_nothing_but_room_is_empty_or_points_to_the_beginning():
    index = OffsetIndex.decode(100, bytes(80))
    assert index.lookup(10_000) == 0


@pytest.mark.parametrize(
    ("entries", "sane"),
    [
        ([], True),
        ([(101, 0)], True),
        ([(101, 10), (102, 20)], True),
        ([(101, 10), (101, 20)], False),
        ([(102, 10), (101, 20)], False),
        ([(101, 20), (102, 20)], False),
        ([(101, 20), (102, 10)], False),
        ([(101, 50)], False),
        ([(101, 10), (102, 50)], False),
    ],
)
def test_only_what_ascends_and_stays_inside_is_sane(entries, sane):
    assert _index(*entries).is_sane(50) is sane
