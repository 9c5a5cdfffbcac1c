"""Rows held against stored queries, and their hits as a column of lists. Pure.

A row is a document: some of its columns are the fields, or one column holds the document as JSON. Every row comes out
at most once, with all its hits, and Spark makes a row of each hit: a document is not copied for every query here.

What always holds: the hits of a row are those that `Percolator.percolate` has for it, in the order of their queries'
ids, whatever rows are beside it; a row that is no document has none, and none is the worse for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.percolation.documents import Document, parse_document, read_document
from headrace.percolation.errors import InvalidDocument
from headrace.percolation.evaluate import Highlight
from headrace.percolation.percolator import Hit, Percolator
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, aside_field

HITS, COUNTED = "_hits", "_percolated"
COUNTS: Final = pa.struct(
    [
        pa.field("documents", pa.int64()),
        pa.field("refused", pa.int64()),
        pa.field("hits", pa.int64()),
        pa.field("queries", pa.string()),
    ]
)
"""What a call says of itself, and how the queries stand, as JSON."""
_HIGHLIGHT: Final = pa.struct(
    [
        pa.field("field", pa.string()),
        pa.field("value", pa.int32()),
        pa.field("start", pa.int32()),
        pa.field("end", pa.int32()),
        pa.field("text", pa.string()),
    ]
)
_TAGS: Final = pa.list_(pa.string())
_HIT: Final = (
    pa.field("query", pa.string()),
    pa.field("query_version", pa.int64()),
    pa.field("query_tags", _TAGS),
    pa.field("query_owner", pa.string()),
    pa.field("query_score", pa.float64()),
)
_HIGHLIGHTS: Final = pa.field("query_highlights", pa.list_(_HIGHLIGHT))
KNOWN: Final = pa.field("queries_offset", pa.int64())
"""Up to which offset of their topic queries were known to a hit; the record there was not."""


@dataclass(frozen=True)
class Reading:
    """How rows with these columns are documents."""

    rows: pa.Schema
    fields: tuple[str, ...]
    json: str | None
    mapping: str
    highlights: bool
    refused: Stragglers
    from_topic: bool

    @cached_property
    def hit(self) -> tuple[pa.Field, ...]:
        """What is said of a hit."""
        return (*_HIT, *((_HIGHLIGHTS,) if self.highlights else ()), *((KNOWN,) if self.from_topic else ()))

    @cached_property
    def output(self) -> pa.Schema:
        """The row's columns, its hits, why it was refused, and counts in a row of their own."""
        row = [field.with_nullable(True) for field in self.rows]
        hits = pa.field(HITS, pa.list_(pa.struct(self.hit)))
        return pa.schema([*row, hits, aside_field(self.rows, self.refused), pa.field(COUNTED, COUNTS)])

    @property
    def _is_columnar(self) -> bool:
        """A map is an object to a document, and Arrow would have it as a list of pairs."""
        return self.json is None and not any(_has_map(self.rows.field(name).type) for name in self.fields)

    def held(self, percolator: Percolator, rows: pa.RecordBatch, known: int | None, status: str | None) -> "Held":
        """What the queries of a percolator make of some rows; without its mapping no query stands."""
        if self.mapping not in percolator.mappings:
            found, refused = _NOTHING, list[tuple[int, str]]()
        else:
            hold = self._by_columns if self._is_columnar else self._by_document
            found, refused = hold(percolator, rows)
        return self._shown(rows, found, refused, known, status)

    def _by_columns(self, percolator: Percolator, rows: pa.RecordBatch) -> "tuple[_Found, list[tuple[int, str]]]":
        fields = rows.select(list(self.fields))
        percolated = percolator.percolate_batch(fields, self.mapping)
        refused = [(each.row, str(each.error)) for each in percolated.refused]
        numbers, which = np.unique(percolated.numbers, return_inverse=True)
        stored = [percolator.numbered(number) for number in numbers.tolist()]
        by_id = np.argsort(np.argsort([each.id for each in stored])) if stored else np.zeros(0, np.int64)
        order = np.lexsort((by_id[which], percolated.rows))
        at, of = percolated.rows[order].astype(np.int64), pa.array(which[order])
        boosts = np.array([each.boost for each in stored], np.float64)
        scores = percolated.scores[order] * boosts[which[order]]
        columns = [
            pa.array([each.id for each in stored], pa.string()).take(of),
            pa.array([each.version for each in stored], pa.int64()).take(of),
            pa.array([each.tags for each in stored], _TAGS).take(of),
            pa.array([each.owner for each in stored], pa.string()).take(of),
            pa.array(scores, pa.float64()),
        ]
        if self.highlights:
            there = np.unique(at)
            mapping = percolator.mappings[self.mapping]
            documents: dict[int, Document] = {
                row: read_document(value, mapping)
                for row, value in zip(there.tolist(), fields.take(pa.array(there)).to_pylist(), strict=True)
            }
            chosen = zip(at.tolist(), percolated.numbers[order].tolist(), strict=True)
            columns.append(_shown([percolator.highlights(number, documents[row]) for row, number in chosen]))
        return _Found(at, columns), refused

    def _by_document(self, percolator: Percolator, rows: pa.RecordBatch) -> "tuple[_Found, list[tuple[int, str]]]":
        mapping = percolator.mappings[self.mapping]
        refused, documents, at = list[tuple[int, str]](), list[Document](), list[int]()
        if self.json is not None:
            values: list[Any] = rows.column(self.json).to_pylist()
            read: Any = parse_document
        else:
            values, read = rows.select(list(self.fields)).to_pylist(maps_as_pydicts="lossy"), read_document
        for row, value in enumerate(values):
            if value is None:
                continue  # a tombstone says that there is no document
            try:
                documents.append(read(value, mapping))
                at.append(row)
            except InvalidDocument as error:
                refused.append((row, str(error)))
        found = percolator.percolate_many(documents, self.mapping, with_highlights=self.highlights)
        hits: list[Hit] = list(chain.from_iterable(found))
        columns = [
            pa.array([each.id for each in hits], pa.string()),
            pa.array([each.version for each in hits], pa.int64()),
            pa.array([each.tags for each in hits], _TAGS),
            pa.array([each.owner for each in hits], pa.string()),
            pa.array([each.score for each in hits], pa.float64()),
        ]
        if self.highlights:
            columns.append(_shown([each.highlights for each in hits]))
        return _Found(np.repeat(np.array(at, np.int64), [len(each) for each in found]), columns), refused

    def _shown(
        self,
        rows: pa.RecordBatch,
        found: "_Found",
        refused: Sequence[tuple[int, str]],
        known: int | None,
        status: str | None,
    ) -> "Held":
        """Rows with hits, then those that were refused, then the counts."""
        columns = found.columns
        if self.from_topic and columns:
            columns = [*columns, pa.repeat(pa.scalar(known, pa.int64()), len(found.rows))]
        there, counts = np.unique(found.rows, return_counts=True)
        parts = [self._row(rows.num_rows, len(refused), len(found.rows), status)]
        whose = [np.zeros(1, np.int64)]
        if len(there):
            ends = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
            hits = pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(columns, fields=list(self.hit)))
            picked = rows.take(pa.array(there))
            parts.append(
                self._batch(len(there), {**dict(zip(rows.schema.names, picked.columns, strict=True)), HITS: hits})
            )
            whose.append(there)
        if refused and self.refused.hands_on:
            places = np.array([row for row, _ in refused], np.int64)
            parts.append(self._batch(len(places), {ASIDE: self._aside(rows.take(pa.array(places)), refused)}))
            whose.append(places)
        return Held(np.concatenate(whose), pa.concat_batches(parts))

    def _aside(self, rows: pa.RecordBatch, refused: Sequence[tuple[int, str]]) -> pa.StructArray:
        kind = self.output.field(ASIDE).type
        row = kind.field("row").type
        cells = {
            "reason": pa.array([reason for _, reason in refused], pa.string()),
            "rows": pa.array(np.ones(len(refused), np.int64)),
            "row": pa.StructArray.from_arrays([rows.column(each.name) for each in row], fields=list(row)),
        }
        arrays = [cells.get(each.name, pa.nulls(len(refused), each.type)) for each in kind]
        return pa.StructArray.from_arrays(arrays, fields=list(kind))

    def _row(self, documents: int, refused: int, hits: int, status: str | None) -> pa.RecordBatch:
        said = {"documents": documents, "refused": refused, "hits": hits, "queries": status}
        return self._batch(1, {COUNTED: pa.array([said], COUNTS)})

    def _batch(self, count: int, cells: dict[str, pa.Array]) -> pa.RecordBatch:
        columns = [cells.get(each.name, pa.nulls(count, each.type)) for each in self.output]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)


class Held(NamedTuple):
    """Rows of `Reading.output`, and which row each is of; counts are of the first."""

    rows: Longs
    output: pa.RecordBatch


class _Found(NamedTuple):
    """Hits in the order of their rows: whose each is, and the columns."""

    rows: Longs
    columns: list[pa.Array]


_NOTHING: Final = _Found(np.zeros(0, np.int64), [])


def _shown(found: Sequence[Sequence[Highlight]]) -> pa.ListArray:
    cells = list(chain.from_iterable(found))
    ends: NDArray[np.int32] = np.zeros(len(found) + 1, np.int32)
    np.cumsum([len(each) for each in found], out=ends[1:])
    columns = [pa.array([getattr(each, field.name) for each in cells], field.type) for field in _HIGHLIGHT]
    return pa.ListArray.from_arrays(pa.array(ends), pa.StructArray.from_arrays(columns, fields=list(_HIGHLIGHT)))


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(place).type) for place in range(kind.num_fields))
