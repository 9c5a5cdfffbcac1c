"""Rows that are decoded apart from each other, or not at all, and putting them together."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.columns.decoding import Decoded
from headrace.pipelines.columns.json_exact import DoesNotFit
from headrace.pipelines.columns.walk import Bytes, Longs


def joined(schema: pa.Schema, rows: int, parts: Sequence[tuple[NDArray[np.intp], Decoded]]) -> Decoded:
    """All rows in their order, out of parts that each know which rows they are; together they are every row once."""
    order = np.empty(rows, np.int64)
    order[np.concatenate([places for places, _ in parts] or [np.empty(0, np.intp)])] = np.arange(rows)
    broken = {int(places[row]): reason for places, part in parts for row, reason in part.broken.items()}
    columns = [
        pa.concat_arrays([part.columns[index] for _, part in parts] or [pa.nulls(0, field.type)]).take(pa.array(order))
        for index, field in enumerate(schema)
    ]
    return Decoded(columns, broken)


def from_rows(schema: pa.Schema, rows: Sequence[Sequence[object]], broken: dict[int, str]) -> Decoded:
    """Columns out of rows of Python values."""
    columns = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(schema)]
    return Decoded(columns, broken)


def one_by_one(
    schema: pa.Schema, row_of: Callable[[bytes], list[Any]], arena: Bytes, at: Longs, size: Longs
) -> Decoded:
    """Values that a library reads, each by itself; `row_of` gives a row or raises `DoesNotFit`."""
    nothing: list[Any] = [None] * len(schema)
    rows: list[list[Any]] = []
    broken: dict[int, str] = {}
    for row, (start, count) in enumerate(zip(at.tolist(), size.tolist(), strict=True)):
        found = nothing
        if count >= 0:
            try:
                found = row_of(arena[start : start + count].tobytes())
            except DoesNotFit as error:
                broken[row] = str(error)
        rows.append(found)
    return from_rows(schema, rows, broken)


class Refusal:
    """Reads nothing, and says why of every value that is not null."""

    def __init__(self, schema: pa.Schema, reason: str) -> None:
        self._schema = schema
        self._reason = reason

    def read(self, arena: Bytes, at: Longs, size: Longs) -> Decoded:  # noqa: ARG002 (it looks at no value)
        """Nulls, and the one reason."""
        columns = [pa.nulls(len(at), field.type) for field in self._schema]
        return Decoded(columns, dict.fromkeys(np.flatnonzero(size >= 0).tolist(), self._reason))
