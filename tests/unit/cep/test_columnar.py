"""The automaton over arrays: what it refuses, what it keeps between calls, its cap. Equal results: tests/property."""

import numpy as np
import pytest

from headrace.cep.columnar import NEVER, ColumnarProgram, Kept, NotColumnar
from headrace.cep.errors import TooManyPartialMatches
from headrace.cep.pattern import Pattern
from headrace.cep.stepping import Cap

A, B = 1, 2  # the bits of the two predicates
A_THEN_B = Pattern.begin("a", "x = 1").followed_by("b", "x = 2").within("10 seconds")


def program(pattern=A_THEN_B, **cap):
    return ColumnarProgram(pattern.compile(["x"]), Cap(**cap))


def step(columnar, kept, *keys, first=0, watermark_us=0, is_final=False):
    """Rows of each key as masks; row number n is at n seconds."""
    masks = np.array([mask for one in keys for mask in one], np.int64)
    rows = np.arange(first, first + len(masks))
    ends = np.cumsum([len(one) for one in keys])
    return columnar.step(kept, ends, rows, rows * 1_000_000, masks, watermark_us=watermark_us, is_final=is_final)


def test_a_match_may_be_spread_over_calls():
    columnar = program()
    begun = step(columnar, Kept.nothing(2), [A, A], [0, B])
    assert len(begun.matches) == 0
    ended = step(columnar, begun.kept, [B], [B], first=5)
    assert list(ended.matches) == [(0, 5_000_000, [(0, 0), (1, 5)]), (0, 5_000_000, [(0, 1), (1, 5)])]
    assert len(ended.kept.runs) == len(ended.kept.nodes) == 0


def test_what_is_kept_says_when_it_has_to_be_looked_at():
    columnar = program()
    kept = step(columnar, Kept.nothing(2), [0, A], [0]).kept
    assert kept.deadlines_us().tolist() == [11_000_000, NEVER]
    over = step(columnar, kept, [], [], watermark_us=11_000_000)
    assert list(over.timed_out) == [(0, 11_000_000, [(0, 1)])]
    assert over.kept.deadlines_us().tolist() == [NEVER, NEVER]


def test_only_the_rows_of_partial_matches_are_kept():
    kept = step(program(), Kept.nothing(1), [A, B, A, B, A]).kept
    assert len(kept.nodes) == len(kept.runs) == 1


@pytest.mark.parametrize(("choice", "expected"), [("drop_oldest", [1, 2]), ("drop_newest", [0, 1])])
def test_the_cap_is_the_matchers(choice, expected):
    stepped = step(program(most=2, choice=choice), Kept.nothing(1), [A, A, A, B])
    assert [rows[0][1] for _, _, rows in stepped.matches] == expected
    assert stepped.dropped == 1


def test_the_cap_may_fail():
    with pytest.raises(TooManyPartialMatches, match="2 partial matches"):
        step(program(most=2, choice="fail"), Kept.nothing(1), [A, A, A, B])


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        (Pattern.begin("a", "x = 1").next("b", "x > a.x"), "condition of b looks at other rows.*: give a schema"),
        (Pattern.begin("a", "x = 1").next("b").every_distinct("x", expires="1 min"), "every-distinct"),
        (Pattern.begin("a").next("b", " AND ".join(f"x <> {number}" for number in range(70))), "62"),
    ],
)  # fmt: skip
def test_what_needs_more_than_masks_is_refused(pattern, sentence):
    with pytest.raises(NotColumnar, match=sentence):
        program(pattern)
