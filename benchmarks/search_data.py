"""Stored queries and documents to measure with: the same for both sides, and the same every time.

Words are drawn by Zipf's law. In the realistic mix people ask for words that say something, often for ones that stand
together; in the adversarial one for the commonest, in alternatives, without anything rare.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from headrace.percolation.mapping import Mapping, read_mapping
from headrace.percolation.tree import (
    Boolean,
    Fuzzy,
    Phrase,
    PhraseTerm,
    Prefix,
    Query,
    Range,
    Scale,
    Term,
    Wild,
    Wildcard,
)

MAPPING: Mapping = read_mapping({"fields": {"body": "text", "price": "long", "day": "long"}, "dynamic": False})
WORDS = 200_000
_SHORTEST, _LONGEST = 100, 200
_PRICES, _DAYS = 10_000, 3_650


@cache
def vocabulary() -> list[str]:
    """Words by rank, the frequent ones short."""
    random = np.random.default_rng(1)
    found: dict[str, None] = {}
    while len(found) < WORDS:
        length = 2 + int(np.log10(len(found) + 10) * 1.2) + int(random.integers(0, 4))
        found["".join(map(chr, random.integers(97, 123, length)))] = None
    return list(found)


@cache
def _shares() -> Any:
    shares = 1 / np.arange(1, WORDS + 1)
    return np.cumsum(shares / shares.sum())


def documents(count: int, seed: int) -> list[dict[str, Any]]:
    random, words = np.random.default_rng(seed), vocabulary()
    return [
        {
            "body": " ".join(words[each] for each in np.searchsorted(_shares(), random.random(length))),
            "price": int(random.integers(0, _PRICES)),
            "day": int(random.integers(0, _DAYS)),
        }
        for length in random.integers(_SHORTEST, _LONGEST + 1, count)
    ]


class _Words:
    """Words to ask for."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self._texts = [each["body"].split() for each in documents(2_000, seed=77)]
        self._rank = {word: rank for rank, word in enumerate(vocabulary())}

    def rare(self, lowest: int = 200) -> str:
        """A word that says something: any size of rank is as likely."""
        return vocabulary()[int(np.exp(self.random.uniform(np.log(lowest), np.log(WORDS))))]

    def common(self) -> str:
        return vocabulary()[int(self.random.integers(0, 50))]

    def together(self, count: int, apart: int) -> list[str]:
        """Words of one text, so close to each other, none of them among the commonest."""
        while True:
            text = self._texts[int(self.random.integers(0, len(self._texts)))]
            begin = int(self.random.integers(0, len(text) - count * apart))
            words = text[begin : begin + count * apart : apart]
            if all(self._rank[each] >= 30 for each in words) and any(self._rank[each] >= 200 for each in words):
                return words


def _term(text: str) -> Term:
    return Term("body", text)


def _phrase(words: list[str]) -> Phrase:
    return Phrase("body", tuple(PhraseTerm(word, at) for at, word in enumerate(words)))


def _range(random: Any, field: str, most: int, share: float) -> Range:
    low = int(random.integers(0, most))
    return Range(field, Scale.NUMBER, low, low + max(1, int(most * share)))


def _realistic(words: _Words) -> Query:
    random = words.random
    kind = random.random()
    if kind < 0.25:
        return _term(words.rare(1_000))
    if kind < 0.55:
        count = 2 if kind < 0.45 else 3
        asked = words.together(count, 4) if random.random() < 0.3 else [words.rare() for _ in range(count)]
        return Boolean(must=tuple(map(_term, asked)))
    if kind < 0.75:
        count = int(random.integers(2, 4))
        return _phrase(words.together(count, 1) if random.random() < 0.5 else [words.rare(50) for _ in range(count)])
    if kind < 0.87:
        return Boolean(must=(_term(words.rare()), _range(random, "price", _PRICES, random.random() / 2)))
    if kind < 0.89:
        return Boolean(must=(_range(random, "price", _PRICES, 0.01), _range(random, "day", _DAYS, 0.02)))
    if kind < 0.95:
        asked = [words.rare(1_000) for _ in range(int(random.integers(2, 5)))]
        return Boolean(should=tuple(map(_term, asked)), minimum_should_match=1)
    if kind < 0.97:
        return Boolean(must=(_term(words.rare()),), must_not=(_term(words.common()),))
    if kind < 0.98:
        return Boolean(must=(_term(words.rare()), Prefix("body", words.rare()[:4])))
    if kind < 0.99:
        word = words.rare()
        return Boolean(must=(_term(words.rare()), Wildcard("body", (word[:3], Wild.ANY, word[-2:]))))
    return Fuzzy("body", words.rare(20_000), 1)


def _adversarial(words: _Words) -> Query:
    random = words.random
    kind = random.random()
    common = tuple(_term(words.common()) for _ in range(int(random.integers(3, 9))))
    if kind < 0.3:
        return Boolean(should=common, minimum_should_match=1)
    if kind < 0.5:
        return Boolean(must=common[:3])
    if kind < 0.65:
        return Boolean(should=common, minimum_should_match=3)
    if kind < 0.75:
        return Boolean(must=common[:1], must_not=common[1:3])
    if kind < 0.9:
        return _phrase([each.text for each in common[:2]])
    return Boolean(must=(common[0], _range(random, "price", _PRICES, 0.5)))


MIXES = {"realistic": _realistic, "adversarial": _adversarial}


def queries(mix: str, first: int, last: int) -> Iterator[Query]:
    """The queries of a mix with these numbers; in thousands, each with a seed of its own."""
    assert first % 1_000 == last % 1_000 == 0
    for seed in range(first // 1_000, last // 1_000):
        words = _make_words(seed)
        for _ in range(1_000):
            yield MIXES[mix](words)


@cache
def _shared_words() -> _Words:
    return _Words(0)


def _make_words(seed: int) -> _Words:
    words = _shared_words()
    words.random = np.random.default_rng(1_000_000 + seed)
    return words


def frequencies(count: int) -> dict[str, int]:
    """In how many of so many documents each word is: what a stream's first documents tell."""
    counts: dict[str, int] = {}
    for each in documents(count, seed=5):
        for word in set(each["body"].split()):
            counts[word] = counts.get(word, 0) + 1
    return counts


def write_documents(path: Any, found: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in found))
