"""The time index: Kafka's bytes, look-up, cutting, and what is not trusted."""

import pytest

from headrace.storage.indexes import TimeIndex


def _index(*entries, base=100):
    index = TimeIndex(base)
    for timestamp, offset in entries:
        index.append(timestamp, offset)
    return index


def test_an_entry_is_a_timestamp_and_an_offset_relative_to_the_base():
    index = _index((0x0102030405060708, 103), (2**62, 2**32 + 99))
    assert index.encode().hex() == "0102030405060708" + "00000003" + "4000000000000000" + "ffffffff"
    assert TimeIndex.decode(100, index.encode()).encode() == index.encode()


def test_what_says_nothing_new_is_left_out():
    index = _index((50, 110), (50, 120), (49, 130), (51, 140))
    assert len(index) == 2
    assert index.last == (51, 140)
    assert TimeIndex(0).last is None


def test_look_up_gives_an_offset_before_which_all_is_older():
    index = _index((50, 110), (60, 120), (70, 130))
    found = {t: index.lookup(t) for t in (0, 50, 51, 60, 61, 70, 71)}
    assert found == {0: 100, 50: 100, 51: 110, 60: 110, 61: 120, 70: 120, 71: 130}


def test_cutting_forgets_what_is_said_of_the_offsets_behind():
    index = _index((50, 110), (60, 120), (70, 130))
    index.truncate(120)
    assert index.last == (50, 110)


def test_room_that_kafka_set_aside_is_no_entries():
    data = _index((50, 110), (60, 120)).encode()
    assert TimeIndex.decode(100, data + bytes(120)).encode() == data
    assert TimeIndex.decode(100, data + bytes(7)).encode() == data


@pytest.mark.parametrize(
    ("entries", "sane"),
    [
        ([], True),
        ([(5, 100)], True),
        ([(5, 149)], True),
        ([(5, 150)], False),
        ([(5, 110), (6, 110)], True),
        ([(5, 111), (6, 110)], False),
    ],
)
def test_only_what_ascends_and_stays_inside_is_sane(entries, sane):
    assert _index(*entries).is_sane(150) is sane
