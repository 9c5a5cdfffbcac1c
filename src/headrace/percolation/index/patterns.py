"""Which patterns of a field a token matches: prefixes, wildcards, fuzzy words, regular expressions, ranges of words.

A token of documents is asked about once, and what it matches is kept, so this is Python: what matters is that a token
meets few of the patterns. A prefix or a wildcard stands under its first or last letters or some letters within; a fuzzy
word under everything that it can become by leaving letters out, as a token is looked up by everything that it can
become (two words that are k edits apart have such a thing in common, with k letters left out of each). A regular
expression stands under the letters that it begins with. What has no such letters is asked about every token.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from headrace.percolation.evaluate import token_test
from headrace.percolation.tree import Fuzzy, Prefix, Range, Regexp, Wildcard

Pattern = Prefix | Wildcard | Fuzzy | Regexp | Range
_PIECE: Final = 4
"""So many letters of a pattern's longest piece it stands under."""


class _Under:
    """Facts under a text."""

    def __init__(self) -> None:
        self.facts: dict[str, list[int]] = defaultdict(list)
        self.lengths: dict[int, int] = defaultdict(int)

    def add(self, text: str, fact: int) -> None:
        self.facts[text].append(fact)
        self.lengths[len(text)] += 1

    def remove(self, text: str, fact: int) -> None:
        self.facts[text].remove(fact)
        if not self.facts[text]:
            del self.facts[text]
        self.lengths[len(text)] -= 1
        if not self.lengths[len(text)]:
            del self.lengths[len(text)]


class Patterns:
    """The patterns of one field, each with its fact."""

    def __init__(self) -> None:
        self._tests: dict[int, Pattern] = {}
        self._first, self._last, self._within, self._fuzzy = _Under(), _Under(), _Under(), _Under()
        self._anywhere: set[int] = set()

    def __len__(self) -> int:
        return len(self._tests)

    def add(self, pattern: Pattern, fact: int) -> None:
        self._tests[fact] = pattern
        for under, text in self._stands(pattern):
            under.add(text, fact)
        if _has_no_letters(pattern):
            self._anywhere.add(fact)

    def remove(self, fact: int) -> None:
        pattern = self._tests.pop(fact)
        for under, text in self._stands(pattern):
            under.remove(text, fact)
        self._anywhere.discard(fact)

    def matching(self, token: str) -> list[int]:
        """The facts that are true of a field with this token."""
        near: set[int] = set(self._anywhere)
        for length in self._first.lengths:
            near.update(self._first.facts.get(token[:length], ()))
        for length in self._last.lengths:
            if length <= len(token):
                near.update(self._last.facts.get(token[len(token) - length :], ()))
        for length in self._within.lengths:
            for begin in range(len(token) - length + 1):
                near.update(self._within.facts.get(token[begin : begin + length], ()))
        # What is longer than all of them by more than two edits is near none; without letters, it is a great deal.
        if self._fuzzy.lengths and len(token) <= max(self._fuzzy.lengths) + 2:
            for text in {shorter for edits in (1, 2) for shorter in _left_out(token, edits)} | {token}:
                near.update(self._fuzzy.facts.get(text, ()))
        return self.matching_some(token, near)

    def matching_some(self, token: str, facts: Iterable[int]) -> list[int]:
        """Those of the facts that are true of a field with this token."""
        return [fact for fact in facts if fact in self._tests and token_test(self._tests[fact])(token)]

    def _stands(self, pattern: Pattern) -> Iterator[tuple[_Under, str]]:
        match pattern:
            case Prefix(text=text) if text:
                yield self._first, text
            case Regexp() if begin := _begin(pattern):
                yield self._first, begin
            case Wildcard(parts=parts) if not _has_no_letters(pattern):
                if isinstance(parts[0], str):
                    yield self._first, parts[0]
                elif isinstance(parts[-1], str):
                    yield self._last, parts[-1]
                else:
                    yield self._within, max((each for each in parts if isinstance(each, str)), key=len)[:_PIECE]
            case Fuzzy() if not _has_no_letters(pattern):
                for text in {pattern.text} | {
                    shorter for edits in range(1, pattern.edits + 1) for shorter in _left_out(pattern.text, edits)
                }:
                    yield self._fuzzy, text


def _has_no_letters(pattern: Pattern) -> bool:
    """Whether nothing is known of the letters that a token must have."""
    match pattern:
        case Prefix():
            return not pattern.text
        case Wildcard():
            return not any(isinstance(each, str) and each for each in pattern.parts)
        case Fuzzy():
            return pattern.edits > 2 or pattern.edits >= len(pattern.text)
        case Range():
            return True
        case Regexp():
            return not _begin(pattern)


def _begin(pattern: Regexp) -> str:
    """Letters with which every token begins that the expression matches; perhaps none, though there are some."""
    text = pattern.pattern
    if pattern.ignores_case or "|" in text or "\\" in text:
        return ""
    plain = next((at for at, letter in enumerate(text) if not letter.isalnum()), len(text))
    # What follows may make the last letter optional.
    return text if plain == len(text) else text[: plain - 1] if plain else ""


def _left_out(text: str, edits: int) -> Iterator[str]:
    """What is left of a text without so many of its letters."""
    if edits < len(text):
        yield from map("".join, itertools.combinations(text, len(text) - edits))
