"""Values of any type that has an order as numbers with the same order, so that all types are compared as numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs, grouped

_DIRECT = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_duration,
    pa.types.is_time,
)


def is_ordered(kind: pa.DataType) -> bool:
    """Whether values of that type have a least and a greatest."""
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_map(kind))


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
    groups = grouped(*[_codes(column) for column in columns])
    places = np.empty(len(groups.order), np.int64)
    places[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.ends - groups.starts)
    return places, groups.firsts if len(groups.starts) else np.zeros(0, np.int64)


def _codes(values: pa.Array) -> NDArray[Any]:
    kind = values.type
    if not is_ordered(kind):
        raise BadAggregate(f"values of type {kind} have no order")
    if is_direct(kind) and not pa.types.is_floating(kind) and not values.null_count:
        return as_numbers(values)
    encoded = values.dictionary_encode() if not pa.types.is_dictionary(kind) else values
    words = encoded.dictionary
    place = np.empty(len(words), np.int64)
    place[np.asarray(pc.sort_indices(words))] = np.arange(len(words))
    codes = np.asarray(encoded.indices.fill_null(-1))
    return np.where(codes < 0, -1, place[codes] if len(place) else -1)
