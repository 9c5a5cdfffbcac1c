"""The index over stored queries: which of them a document could match, and for most of them whether it does.

A query is filed under its rarest necessary facts (`anchors.py`); what else it asks is a program over facts, which is
run when one of them is true (`programs.py`, `matching.py`). Adding or removing a query costs what its own leaves cost:
there is nothing to rebuild, and no tree is kept.

What always holds: `match` gives each pair of row and query once; a decided pair matches, an undecided one may, and no
other pair does. The queries that have no necessary fact are candidates for every document: they are counted, and
refused beyond `most_unanchored`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.percolation.analysis import Analyzer
from headrace.percolation.documents import Document
from headrace.percolation.errors import InvalidQuery
from headrace.percolation.index import places
from headrace.percolation.index.anchors import choose_anchors, necessary_terms
from headrace.percolation.index.blocks import Blocks
from headrace.percolation.index.columns import BatchBuilder
from headrace.percolation.index.facts import (
    EVERY_DOCUMENT,
    FLAG_BITS,
    HAS_PROGRAM,
    HAS_SIBLINGS,
    NONE,
    Facts,
)
from headrace.percolation.index.fields import USE_OF_SCALE, Fields, Use
from headrace.percolation.index.matching import (
    C_CANDIDATES,
    C_PROGRAMS,
    C_SERIAL,
    C_WIDTH,
    TALLIED,
    UNKNOWN_SCORE,
    YES,
    Batch,
    Index,
    match_rows,
)
from headrace.percolation.index.programs import FACT, Naming, facts_in, interval, write_program
from headrace.percolation.index.scores import constant_score, tally
from headrace.percolation.index.tokenizing import Tokenizer
from headrace.percolation.index.vocabulary import Vocabulary
from headrace.percolation.tree import (
    Exists,
    Fuzzy,
    GeoBox,
    GeoDistance,
    MatchAll,
    Prefix,
    Query,
    Range,
    Regexp,
    Scale,
    Term,
    Wildcard,
)

Ints = NDArray[np.int32]

_FEW_ROWS: Final = 200
_WORD: Final = np.int64(0xFFFFFFFF)
MOST_WORDS: Final = 1 << 20
"""So many different words are kept, those of documents included; a word takes some 30 bytes beside its letters."""
_LAST_SERIAL: Final = 2**31 - 2**24
MOST_ROWS: Final = 2**16
"""Of one batch: serial numbers are counted on by it."""


@dataclass(frozen=True)
class Matches:
    """Pairs of a document's row and a query's number, ordered by row."""

    rows: Ints
    numbers: Ints
    is_decided: NDArray[np.bool_]
    """Whether the pair matches for sure; the others have to be evaluated."""
    scores: NDArray[np.float64]
    """What a decided pair is worth; NaN if that has to be evaluated."""

    @classmethod
    def nothing(cls) -> "Matches":
        return cls(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.bool_), np.empty(0, np.float64))

    @classmethod
    def joined(cls, parts: "Sequence[Matches]") -> "Matches":
        """Parts one after the other."""
        columns = ([getattr(each, name) for each in parts] for name in ("rows", "numbers", "is_decided", "scores"))
        return cls(*(np.concatenate(each) for each in columns))


@dataclass(frozen=True)
class IndexStatistics:
    """What an index holds, and what it has done."""

    queries: int
    unanchored: int
    """Queries that are candidates for every document."""
    facts: int
    size_bytes: int
    rows: int
    candidates: int
    programs: int
    """Candidates whose program was run."""


class QueryIndex:
    """Stored queries by number; see the module."""

    def __init__(self, *, most_unanchored: int | None = None, most_words: int = MOST_WORDS) -> None:
        self.vocabulary = Vocabulary()
        self.fields = Fields()
        self.facts = Facts()
        self._most_unanchored = most_unanchored
        self._most_words = most_words
        self._programs = Blocks()
        self._starts = np.full(1024, NONE, np.int32)
        self._query_stamps = np.zeros(1024, np.int32)
        # Few scores are different: a code for each, and one for those that depend on the document.
        self._score_codes = np.zeros(1024, np.uint8)
        self._scores = np.full(256, np.nan)
        self._score_code_of: dict[float, int] = {}
        self._tokenizers: dict[Analyzer, Tokenizer] = {}
        self._word_counts = np.zeros(1024, np.int32)
        self._unanchored = 0
        self._queries = 0
        self._rows = 0
        self._counters = np.zeros(C_WIDTH, np.int64)
        self._naming = Naming(
            fact=self._needed_fact,
            numbers=lambda name, scale: self.fields.number(name, USE_OF_SCALE[scale]),
            points=lambda name: self.fields.number(name, Use.POINTS),
            share=self._share,
        )
        self._batch_room = 4096
        self._pattern_fields: dict[int, str] = {}
        """By fact of a pattern, its field."""

    def __len__(self) -> int:
        return self._queries

    def __contains__(self, number: int) -> bool:
        return number < len(self._starts) and int(self._starts[number]) != NONE

    @property
    def statistics(self) -> IndexStatistics:
        counters = self._counters
        return IndexStatistics(
            self._queries,
            self._unanchored,
            len(self.facts),
            self.size_bytes,
            self._rows,
            int(counters[C_CANDIDATES]),
            int(counters[C_PROGRAMS]),
        )

    @property
    def size_bytes(self) -> int:
        """Of the arrays; patterns are kept in Python beside them."""
        own = self._score_codes.nbytes + self._starts.nbytes + self._query_stamps.nbytes + self._word_counts.nbytes
        parts = (self.vocabulary, self.fields, self.facts, self._programs)
        return own + sum(each.size_bytes for each in parts)

    # --- queries

    def add(self, number: int, query: Query) -> None:
        """File a query under a number that no other has; it matches from the next batch on."""
        if number in self:
            raise InvalidQuery(f"query number {number} is taken: remove the query before it is added again")
        anchors = choose_anchors(query, self._share)
        if anchors.is_missing and self._most_unanchored is not None and self._unanchored >= self._most_unanchored:
            raise InvalidQuery(
                f"the query has to be looked at for every document, as {self._unanchored} others do, and no more are "
                "allowed: add a word, a phrase or a range that every match has"
            )
        self._make_room(number)
        program = self._write(query)
        if anchors.is_missing:
            filed = [EVERY_DOCUMENT]
            self._unanchored += 1
        else:
            filed = list(dict.fromkeys(fact for leaf in anchors.leaves for fact in self._anchor_facts(leaf)))
        has_program, confirm = True, NONE
        if isinstance(query, MatchAll):
            program, has_program = [], False
        elif len(filed) == 1:
            terms = [self.facts.find(self._term_key(each)) for each in necessary_terms(query)]
            others = sorted({each for each in terms if each != filed[0]}, key=self._rarity_of(query))
            confirm = others[0] if others else NONE
            if _only_facts(program) is not None and set(_only_facts(program) or ()) <= {filed[0], confirm}:
                program, has_program = self._without(program, filed[0]), False
        elif set(filed) == _any_fact(program):
            program, has_program = self._without(program, *filed), False
        flags = (HAS_PROGRAM if has_program else 0) | (HAS_SIBLINGS if len(filed) > 1 else 0)
        code, added = self._score(query)
        block = [len(filed) + len(program) + len(added) + 2, len(filed), *filed, *program, *added]
        self._starts[number] = self._programs.store(np.array(block, np.int32))
        for fact in filed:
            self.facts.file(fact, number << FLAG_BITS | flags, confirm)
        self._score_codes[number] = code
        self._queries += 1

    def remove(self, number: int) -> None:
        """Take a query out; no batch matches it from now on."""
        if number not in self:
            raise InvalidQuery(f"there is no query number {number}")
        start = int(self._starts[number])
        length, filed_count = (int(each) for each in self._programs.words[start : start + 2])
        block = self._programs.words[start : start + length].tolist()
        # Behind the program stands what a score is added up of: pairs of fact and code, a code, the number of pairs.
        end = len(block) - 2 - 2 * block[-1] if self._score_codes[number] == TALLIED else len(block)
        filed, program, added = block[2 : 2 + filed_count], block[2 + filed_count : end], block[end:-2:2]
        for fact in filed:
            self.facts.unfile(fact, number)
        for fact in (*filed, *facts_in(program), *added):
            if fact != EVERY_DOCUMENT:
                self._release(fact)
        if filed == [EVERY_DOCUMENT]:
            self._unanchored -= 1
        self._programs.release(start, length)
        self._starts[number] = NONE
        self._queries -= 1

    # --- documents

    def match(self, batch: Batch) -> Matches:
        """The pairs of a batch, whose words are those of the vocabulary as it is now."""
        self._begin(batch)
        index = Index(
            self.facts.keys, self.facts.numbers, self.facts.starts, self.facts.counts, self.facts.stamps,
            self.facts.firsts, self.facts.lasts, self.facts.entries.words, self.fields.levels, self._programs.words,
            self._starts, self._query_stamps, self._word_counts, self._score_codes, self._scores,
        )  # fmt: skip
        true = np.empty(len(self.facts.starts) + 1, np.int32)
        chain = np.empty(len(batch.words), np.int64)
        parts: list[Matches] = []
        row = 0
        while row < batch.rows:
            rows, numbers = np.empty(self._batch_room, np.int32), np.empty(self._batch_room, np.int32)
            verdicts, worths = np.empty(self._batch_room, np.uint8), np.empty(self._batch_room, np.float64)
            reached, found = match_rows(row, index, batch, self._counters, rows, numbers, verdicts, worths, true, chain)
            parts.append(Matches(rows[:found], numbers[:found], verdicts[:found] == YES, worths[:found]))
            if reached < batch.rows:
                self._batch_room = min(2 * self._batch_room, 1 << 22) if reached > row else 4 * self._batch_room
            row = reached
        self._rows += batch.rows
        return Matches.joined(parts) if parts else Matches.nothing()

    def match_documents(self, documents: Sequence[Document]) -> Matches:
        """The pairs of documents that are read already."""
        builder = BatchBuilder(self, len(documents))
        builder.add_documents(documents, np.arange(len(documents)))
        return self.match(builder.build())

    def candidates(self, documents: Sequence[Document]) -> Sequence[Iterable[int]]:
        """For each document the numbers of all queries that it matches, and of few others."""
        found = self.match_documents(documents)
        ends = np.searchsorted(found.rows, np.arange(len(documents)), side="right")
        return [each.tolist() for each in np.split(found.numbers, ends[:-1])] if documents else []

    def tokenizer(self, analyzer: Analyzer) -> Tokenizer:
        """What cuts columns into words of this index, as an analyzer does."""
        return self._tokenizers.setdefault(analyzer, Tokenizer(analyzer, self.vocabulary))

    def forget_words(self) -> None:
        """Forget the words that no query asks for, once they are many; not while a batch is put together."""
        if len(self.vocabulary) <= self._most_words:
            return
        is_of_tokens = np.append(self.fields.is_of_tokens(), False)

        def is_word(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
            return (keys >= 0) & is_of_tokens[np.where(keys >= 0, keys >> 32, -1)]

        keys = self.facts.keys[self.facts.numbers >= 0]
        kept = np.unique(keys[is_word(keys)] & _WORD)
        counts = np.zeros(len(self.vocabulary), np.int32)
        counts[: len(self._word_counts)] = self._word_counts[: len(counts)]
        numbers = np.zeros(len(self.vocabulary), np.int64)
        numbers[kept] = np.arange(len(kept))

        def renamed(keys: NDArray[np.int64]) -> NDArray[np.int64]:
            is_one = is_word(keys)
            return np.where(is_one, (keys & ~_WORD) | numbers[np.where(is_one, keys & _WORD, 0)], keys)

        self.facts.rename(renamed)
        self.vocabulary = self.vocabulary.only(kept)
        self._word_counts = counts[kept]
        self._tokenizers.clear()
        self.fields.forget_words()
        # However many words queries ask for, some room is left for those of documents.
        self._most_words = max(self._most_words, 2 * len(kept))

    def _begin(self, batch: Batch) -> None:
        if len(self.vocabulary) > len(self._word_counts):
            more = len(self.vocabulary) + len(self.vocabulary) // 4 - len(self._word_counts)
            self._word_counts = np.append(self._word_counts, np.zeros(more, np.int32))
        if self._rows > 10**8:
            # What was long ago counts half, and no count overflows.
            self._word_counts //= 2
            self._rows //= 2
        if int(self._counters[C_SERIAL]) > _LAST_SERIAL:
            self._counters[C_SERIAL] = 0
            self.facts.stamps.fill(0)
            self._query_stamps.fill(0)
        for field in np.unique(batch.number_fields).tolist():
            self.fields.see(field, batch.number_ranks[batch.number_fields == field])

    def _score(self, query: Query) -> tuple[int, list[int]]:
        """The code of a query's score, and what it is added up of if that depends on the document."""
        code = self._score_code(constant_score(query))
        found = tally(query) if code == UNKNOWN_SCORE else None
        if found is None:
            return code, []
        base, *codes = (self._score_code(worth) for worth in (found[0], *(worth for _, worth in found[1])))
        if UNKNOWN_SCORE in (base, *codes):
            return UNKNOWN_SCORE, []
        facts = [self._needed_fact(term) for term, _ in found[1]]
        return TALLIED, [*(each for pair in zip(facts, codes, strict=True) for each in pair), base, len(facts)]

    def _score_code(self, worth: float | None) -> int:
        """The code of a score, as long as few are different."""
        if worth is None or (worth not in self._score_code_of and len(self._score_code_of) == TALLIED):
            return UNKNOWN_SCORE
        code = self._score_code_of.setdefault(worth, len(self._score_code_of))
        self._scores[code] = worth
        return code

    # --- facts

    def _write(self, query: Query) -> list[int]:
        return write_program(query, self._naming)

    def _term_key(self, term: Term) -> int:
        return self.fields.number(term.field, Use.TOKENS) << 32 | self.vocabulary.intern(term.text)

    def _needed_fact(self, leaf: Query) -> int:
        """The fact of a leaf that is one, needed once more."""
        match leaf:
            case Term():
                return self.facts.need(self._term_key(leaf))
            case Exists():
                return self.facts.need(self.fields.number(leaf.field, Use.PRESENCE) << 32)
            case Prefix() | Wildcard() | Fuzzy() | Regexp() | Range():
                patterns = self.fields.patterns(self.fields.number(leaf.field, Use.TOKENS))
                fact = patterns.fact(leaf)
                if fact is not None:
                    self.facts.need_again(fact)
                    return fact
                fact = self.facts.new()
                self._pattern_fields[fact] = leaf.field
                patterns.add(leaf, fact)
                return fact
            case _:
                raise AssertionError(f"{leaf} is no fact")

    def _anchor_facts(self, leaf: Query) -> list[int]:
        """The facts under which a leaf is filed, each needed once more."""
        match leaf:
            case Range(scale=Scale.NUMBER | Scale.DATE):
                field = self.fields.number(leaf.field, USE_OF_SCALE[leaf.scale])
                low, high, _ = interval(leaf)
                # One further at each end: there may be numbers that no float holds.
                low = low if low == places.LOWEST else low - 1
                high = high if high == places.HIGHEST else high + 1
                found = [(level, number, 0) for level, number in places.blocks(low, high)] if low <= high else []
            case GeoBox() | GeoDistance():
                field = self.fields.number(leaf.field, Use.POINTS)
                level, cells = places.box_cells(leaf) if isinstance(leaf, GeoBox) else places.distance_cells(leaf)
                found = [(level, across, up) for across, up in cells]
            case _:
                return [self._needed_fact(leaf)]
        for level, _, _ in found:
            self.fields.use_level(field, level)
        return [self.facts.need(int(places.place_key(field, *place))) for place in found]

    def _release(self, fact: int) -> None:
        """A query less needs a fact."""
        name = self._pattern_fields.get(fact)
        if not self.facts.release(fact, has_key=name is None) or name is None:
            return
        patterns = self.fields.patterns(self.fields.number(name, Use.TOKENS))
        del self._pattern_fields[fact]
        for free in patterns.remove(fact):
            self.facts.free(free)

    def _without(self, program: list[int], *filed: int) -> list[int]:
        """What is left to be needed of facts that were needed for a program which is not kept."""
        left = []
        for fact in facts_in(program):
            if fact in filed:
                self._release(fact)
            else:
                left += [FACT, fact]
        return left

    def _make_room(self, number: int) -> None:
        if number >= len(self._starts):
            more = max(number + 1, len(self._starts) + len(self._starts) // 4) - len(self._starts)
            self._starts = np.append(self._starts, np.full(more, NONE, np.int32))
            self._query_stamps = np.append(self._query_stamps, np.zeros(more, np.int32))
            self._score_codes = np.append(self._score_codes, np.zeros(more, np.uint8))

    # --- what is rare

    def _share(self, leaf: Query) -> float:
        """The share of documents, as far as it is known, for which a leaf is true."""
        match leaf:
            case Term():
                return self._term_share(leaf)
            case Range(scale=Scale.NUMBER | Scale.DATE):
                low, high, _ = interval(leaf)
                field = self.fields.number(leaf.field, USE_OF_SCALE[leaf.scale])
                seen = self.fields.share_between(field, low, high)
                if seen is not None:
                    return min(0.99, seen)
                return 0.5 if leaf.low is None or leaf.high is None else 0.1
            case Prefix():
                return max(0.001, 0.9 * 0.4 ** len(leaf.text))
            case Wildcard():
                letters = max((len(each) for each in leaf.parts if isinstance(each, str)), default=0)
                return max(0.002, 0.9 * 0.5**letters)
            case Fuzzy():
                return min(0.9, 4.0 ** (leaf.edits + 1) * self._term_share(Term(leaf.field, leaf.text)) + 0.01)
            case Exists():
                return 0.9
            case GeoBox() | GeoDistance():
                level, cells = places.box_cells(leaf) if isinstance(leaf, GeoBox) else places.distance_cells(leaf)
                return min(0.9, len(cells) * 0.5**level)
            case _:
                return 0.5

    def _term_share(self, term: Term) -> float:
        word = self.vocabulary.intern(term.text)
        if self._rows >= _FEW_ROWS:
            count = int(self._word_counts[word]) if word < len(self._word_counts) else 0
            return min(0.98, (count + 0.25) / (self._rows + 1))
        # No documents yet: what many queries ask for is frequent, and so are short words.
        fact = self.facts.find(self._term_key(term))
        uses = int(self.facts.uses[fact]) if fact >= 0 else 0
        return min(0.98, max(uses / (self._queries + 100), 0.2 / (1 + len(term.text)) ** 2))

    def _rarity_of(self, query: Query) -> Callable[[int], float]:
        shares = {self.facts.find(self._term_key(each)): self._share(each) for each in necessary_terms(query)}
        return lambda fact: shares[fact]


def _only_facts(program: list[int]) -> list[int] | None:
    """The facts that a program asks for, if it asks that all of them are true and nothing else."""
    if program[:1] == [FACT]:
        return [program[1]]
    if program[:1] == [7] and program[2:5] == [0, 0, 0] and all(each == FACT for each in program[6::2]):
        return program[7::2]
    return None


def _any_fact(program: list[int]) -> set[int] | None:
    """The facts that a program asks for, if it asks that one of them is true and nothing else."""
    if (
        program[:1] == [7]
        and program[1] == 0
        and program[3:5] == [0, 1]
        and all(each == FACT for each in program[6::2])
    ):
        return set(program[7::2])
    return None
