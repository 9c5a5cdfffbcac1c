"""Rows held against stored queries, and their hits as a column of lists. Pure.

A row is a document: some of its columns are the fields, or one column holds the document as JSON. A row comes out with
thousands of its hits, once if it has no more, and Spark makes a row of each hit: a document is not copied for every
query here. However many queries each matches, what is in memory at a time has an upper bound.

What always holds: the hits of a row are those that `Percolator.percolate` has for it, in the order of their queries'
ids, whatever rows are beside it; a row that is no document has none, and none is the worse for it.
"""

from collections.abc import Iterator, Sequence
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
CALL_ROWS: Final = 4_096
_FIRST_TOGETHER: Final = 64
_MOST_PAIRS: Final = 10_000_000  # of documents and queries that are looked at together
_MANY: Final = 50_000  # hits of a part
_HIGHLIGHTED: Final = 2_000  # the same with highlights, of which each may have a thousand
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

    def held(
        self, percolator: Percolator, rows: pa.RecordBatch, known: int | None, status: str | None
    ) -> "Iterator[Held]":
        """What the queries of a percolator make of some rows, in parts of bounded size that are made as they are asked
        for; without its mapping no query stands."""
        counts = _Counts()
        if self.mapping in percolator.mappings:
            at, together = 0, _FIRST_TOGETHER
            most = max(1, _MOST_PAIRS // (len(percolator) + 1))
            while at < rows.num_rows:
                some = rows.slice(at, min(together, most))
                hold = self._by_columns if self._is_columnar else self._by_document
                before = counts.hits
                for part in hold(percolator, some, known, counts):
                    yield Held(part.rows + at, part.output)
                at += some.num_rows
                # Where each row has many hits, fewer rows are taken together.
                together = min(2 * together, CALL_ROWS) if counts.hits - before < _MANY else max(1, together // 8)
        said = {"documents": rows.num_rows, "refused": counts.refused, "hits": counts.hits, "queries": status}
        yield Held(np.zeros(1, np.int64), self._batch(1, {COUNTED: pa.array([said], COUNTS)}))

    def _by_columns(
        self, percolator: Percolator, rows: pa.RecordBatch, known: int | None, counts: "_Counts"
    ) -> "Iterator[Held]":
        fields = rows.select(list(self.fields))
        percolated = percolator.percolate_batch(fields, self.mapping)
        yield from self._refused(rows, [(each.row, str(each.error)) for each in percolated.refused], counts)
        numbers, which = np.unique(percolated.numbers, return_inverse=True)
        stored = [percolator.numbered(number) for number in numbers.tolist()]
        by_id = np.argsort(np.argsort([each.id for each in stored])) if stored else np.zeros(0, np.int64)
        order = np.lexsort((by_id[which], percolated.rows))
        counts.hits += len(order)
        boosts = np.array([each.boost for each in stored], np.float64)
        of_queries = [
            pa.array([each.id for each in stored], pa.string()),
            pa.array([each.version for each in stored], pa.int64()),
            pa.array([each.tags for each in stored], _TAGS),
            pa.array([each.owner for each in stored], pa.string()),
        ]
        mapping = percolator.mappings[self.mapping]
        document: tuple[int, Document] | None = None
        for begin in range(0, len(order), self._together):
            some = order[begin : begin + self._together]
            at, of = percolated.rows[some].astype(np.int64), pa.array(which[some])
            columns = [column.take(of) for column in of_queries]
            columns.append(pa.array(percolated.scores[some] * boosts[which[some]], pa.float64()))
            if self.highlights:
                found = []
                for row, number in zip(at.tolist(), percolated.numbers[some].tolist(), strict=True):
                    if document is None or document[0] != row:
                        (value,) = fields.slice(row, 1).to_pylist()
                        document = row, read_document(value, mapping)
                    found.append(percolator.highlights(number, document[1]))
                columns.append(_shown(found))
            yield self._hits(rows, _Found(at, columns), known)

    def _by_document(
        self, percolator: Percolator, rows: pa.RecordBatch, known: int | None, counts: "_Counts"
    ) -> "Iterator[Held]":
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
        yield from self._refused(rows, refused, counts)
        pairs = list[tuple[int, Hit]]()
        found = percolator.percolate_each(documents, self.mapping, with_highlights=False)
        for row, document, hits in zip(at, documents, found, strict=True):
            counts.hits += len(hits)
            for hit in hits:
                pairs.append((row, percolator.with_highlights(hit, document) if self.highlights else hit))
                if len(pairs) == self._together:
                    yield self._hits(rows, _found(pairs, with_highlights=self.highlights), known)
                    pairs.clear()
        if pairs:
            yield self._hits(rows, _found(pairs, with_highlights=self.highlights), known)

    @property
    def _together(self) -> int:
        """Hits of a part."""
        return _HIGHLIGHTED if self.highlights else _MANY

    def _hits(self, rows: pa.RecordBatch, found: "_Found", known: int | None) -> "Held":
        """Rows with some of their hits."""
        columns = found.columns
        if self.from_topic:
            columns = [*columns, pa.repeat(pa.scalar(known, pa.int64()), len(found.rows))]
        there, counts = np.unique(found.rows, return_counts=True)
        ends = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        hits = pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(columns, fields=list(self.hit)))
        picked = rows.take(pa.array(there))
        return Held(
            there,
            self._batch(len(there), {**dict(zip(rows.schema.names, picked.columns, strict=True)), HITS: hits}),
        )

    def _refused(self, rows: pa.RecordBatch, refused: Sequence[tuple[int, str]], counts: "_Counts") -> "Iterator[Held]":
        counts.refused += len(refused)
        if refused and self.refused.hands_on:
            places = np.array([row for row, _ in refused], np.int64)
            yield Held(places, self._batch(len(places), {ASIDE: self._aside(rows.take(pa.array(places)), refused)}))

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

    def _batch(self, count: int, cells: dict[str, pa.Array]) -> pa.RecordBatch:
        columns = [cells.get(each.name, pa.nulls(count, each.type)) for each in self.output]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)


@dataclass
class _Counts:
    refused: int = 0
    hits: int = 0


class Held(NamedTuple):
    """Rows of `Reading.output`, and which row each is of; counts are of the first."""

    rows: Longs
    output: pa.RecordBatch


class _Found(NamedTuple):
    """Hits in the order of their rows: whose each is, and the columns."""

    rows: Longs
    columns: list[pa.Array]


def _found(pairs: Sequence[tuple[int, Hit]], *, with_highlights: bool) -> _Found:
    columns = [
        pa.array([hit.id for _, hit in pairs], pa.string()),
        pa.array([hit.version for _, hit in pairs], pa.int64()),
        pa.array([hit.tags for _, hit in pairs], _TAGS),
        pa.array([hit.owner for _, hit in pairs], pa.string()),
        pa.array([hit.score for _, hit in pairs], pa.float64()),
    ]
    if with_highlights:
        columns.append(_shown([hit.highlights for _, hit in pairs]))
    return _Found(np.array([row for row, _ in pairs], np.int64), columns)


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
