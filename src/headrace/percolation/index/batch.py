"""Stored queries held against a whole Arrow batch: pairs of row and query with their scores, as arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.percolation.documents import Document, read_document
from headrace.percolation.evaluate import score
from headrace.percolation.index.arrow import Refused, add_batch
from headrace.percolation.index.columns import BatchBuilder
from headrace.percolation.index.query_index import MOST_ROWS, Matches, QueryIndex
from headrace.percolation.mapping import DYNAMIC, Mapping
from headrace.percolation.tree import Query


@dataclass(frozen=True)
class Percolated:
    """The pairs of a batch that match, ordered by row and number, and the rows that could not be read."""

    rows: NDArray[np.int32]
    numbers: NDArray[np.int32]
    scores: NDArray[np.float64]
    refused: Sequence[Refused] = ()


def percolate_batch(
    index: QueryIndex,
    batch: Any,
    query_of: Callable[[int], Query],
    mapping: Mapping = DYNAMIC,
    *,
    with_scores: bool = True,
) -> Percolated:
    """What the rows of an Arrow batch match; `query_of` is asked for the queries that arrays alone do not settle.

    Without scores a pair is worth 1, or what all matches of its query are.
    """
    parts: list[Matches] = []
    refused: list[Refused] = []
    for first in range(0, len(batch), MOST_ROWS):
        part = batch.slice(first, MOST_ROWS)
        builder = BatchBuilder(index, len(part))
        refused += [Refused(first + row, error) for row, error in add_batch(builder, index, part, mapping)]
        found = index.match(builder.build())
        parts.append(Matches(found.rows + np.int32(first), found.numbers, found.is_decided, found.scores))
    documents: dict[int, Document] = {}

    def document(row: int) -> Document:
        if row not in documents:
            documents[row] = read_document(batch.slice(row, 1).to_pylist()[0], mapping)
        return documents[row]

    if not parts:
        parts = [Matches.nothing()]
    # A row that was refused is no document, though queries that exclude only would match it.
    joined = Matches.joined(parts)
    if not with_scores:
        joined = replace(joined, scores=np.where(np.isnan(joined.scores), 1.0, joined.scores))
    settled = settle(joined, document, query_of, np.array([row for row, _ in refused], np.int32))
    return Percolated(settled.rows, settled.numbers, settled.scores, tuple(refused))


def settle(
    found: Matches,
    document: Callable[[int], Document],
    query_of: Callable[[int], Query],
    without: NDArray[np.int32] | None = None,
) -> Matches:
    """The pairs that match, all decided and with their scores, ordered by row and number."""
    keeps = np.ones(len(found.rows), np.bool_) if without is None or not len(without) else ~np.isin(found.rows, without)
    scores = found.scores
    unsettled = np.flatnonzero(keeps & (~found.is_decided | np.isnan(scores)))
    if len(unsettled):
        scores = scores.copy()
    for at in unsettled.tolist():
        worth = score(query_of(int(found.numbers[at])), document(int(found.rows[at])))
        keeps[at] = worth is not None
        scores[at] = worth
    rows, numbers, scores = found.rows[keeps], found.numbers[keeps], scores[keeps]
    order = np.lexsort((numbers, rows))
    return Matches(rows[order], numbers[order], np.ones(len(order), np.bool_), scores[order])
