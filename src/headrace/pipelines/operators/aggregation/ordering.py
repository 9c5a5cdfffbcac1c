"""Values of any type that has an order as numbers with the same order, so that all types are compared as numbers.

Rows (structs) are compared column by column, arrays value by value, the shorter of two that begin alike first; a null
comes before every value, NaN behind every number, and -0.0 is 0.0: as Spark orders them. In what is ranked, a null
comes last whichever way it is ordered.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs, group_rows

ROW_NUMBER, RANK, DENSE_RANK = "row_number", "rank", "dense_rank"
RANKINGS = (ROW_NUMBER, RANK, DENSE_RANK)
_DIRECT = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_duration,
    pa.types.is_time,
)


def is_ordered(kind: pa.DataType) -> bool:
    """Whether values of that type have a least and a greatest; a map has no order."""
    if pa.types.is_struct(kind):
        return all(is_ordered(field.type) for field in kind)
    if pa.types.is_list(kind):
        return is_ordered(kind.value_type)
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


def is_direct(kind: pa.DataType) -> bool:
    """Whether values are numbers already."""
    return any(is_one(kind) for is_one in _DIRECT)


def as_numbers(values: pa.Array) -> NDArray[Any]:
    """The numbers of a direct type; what a null has there means nothing."""
    kind = values.type
    if pa.types.is_floating(kind):
        return np.asarray(values.fill_null(0.0), np.float64)
    if not pa.types.is_integer(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return np.asarray(values.fill_null(0))


def from_numbers(numbers: NDArray[Any], valid: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as values of a direct type again."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return pa.array(numbers, mask=~valid).cast(kind)
    plain = pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64(), mask=~valid)
    return plain.view(kind)


def ranks(columns: Sequence[pa.Array]) -> tuple[Longs, Longs]:
    """The place of each row in the order of some columns (equal rows the same place), and a row for each place.

    Nulls come first; what a place means holds only within one call.
    """
    groups = group_rows(*[_codes(column) for column in columns])
    return groups.numbers, groups.firsts


def _codes(values: pa.Array) -> NDArray[Any]:
    kind = values.type
    if not is_ordered(kind):
        raise BadAggregate(f"values of type {kind} have no order")
    if is_direct(kind) and not pa.types.is_floating(kind) and not values.null_count:
        return as_numbers(values)
    if pa.types.is_struct(kind):
        there = np.asarray(values.is_valid())
        return np.where(there, ranks(values.flatten())[0], -1) if kind.num_fields else there.astype(np.int64)
    if pa.types.is_list(kind):
        values = _as_bytes(values)
    if pa.types.is_floating(kind):
        values = pc.add(values, pa.scalar(0.0, kind))
    encoded = values.dictionary_encode() if not pa.types.is_dictionary(kind) else values
    words = encoded.dictionary
    place = np.empty(len(words), np.int64)
    place[np.asarray(pc.sort_indices(words))] = np.arange(len(words))
    codes = np.asarray(encoded.indices.fill_null(-1))
    return np.where(codes < 0, -1, place[codes] if len(place) else -1)


def _as_bytes(lists: pa.ListArray) -> pa.Array:
    """Arrays as bytes that have their order: the places of their values, the highest byte of each first."""
    sizes = np.asarray(lists.value_lengths().fill_null(0))
    places, _ = ranks([lists.flatten()])
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32) * 4
    data = pa.py_buffer(places.astype(">u4").tobytes())
    there = lists.is_valid()
    return pa.Array.from_buffers(pa.binary(), len(lists), [there.buffers()[1], pa.py_buffer(bounds), data])


def places(columns: Sequence[pa.Array], descending: Sequence[bool]) -> Longs:
    """The place of each row in the order of all columns, equal rows the same; null is last, NaN above all numbers."""
    codes = []
    for column, down in zip(columns, descending, strict=True):
        place, _ = ranks([column])
        place = len(place) - place if down else place
        codes.append(np.where(np.asarray(column.is_valid()), place, len(place) + 1) if column.null_count else place)
    return codes[0] if len(codes) == 1 else group_rows(*codes).numbers


def rank_in_key(key: Longs) -> Longs:
    """0, 1, 2 … within each stretch of equal keys."""
    if not len(key):
        return key
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    return np.arange(len(key)) - np.repeat(starts, np.diff(np.append(starts, len(key))))


def first_of(key: Longs, weight: Longs, limit: int | None) -> Longs:
    """The first `limit` rows of each key, as numbers, each as often as it is there. Keys lie together, in order."""
    there = np.flatnonzero(weight > 0)
    whose, often = key[there], weight[there]
    if limit is not None and len(there):
        upto = np.cumsum(often)
        starts = np.flatnonzero(np.append(True, whose[1:] != whose[:-1]))
        base = np.repeat((upto - often)[starts], np.diff(np.append(starts, len(whose))))
        often = np.clip(limit - (upto - often - base), 0, often)
    return np.repeat(there, often)


def first_ranked(key: Longs, tie: Longs, weight: Longs, limit: int, ranking: str | None) -> tuple[Longs, Longs]:
    """The rows of each key whose rank is at most `limit`, as numbers, each as often as it is there; and their ranks.

    Keys lie together, and within one the rows in their order; rows of the same `tie` are equal in it. The ranking is
    SQL's: `row_number` counts on among equal ones (as None does), `rank` and `dense_rank` give them the same number.
    """
    if ranking in (None, ROW_NUMBER):
        rows = first_of(key, weight, limit)
        return rows, rank_in_key(key[rows]) + 1
    there = np.flatnonzero(weight > 0)
    whose, ties, often = key[there], tie[there], weight[there]
    if not len(there):
        return there, there
    begins = np.append(True, whose[1:] != whose[:-1])
    fresh = begins | np.append(True, ties[1:] != ties[:-1])
    # Before each row: other rows, or other values.
    before = np.cumsum(often) - often if ranking == RANK else np.cumsum(fresh) - 1
    of_tie = np.maximum.accumulate(np.where(fresh, np.arange(len(there)), 0))
    of_key = np.maximum.accumulate(np.where(begins, np.arange(len(there)), 0))
    rank = before[of_tie] - before[of_key] + 1
    kept = rank <= limit
    return np.repeat(there[kept], often[kept]), np.repeat(rank[kept], often[kept])
