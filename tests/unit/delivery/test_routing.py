"""Patterns over words: what they match, which ones are refused, and that no text makes a match slow."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.delivery.routing import InvalidPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("orders.eu", "orders.eu", True),
        ("orders.eu", "orders.us", False),
        ("orders.eu", "ordersxeu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.de", False),
        ("orders.*.new", "orders.eu.new", True),
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.de", True),
        ("#.new", "orders.eu.new", True),
        ("#.new", "new", True),
        ("a.#.z", "a.z", True),
        ("a.#.z", "a.b.c.z", True),
        ("a.#.z", "a.b.c", False),
        ("orders.>", "orders.eu.de", True),
        ("orders.>", "orders", False),
        ("#", "", True),
        ("#", "anything.at.all", True),
        ("größe.*", "größe.ü\n", True),
    ],
)
def test_a_pattern_matches_by_words(pattern: str, text: str, expected: bool) -> None:
    assert Pattern(pattern).matches(text) is expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "an empty word"),
        ("orders..eu", "an empty word"),
        ("orders.>.eu", "goes on after >"),
        ("orders.e*", "stand for whole words"),
        ("a" * 2000, "2000 characters"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused_in_one_sentence(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidPattern, match=reason) as refused:
        Pattern(pattern)
    assert "\n" not in str(refused.value)


def matches_by_words(pattern: list[str], words: list[str]) -> bool:
    """The definition, word by word."""
    if not pattern:
        return not words
    first, *rest = pattern
    if first == "#":
        return any(matches_by_words(rest, words[skipped:]) for skipped in range(len(words) + 1))
    if first == ">":
        return bool(words)
    return bool(words) and first in ("*", words[0]) and matches_by_words(rest, words[1:])


WORDS = st.sampled_from(["a", "b", "c"])


@given(st.lists(WORDS | st.sampled_from(["*", "#"]), min_size=1, max_size=6), st.lists(WORDS, min_size=1, max_size=6))
def test_patterns_match_as_they_are_defined(pattern: list[str], words: list[str]) -> None:
    assert Pattern(".".join(pattern)).matches(".".join(words)) is matches_by_words(pattern, words)


def test_a_long_text_is_matched_in_linear_time() -> None:
    pattern = Pattern("#.a." * 20 + "#.z")
    text = ".".join(["a"] * 100_000)
    began = time.process_time()
    assert not pattern.matches(text)
    assert time.process_time() - began < 30, "backtracking would take years"
