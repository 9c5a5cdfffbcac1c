"""Keys to their latest offsets."""

from headrace.storage.compaction.retained import OffsetMap


def test_the_latest_offset_of_a_key_counts():
    offsets = OffsetMap(100)
    offsets.put(b"a", 1)
    offsets.put(b"b", 2)
    offsets.put(b"a", 3)
    assert offsets.is_superseded(b"a", 1)
    assert not offsets.is_superseded(b"a", 3)
    assert not offsets.is_superseded(b"a", 4)
    assert not offsets.is_superseded(b"never seen", 0)
    assert len(offsets) == 2


def test_long_keys_are_told_apart():
    offsets = OffsetMap(100)
    keys = [b"k" * size for size in (0, 31, 32, 33, 34, 10_000)] + [b"k" * 9_999 + b"x"]
    for offset, key in enumerate(keys):
        offsets.put(key, offset)
    assert len(offsets) == len(keys)
    for offset, key in enumerate(keys):
        assert not offsets.is_superseded(key, offset)
        assert offset == 0 or offsets.is_superseded(key, offset - 1)


def test_a_full_map_says_so():
    offsets = OffsetMap(2)
    offsets.put(b"a", 1)
    offsets.put(b"a", 2)
    assert not offsets.is_full
    offsets.put(b"b", 3)
    assert offsets.is_full
