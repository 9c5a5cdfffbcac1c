"""Lengths of time as text."""

from datetime import timedelta

import pytest

from headrace.pipelines.operators.errors import BadTime
from headrace.pipelines.operators.times import microseconds, positive


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10 minutes", 600_000_000),
        ("1 hour 30 seconds", 3_630_000_000),
        ("1.5s", 1_500_000),
        ("250 ms", 250_000),
        ("2 Days, 1 h", 176_400_000_000),
        ("1 week", 604_800_000_000),
        (timedelta(milliseconds=1), 1_000),
    ],
)
def test_lengths(text: str, length: int) -> None:
    assert microseconds(text, "it") == length


@pytest.mark.parametrize("text", ["", "ten minutes", "5", "minutes", "5 fortnights", "1 minute and"])
def test_what_is_no_length_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadTime, match="'10 minutes'"):
        microseconds(text, "the size")


def test_months_differ_in_length() -> None:
    with pytest.raises(BadTime, match="'30 days'"):
        microseconds("1 month", "the size")


def test_nothing_is_no_size() -> None:
    with pytest.raises(BadTime, match="longer than nothing"):
        positive("0 seconds", "the size")
