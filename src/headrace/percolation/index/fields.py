"""The fields that queries ask about: a number for each use of one, and what is kept beside the facts.

A field's tokens, its numbers, its dates, its points and whether it has a value are different uses. For tokens there are
the patterns that queries put to them; for numbers and points the sizes of the blocks and cells under which queries are
filed, and a sample of the values that have been seen.
"""

from collections.abc import Callable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from headrace.percolation.index.patterns import Pattern, Patterns
from headrace.percolation.tree import Scale

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

_SAMPLE = 512
_MOST_NEW = 24
UNKNOWN, NO_PATTERN = -2, -1
TextOf = Callable[[int], str]


class Use(Enum):
    TOKENS = "tokens"
    NUMBERS = "numbers"
    DATES = "dates"
    POINTS = "points"
    PRESENCE = "presence"


USE_OF_SCALE = {Scale.NUMBER: Use.NUMBERS, Scale.DATE: Use.DATES, Scale.TEXT: Use.TOKENS}


class TokenPatterns:
    """What tokens of a field match, kept by word."""

    def __init__(self) -> None:
        self.patterns = Patterns()
        self._facts: dict[Pattern, int] = {}
        self._pattern_of: dict[int, Pattern] = {}
        self._dead: list[int] = []
        # By word: where in `expansions` its facts stand, and how many patterns there were when it was asked about.
        self._places = np.full(0, UNKNOWN, np.int32)
        self._asked = np.zeros(0, np.int32)
        self._arrived: list[int] = []
        self.expansions = np.zeros(1024, np.int32)
        self._used = 0

    @property
    def size_bytes(self) -> int:
        return self._places.nbytes + self._asked.nbytes + self.expansions.nbytes

    def fact(self, pattern: Pattern) -> int | None:
        return self._facts.get(pattern)

    def add(self, pattern: Pattern, fact: int) -> None:
        self._facts[pattern] = fact
        self._pattern_of[fact] = pattern
        self.patterns.add(pattern, fact)
        self._arrived.append(fact)

    def remove(self, fact: int) -> list[int]:
        """Take a pattern out; the facts that are free for something else: no word's expansion names them any more."""
        del self._facts[self._pattern_of.pop(fact)]
        self.patterns.remove(fact)
        self._dead.append(fact)
        if len(self._dead) < 1000 + len(self._facts) // 4:
            return []
        freed, self._dead = self._dead, []
        self.forget()
        return freed

    def forget_words(self) -> None:
        """Keep nothing about words."""
        self._places, self._asked = np.full(0, UNKNOWN, np.int32), np.zeros(0, np.int32)
        self.expansions = np.zeros(1024, np.int32)
        self.forget()

    def forget(self) -> None:
        """Ask about all words again."""
        self._places.fill(UNKNOWN)
        self._asked.fill(0)
        self._arrived = list(self._pattern_of)
        self._used = 0

    def places(self, words: Ints, vocabulary_size: int, text: TextOf) -> Ints:
        """Where the facts of each word stand, -1 for none (and for a word that is -1)."""
        if vocabulary_size > len(self._places):
            more = vocabulary_size + vocabulary_size // 4 - len(self._places)
            self._places = np.append(self._places, np.full(more, UNKNOWN, np.int32))
            self._asked = np.append(self._asked, np.zeros(more, np.int32))
        known = words[words >= 0]
        for word in np.unique(known[self._asked[known] < len(self._arrived)]).tolist():
            self._ask(word, text)
        return np.where(words >= 0, self._places[words], np.int32(NO_PATTERN))

    def _ask(self, word: int, text: TextOf) -> None:
        token = text(word)
        new = self._arrived[self._asked[word] :]
        place = int(self._places[word])
        if place == UNKNOWN or len(new) > _MOST_NEW:
            facts = self.patterns.matching(token)
        else:
            old = (
                [] if place == NO_PATTERN else self.expansions[place + 1 : place + 1 + self.expansions[place]].tolist()
            )
            found = self.patterns.matching_some(token, new)
            facts = [*old, *found]
            if not found:
                self._asked[word] = len(self._arrived)
                return
        self._asked[word] = len(self._arrived)
        if not facts:
            self._places[word] = NO_PATTERN
            return
        if self._used + len(facts) + 1 > len(self.expansions):
            self.expansions = np.append(self.expansions, np.zeros(len(self.expansions) // 2 + len(facts), np.int32))
        self._places[word] = self._used
        self.expansions[self._used] = len(facts)
        self.expansions[self._used + 1 : self._used + 1 + len(facts)] = facts
        self._used += 1 + len(facts)


class Fields:
    """Every use of a field that some query makes, or made."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Use], int] = {}
        self.uses: list[tuple[str, Use]] = []
        self.levels = np.zeros(16, np.uint64)
        self._patterns: dict[int, TokenPatterns] = {}
        self._samples: dict[int, Longs] = {}
        self._turn = 0

    def number(self, name: str, use: Use) -> int:
        """The number of a use, which it gets now if it has none."""
        number = self._numbers.setdefault((name, use), len(self.uses))
        if number == len(self.uses):
            self.uses.append((name, use))
            if number == len(self.levels):
                self.levels = np.append(self.levels, np.zeros(number, np.uint64))
        return number

    def find(self, name: str, use: Use) -> int | None:
        return self._numbers.get((name, use))

    def of(self, use: Use) -> list[tuple[str, int]]:
        """The fields of a use, with their numbers."""
        return [(name, number) for (name, each), number in self._numbers.items() if each is use]

    def use_level(self, number: int, level: int) -> None:
        """Something is filed under blocks or cells of this size."""
        self.levels[number] |= np.uint64(1 << level)

    def patterns(self, number: int) -> TokenPatterns:
        return self._patterns.setdefault(number, TokenPatterns())

    def patterns_of(self, number: int) -> TokenPatterns | None:
        found = self._patterns.get(number)
        return found if found is not None and len(found.patterns) else None

    def is_of_tokens(self) -> NDArray[np.bool_]:
        """By number, whether a use is that of tokens."""
        return np.array([use is Use.TOKENS for _, use in self.uses], np.bool_)

    def forget_words(self) -> None:
        """The words are about to get other numbers."""
        for each in self._patterns.values():
            each.forget_words()

    def see(self, number: int, ranks: Longs) -> None:
        """Keep some of a batch's values, spread over the batch."""
        if not len(ranks):
            return
        old = self._samples.get(number, np.empty(0, np.int64))
        self._turn += 1
        new = ranks[self._turn % 7 :: max(1, len(ranks) // 64)][:64]
        self._samples[number] = np.append(old, new)[-_SAMPLE:]

    def share_between(self, number: int, low: int, high: int) -> float | None:
        """The share of the values seen that lie between two ranks, None while too few were."""
        sample = self._samples.get(number)
        if sample is None or len(sample) < 32:
            return None
        return float(np.count_nonzero((sample >= low) & (sample <= high)) + 0.5) / (len(sample) + 1)

    @property
    def size_bytes(self) -> int:
        return self.levels.nbytes + sum(each.size_bytes for each in self._patterns.values())
