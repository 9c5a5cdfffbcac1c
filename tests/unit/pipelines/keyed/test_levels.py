"""Levels stay few and rewrite little, and what is past or hidden goes."""

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.keys import Keys, decode, distinct, encode
from headrace.pipelines.keyed.levels import Extent, extent_of, is_gone, merge, merge_from, read
from headrace.pipelines.keyed.loops import compare
from headrace.pipelines.keyed.operator import NO_WATERMARK, Keyed, Rows, Values
from headrace.pipelines.keyed.run import Run, make_run

CELL = pa.schema([("n", pa.int64()), ("t", pa.int64())])
PLAIN = Values("plain", CELL)
BUFFER = Rows("buffer", CELL, "t")


def keys_of(*numbers: int) -> Keys:
    return encode(pa.RecordBatch.from_pydict({"k": list(numbers)}), np.array(numbers, np.int64))


def cells(*rows: tuple[int, int, int]) -> Keyed:
    whose, n, t = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Keyed(whose, pa.RecordBatch.from_arrays([pa.array(n), pa.array(t)], schema=CELL))


def run_of(table: Values | Rows, keys: Keys, given: Keyed | None, *gone: int) -> Run:
    made = make_run(table, keys, given, np.array(gone, np.int64), replaces=isinstance(table, Values))
    assert made is not None
    return made


def extent(entries: int, rows: int | None = None, *, first: int = 0, last: int = 0, replaces: bool = True) -> Extent:
    return Extent("x", entries, entries if rows is None else rows, 0, replaces, first, last)


def test_a_newer_run_hides_and_a_tombstone_takes_away() -> None:
    keys = keys_of(1, 2, 3)
    old = run_of(PLAIN, keys, cells((0, 10, 0), (1, 20, 0), (1, 21, 0), (2, 30, 0)))
    new = run_of(PLAIN, keys, cells((1, 22, 0)), 2)
    found = read([old, new], PLAIN, keys, NO_WATERMARK)
    assert found.key.tolist() == [0, 1]
    assert found.rows["n"].to_pylist() == [10, 22]


def test_a_tombstone_stays_until_nothing_older_is_left() -> None:
    keys = keys_of(1, 2)
    first, second = run_of(PLAIN, keys, cells((0, 1, 0))), run_of(PLAIN, keys, None, 0, 1)
    above = merge([second], PLAIN, NO_WATERMARK, oldest=False)
    assert above is not None
    assert above.replaces.tolist() == [True, True]
    assert merge([first, second], PLAIN, NO_WATERMARK, oldest=True) is None


def test_rows_of_several_runs_are_in_the_order_of_time_and_the_past_is_left_out() -> None:
    keys = keys_of(7, 8)
    runs = [run_of(BUFFER, keys, cells((0, 1, 50), (0, 2, 10), (1, 3, 30))), run_of(BUFFER, keys, cells((0, 4, 20)))]
    found = read(runs, BUFFER, keys, 20)
    assert (found.key.tolist(), found.rows["n"].to_pylist()) == ([0, 0, 1], [4, 1, 3])
    merged = merge(runs, BUFFER, 20, oldest=True)
    assert merged is not None
    assert merged.rows["n"].to_pylist() == [4, 1, 3]


def test_small_batches_rewrite_little_and_levels_stay_few() -> None:
    extents: list[Extent] = []
    written = most = 0
    for _ in range(1000):
        extents.append(extent(100))
        written += 100
        start = merge_from(extents, NO_WATERMARK)
        if start < len(extents):
            extents[start:] = [extent(sum(each.entries for each in extents[start:]))]
            written += extents[-1].entries
        most = max(most, len(extents))
    assert most <= 10
    assert written <= 10 * 100_000


def test_a_run_whose_time_is_half_past_is_rewritten_and_one_all_past_is_dropped() -> None:
    old, new = extent(1000, first=0, last=100, replaces=False), extent(10, first=90, last=100, replaces=False)
    assert merge_from([old, new], 40) == 2
    assert merge_from([old, new], 60) == 0
    assert is_gone(old, 101)
    assert not is_gone(old, 100)
    assert not is_gone(extent(5, first=0, last=1), 100)


def test_a_few_runs_that_follow_each_other_in_time_wait_to_be_past() -> None:
    runs = [extent(10, first=10 * turn, last=10 * turn + 9, replaces=False) for turn in range(9)]
    assert merge_from(runs[:8], NO_WATERMARK) == 8
    assert merge_from(runs, NO_WATERMARK) < 8
    assert merge_from([runs[0], extent(10, first=9, last=20, replaces=False)], NO_WATERMARK) == 0
    assert merge_from([extent(10, first=0, last=9), runs[1]], NO_WATERMARK) == 0, "it hides what is older, and stays"


def test_an_extent_says_what_a_run_spans() -> None:
    run = run_of(BUFFER, keys_of(1, 2), cells((0, 1, 5), (1, 1, 3), (1, 1, 9)))
    assert extent_of(run, BUFFER, "id", 12) == Extent("id", 2, 3, 12, False, 3, 9)


def test_keys_of_one_hash_stay_apart_and_each_is_there_once() -> None:
    def colliding(*numbers: int) -> Keys:
        keys, _ = distinct(encode(pa.RecordBatch.from_pydict({"k": list(numbers)}), np.zeros(len(numbers), np.int64)))
        return keys

    given = [range(200), range(0, 400, 3), range(100, 300, 7), (5, 250)]
    runs = []
    for turn, numbers in enumerate(given):
        keys = colliding(*numbers)
        whose = decode(keys, pa.schema([("k", pa.int64())]))["k"].to_pylist()
        runs.append(run_of(PLAIN, keys, cells(*((place, 1000 * turn + k, 0) for place, k in enumerate(whose)))))
    merged = merge(runs, PLAIN, NO_WATERMARK, oldest=True)
    assert merged is not None
    expected = {k: 1000 * turn + k for turn, ks in enumerate(given) for k in ks}
    found = decode(merged.keys, pa.schema([("k", pa.int64())]))["k"].to_pylist()
    assert dict(zip(found, merged.rows["n"].to_pylist(), strict=True)) == expected
    assert len(found) == len(expected)
    asked = colliding(*range(-5, 405))
    assert read(runs, PLAIN, asked, NO_WATERMARK).rows["n"].to_pylist() == [
        expected[k] for k in decode(asked, pa.schema([("k", pa.int64())]))["k"].to_pylist() if k in expected
    ]


def test_bytes_are_compared_without_a_sign() -> None:
    low, high = np.array([1], np.uint8), np.array([200], np.uint8)
    assert compare(low, 0, 1, high, 0, 1) < 0 < compare(high, 0, 1, low, 0, 1)
    assert compare(low, 0, 0, low, 0, 1) < 0 == compare(low, 0, 1, low, 0, 1)
