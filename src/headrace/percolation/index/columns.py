"""Documents as the loops want them: words, numbers, points and present fields of all rows, by field.

Rows come as documents that are read already, or as an Arrow batch, whose columns of plain types are read whole, without
a Python object a row; whatever else a column holds goes through `documents.py`, which says what its values mean.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from headrace.percolation.documents import POSITION_GAP, Document
from headrace.percolation.index.fields import Use
from headrace.percolation.index.matching import Batch
from headrace.percolation.index.places import as_float, ranks
from headrace.percolation.index.tokenizing import Tokens
from headrace.percolation.tree import ANY_FIELD

if TYPE_CHECKING:
    from headrace.percolation.index.query_index import QueryIndex

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_NO_INTS: Final = np.empty(0, np.int32)


class BatchBuilder:
    """What is known of the rows so far; fields come in any order, each once for a row."""

    def __init__(self, index: "QueryIndex", rows: int) -> None:
        index.forget_words()
        self._index = index
        self._rows = rows
        self._tokens: list[tuple[int, Tokens]] = []
        self._numbers: list[tuple[Longs, Ints, Longs, Flags]] = []
        self._points: list[tuple[Longs, Ints, Floats]] = []
        self._facts: list[tuple[Longs, Ints]] = []

    def add_tokens(self, field: int, tokens: Tokens) -> None:
        self._tokens.append((field, tokens))

    def add_numbers(self, field: int, rows: Longs, values: Floats, is_exact: Flags) -> None:
        """Numbers of rows, each as its nearest float; not one of them is NaN."""
        self._numbers.append((rows, np.full(len(rows), field, np.int32), ranks(values), is_exact))

    def add_points(self, field: int, rows: Longs, points: Floats) -> None:
        """Points of rows: latitude and longitude."""
        self._points.append((rows, np.full(len(rows), field, np.int32), points))

    def add_presence(self, field: int, rows: Longs) -> None:
        """Rows in which a field has a value."""
        fact = self._index.facts.find(field << 32)
        if fact >= 0:
            self._facts.append((rows, np.full(len(rows), fact, np.int32)))

    def add_documents(
        self, documents: Sequence[Document], rows: Longs, wants: Callable[[str], bool] = lambda _: True
    ) -> None:
        """All that is asked of documents, which are these rows; with `wants`, of some fields."""
        fields = self._index.fields
        # Whoever asks for thousands of fields makes documents that have none of them no dearer.
        there = {ANY_FIELD}.union(*(each.present for each in documents))

        def asked(*uses: Use) -> list[tuple[str, int]]:
            return [pair for use in uses for pair in fields.of(use) if pair[0] in there and wants(pair[0])]

        for name, field in asked(Use.TOKENS):
            self.add_tokens(field, self._tokens_of(name, documents, rows))
        for name, field in asked(Use.NUMBERS, Use.DATES):
            read = Document.numbers if fields.uses[field][1] is Use.NUMBERS else Document.dates
            values: list[Sequence[int | float]] = [read(each, name) for each in documents]
            floats = [as_float(value) for value in chain.from_iterable(values)]
            counts = np.repeat(rows, [len(each) for each in values])
            self.add_numbers(
                field,
                counts,
                np.array([value for value, _ in floats], np.float64),
                np.array([exact for _, exact in floats], np.bool_),
            )
        for name, field in asked(Use.POINTS):
            points = [each.points(name) for each in documents]
            flat = np.array(list(chain.from_iterable(points)), np.float64).reshape(-1, 2)
            self.add_points(field, np.repeat(rows, [len(each) for each in points]), flat)
        for name, field in asked(Use.PRESENCE):
            self.add_presence(field, rows[np.array([each.exists(name) for each in documents], np.bool_)])

    def _tokens_of(self, name: str, documents: Iterable[Document], rows: Longs) -> Tokens:
        """The tokens of a field, in the order of their positions."""
        intern = self._index.vocabulary.intern
        words: list[int] = []
        positions: list[int] = []
        counts = np.zeros(self._rows, np.int64)
        for row, document in zip(rows.tolist(), documents, strict=True):
            found: list[tuple[int, str]] = []
            base = 0
            for path in document.searched(name):
                tokens = document.tokens(path, with_numbers=name == ANY_FIELD).positions
                found += sorted((base + place, token) for token, places in tokens.items() for place in places)
                base = found[-1][0] + POSITION_GAP if found else 0
            positions.extend(place for place, _ in found)
            words.extend(intern(token) for _, token in found)
            counts[row] = len(found)
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return Tokens(starts, np.array(words, np.int32), np.array(positions, np.int32))

    def build(self) -> Batch:
        """The batch, complete."""
        index = self._index
        words = np.concatenate([_NO_INTS, *(tokens.words for _, tokens in self._tokens)])
        positions = np.concatenate([_NO_INTS, *(tokens.positions for _, tokens in self._tokens)])
        starts = np.zeros((len(self._tokens), self._rows + 1), np.int64)
        patterns: list[Ints] = [_NO_INTS]
        expansions: list[Ints] = [_NO_INTS]
        base = expanded = 0
        for at, (field, tokens) in enumerate(self._tokens):
            starts[at] = tokens.starts + base
            base += len(tokens.words)
            of_field = index.fields.patterns_of(field)
            if of_field is None:
                patterns.append(np.full(len(tokens.words), -1, np.int32))
                continue
            places = of_field.places(tokens.words, len(index.vocabulary), index.vocabulary.text)
            patterns.append(np.where(places >= 0, places + expanded, places).astype(np.int32))
            expansions.append(of_field.expansions)
            expanded += len(of_field.expansions)
        number_starts, (number_fields, number_ranks, number_exact) = _by_row(
            self._rows, self._numbers, (_NO_INTS, np.empty(0, np.int64), np.empty(0, np.bool_))
        )
        point_starts, (point_fields, points) = _by_row(self._rows, self._points, (_NO_INTS, np.empty((0, 2))))
        fact_starts, (facts,) = _by_row(self._rows, self._facts, (_NO_INTS,))
        return Batch(
            self._rows, np.array([field for field, _ in self._tokens], np.int64), starts, words, positions,
            np.concatenate(patterns), np.concatenate(expansions),
            number_starts, number_fields, number_ranks, number_exact,
            point_starts, point_fields, points, fact_starts, facts,
        )  # fmt: skip


def _by_row(rows: int, parts: Sequence[tuple[NDArray, ...]], empty: tuple[NDArray, ...]) -> tuple[Longs, list[NDArray]]:  # type: ignore[type-arg]
    """Where the values of each row begin, and the values in the order of rows."""
    if not parts:
        return np.zeros(rows + 1, np.int64), list(empty)
    numbers, *columns = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers, minlength=rows) if len(numbers) else np.zeros(rows, np.int64)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return starts, [np.ascontiguousarray(each[order]) for each in columns]
