"""Where a shift leads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.offsets import Bounds
from headrace.client.resets import Shift, shift_offset

OFFSETS = st.integers(0, 1000)


@pytest.mark.parametrize(
    ("committed", "by", "expected"),
    [(50, 0, 50), (50, 10, 60), (50, -10, 40), (50, -100, 20), (50, 100, 90), (5, 3, 20), (200, -5, 90)],
)
def test_shifted(committed, by, expected):
    assert shift_offset(committed, Shift(by), Bounds(20, 90)) == expected


@given(OFFSETS, st.integers(-2000, 2000), OFFSETS, OFFSETS)
def test_a_shift_stays_in_the_log(committed, by, one, other):
    held = Bounds(min(one, other), max(one, other))
    place = shift_offset(committed, Shift(by), held)
    assert held.start <= place <= held.end
    assert place == committed + by or place in held
