"""Rows of an Arrow batch as the loops want them: columns of plain types whole, the others by way of documents.

A column is plain if its type says what its values are, whatever they are: strings where the mapping has text or a
keyword, numbers where it has numbers, and so on. What else there is becomes documents of the remaining columns,
so that `documents.py` alone says what it means, and which rows do not fit.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from headrace.percolation.documents import Document, read_document
from headrace.percolation.errors import InvalidDocument
from headrace.percolation.index.columns import BatchBuilder
from headrace.percolation.index.fields import Use
from headrace.percolation.index.query_index import QueryIndex
from headrace.percolation.index.tokenizing import Tokens
from headrace.percolation.mapping import Kind, Mapping
from headrace.percolation.tree import ANY_FIELD

_LARGEST_EXACT: Final = 2**53


class Refused(NamedTuple):
    """A row that is no document of its mapping."""

    row: int
    error: InvalidDocument


def add_batch(builder: BatchBuilder, index: QueryIndex, batch: Any, mapping: Mapping) -> list[Refused]:
    """Give a builder all that is asked of the rows of a batch; the rows that do not fit have nothing."""
    asks_any = index.fields.find(ANY_FIELD, Use.TOKENS) is not None
    # A name with a dot may be that of a field within another column, whose values are then in two places.
    has_dots = any("." in name for name in batch.schema.names)
    plain, rest = list[str](), list[str]()
    for name in batch.schema.names:
        is_plain = not asks_any and not has_dots and _is_plain(index, batch.column(name), name, mapping)
        (plain if is_plain else rest).append(name)
    refused: list[Refused] = []
    if rest:
        documents: list[Document] = []
        for row, value in enumerate(batch.select(rest).to_pylist()):
            try:
                documents.append(read_document(value, mapping))
            except InvalidDocument as error:
                refused.append(Refused(row, error))
                documents.append(_EMPTY)
        tops = set(plain)
        builder.add_documents(documents, np.arange(len(batch)), lambda field: field.partition(".")[0] not in tops)
    keeps = np.ones(len(batch), np.bool_)
    keeps[[each.row for each in refused]] = False
    for name in plain:
        _add_column(builder, index, name, batch.column(name), mapping, None if keeps.all() else keeps)
    return refused


_EMPTY: Final = Document({}, Mapping())


def _is_plain(index: QueryIndex, column: Any, name: str, mapping: Mapping) -> bool:
    """Whether a column's type says all."""
    if any(path.startswith(f"{name}.") for path in mapping.fields):
        return False
    kind, of = mapping.field(name).kind, column.type
    is_asked = {use: index.fields.find(name, use) is not None for use in Use}
    if not mapping.dynamic and kind is Kind.DYNAMIC:
        return not pt.is_nested(of)
    if pt.is_string(of) or pt.is_large_string(of):
        return kind in (Kind.TEXT, Kind.KEYWORD) or (kind is Kind.DYNAMIC and not is_asked[Use.DATES])
    if pt.is_integer(of):
        return kind in (Kind.LONG, Kind.DOUBLE, Kind.DYNAMIC)
    if pt.is_floating(of) and not pt.is_float16(of):
        return kind in (Kind.DOUBLE, Kind.DYNAMIC) and not pc.any(pc.is_nan(column)).as_py()
    if pt.is_boolean(of):
        return kind in (Kind.BOOLEAN, Kind.DYNAMIC)
    if pt.is_date32(of) or (pt.is_timestamp(of) and of.unit in ("s", "ms", "us")):
        return kind is Kind.DATE or (kind is Kind.DYNAMIC and not is_asked[Use.TOKENS])
    return False


def _add_column(
    builder: BatchBuilder, index: QueryIndex, name: str, column: Any, mapping: Mapping, keeps: NDArray[np.bool_] | None
) -> None:
    """All that queries ask of a plain column."""
    if keeps is not None:
        column = pc.if_else(pa.array(keeps), column, pa.scalar(None, column.type))
    fields, of, described = index.fields, column.type, mapping.field(name)
    if described.kind is Kind.DYNAMIC and not mapping.dynamic:
        return
    is_there = np.asarray(column.is_valid())
    rows = np.flatnonzero(is_there)
    if (field := fields.find(name, Use.PRESENCE)) is not None:
        builder.add_presence(field, rows)
    if (field := fields.find(name, Use.TOKENS)) is not None:
        if pt.is_boolean(of):
            words = [index.vocabulary.intern(each) for each in ("false", "true")]
            values = np.asarray(column.fill_null(False))[is_there]
            starts = np.concatenate(([0], np.cumsum(is_there))).astype(np.int64)
            codes = np.array(words, np.int32)[values.astype(np.int32)]
            builder.add_tokens(field, Tokens(starts, codes, np.zeros(len(codes), np.int32)))
        elif pt.is_string(of) or pt.is_large_string(of):
            builder.add_tokens(field, index.tokenizer(described.analyzer).tokenize(column))
    if (field := fields.find(name, Use.NUMBERS)) is not None and (pt.is_integer(of) or pt.is_floating(of)):
        values = np.asarray(column.drop_null())
        is_exact = np.ones(len(values), np.bool_)
        if pt.is_integer(of) and of.bit_width == 64:
            large = np.abs(values.astype(np.float64)) >= _LARGEST_EXACT  # the next one above is rounded to it
            is_exact[large] = [int(float(each)) == each for each in values[large].tolist()]
        builder.add_numbers(field, rows, values.astype(np.float64), is_exact)
    if (field := fields.find(name, Use.DATES)) is not None and (pt.is_date32(of) or pt.is_timestamp(of)):
        # Floats hold microseconds exactly until the year 2255.
        us = np.asarray(column.drop_null().cast(pa.timestamp("us")).cast(pa.int64()))
        builder.add_numbers(field, rows, us.astype(np.float64), np.abs(us) <= _LARGEST_EXACT)
