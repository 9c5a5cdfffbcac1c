"""Grouping, look-ups and stretches over columns, against plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators.aggregation.cells import Extreme, Moments, Sum
from headrace.pipelines.operators.grouping import find, group_rows

values = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
pairs = st.lists(st.tuples(st.integers(0, 3), values), max_size=30)


@given(pairs, pairs, st.sampled_from(["left", "right"]))
def test_look_ups(held: list[tuple[int, int]], wanted: list[tuple[int, int]], side: str) -> None:
    held = sorted(held)
    asked = [*wanted, *held[:5]]
    columns = (np.array(column, np.int64) for column in (*_split(held), *_split(asked)))
    found = find(*columns, side=side)
    before = [sum(pair < one if side == "left" else pair <= one for pair in held) for one in asked]
    assert found.tolist() == before


@given(pairs)
def test_groups(given_pairs: list[tuple[int, int]]) -> None:
    key, value = (np.array(column, np.int64) for column in _split(given_pairs))
    groups = group_rows(key, value)
    found = [
        (given_pairs[groups.order[low]], [int(row) for row in groups.order[low:high]])
        for low, high in zip(groups.starts, groups.ends, strict=True)
    ]
    expected = [(pair, [at for at, one in enumerate(given_pairs) if one == pair]) for pair in sorted(set(given_pairs))]
    assert found == expected


numbers = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40)


@given(numbers, st.data())
def test_stretches(held: list[int], data: st.DataObject) -> None:
    edges = st.tuples(st.integers(0, len(held) - 1), st.integers(1, len(held))).filter(lambda pair: pair[0] < pair[1])
    stretches = data.draw(st.lists(edges, min_size=1, max_size=20))
    lows, highs = (np.array(column, np.int64) for column in _split(stretches))
    parts = [held[low:high] for low, high in stretches]
    array = np.array(held, np.int64)
    valid = array % 3 != 0
    assert Sum(array).over(lows, highs).values.tolist() == list(map(sum, parts))
    assert Sum(array.astype(float)).over(lows, highs).values.tolist() == list(map(sum, parts))
    least = Extreme(array, valid, greatest=False).over(lows, highs)
    there = [[number for number in part if number % 3] for part in parts]
    assert least.valid.tolist() == list(map(bool, there))
    assert [n for n, ok in zip(least.values.tolist(), least.valid, strict=True) if ok] == [min(x) for x in there if x]
    moments = Moments(np.ones(len(held)), array.astype(float), np.zeros(len(held))).over(lows, highs)
    assert moments.count.tolist() == list(map(len, parts))
    np.testing.assert_allclose(moments.mean, [np.mean(part) for part in parts], rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(moments.squares, [np.var(part) * len(part) for part in parts], rtol=1e-6, atol=1e3)


def _split(rows: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [row[0] for row in rows], [row[1] for row in rows]
