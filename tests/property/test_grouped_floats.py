"""Sums of doubles that can be subtracted from: exactly what a sum of fractions says, rounded once."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators.aggregation.exact import add_pieces, join_doubles, split_doubles

numbers = st.floats(width=64) | st.integers(-100, 100).map(lambda n: n / 8) | st.sampled_from([1e308, -1e308, 5e-324])
weighted = st.lists(st.tuples(st.integers(0, 3), numbers, st.integers(-3, 3)), max_size=30)


def nearest(values: list[tuple[float, int]]) -> float:
    counts = {name: sum(w for x, w in values if is_one(x)) for name, is_one in _SPECIAL.items()}
    if counts["nan"] > 0 or (counts["up"] > 0 and counts["down"] > 0):
        return math.nan
    if counts["up"] > 0 or counts["down"] > 0:
        return math.inf if counts["up"] > 0 else -math.inf
    total = sum((Fraction(x) * w for x, w in values if math.isfinite(x)), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


_SPECIAL = {"nan": math.isnan, "up": lambda x: x == math.inf, "down": lambda x: x == -math.inf}


@given(weighted)
def test_a_sum_is_the_nearest_double(rows: list[tuple[int, float, int]]) -> None:
    key, value, weight = (np.array([row[at] for row in rows], kind) for at, kind in enumerate((int, float, int)))
    found = join_doubles(4, *add_pieces(*split_doubles(key, value, weight)))
    for group in range(4):
        want = nearest([(x, w) for k, x, w in rows if k == group])
        assert found[group] == want or (math.isnan(found[group]) and math.isnan(want))


@given(weighted)
def test_what_is_taken_away_leaves_nothing(rows: list[tuple[int, float, int]]) -> None:
    key, value, weight = (np.array([row[at] for row in rows], kind) for at, kind in enumerate((int, float, int)))
    there, back = split_doubles(key, value, weight), split_doubles(key[::-1], value[::-1], -weight[::-1])
    left = add_pieces(*(np.concatenate(pair) for pair in zip(there, back, strict=True)))
    assert [len(column) for column in left] == [0, 0, 0]
