"""Rows written as words: `a1 b c2` are three rows, a second apart, of the kinds a, b and c."""

from collections.abc import Iterator
from typing import Any

from headrace.cep.match import Match
from headrace.cep.pattern import Pattern


def rows(text: str) -> Iterator[dict[str, Any]]:
    for second, word in enumerate(text.split()):
        yield {"t": second * 1000, "kind": word[0], "n": word}


def is_a(*letters: str) -> str:
    """The condition that a row is of one of these kinds."""
    return " OR ".join(f"kind = '{letter}'" for letter in letters)


def words(match: Match) -> str:
    return " ".join(event.values["n"] for _, event in match)


def found(pattern: Pattern, text: str) -> list[str]:
    """The matches in some rows, each as the words of its rows."""
    return [words(match) for match in pattern.matches(rows(text), time="t", bounded=True)]
