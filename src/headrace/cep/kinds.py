"""The kinds of values that compiled conditions work on, and how columns of Arrow become their numbers and back.

BOOL LONG TIME SPAN   64-bit whole numbers; times and spans in microseconds, a date is its midnight in UTC
DECIMAL               the digits as a whole number, with the scale of its type (at most 18 digits)
DOUBLE                fractions; NaN and zero in one form each
TEXT                  the place of a text (or of bytes) among all that a call sees, in the order of their bytes, which
                      is that of their letters; so it has a meaning within a call only
NULL                  what is always unknown
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cep.loops.layout import Doubles, Flags, Longs


class Kind(Enum):
    NULL = "nothing"
    BOOL = "a truth value"
    LONG = "a whole number"
    DOUBLE = "a number"
    DECIMAL = "a decimal"
    TEXT = "a text"
    TIME = "a time"
    SPAN = "an interval"


_MOST_DIGITS: Final = 18
MICROSECONDS: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Type:
    """A kind with the Arrow type that it has outside."""

    kind: Kind
    arrow: pa.DataType

    @property
    def scale(self) -> int:
        return self.arrow.scale if self.kind is Kind.DECIMAL else 0


NULL: Final = Type(Kind.NULL, pa.null())
BOOL: Final = Type(Kind.BOOL, pa.bool_())
LONG: Final = Type(Kind.LONG, pa.int64())
DOUBLE: Final = Type(Kind.DOUBLE, pa.float64())
TEXT: Final = Type(Kind.TEXT, pa.string())
TIME: Final = Type(Kind.TIME, MICROSECONDS)
SPAN: Final = Type(Kind.SPAN, pa.duration("us"))


def type_of(arrow: pa.DataType) -> Type | None:
    """What a column of an Arrow type is; None if compiled conditions have no kind for it."""
    types = pa.types
    if types.is_dictionary(arrow):
        return type_of(arrow.value_type)
    if types.is_null(arrow):
        return NULL
    if types.is_boolean(arrow):
        return BOOL
    if types.is_integer(arrow) and arrow != pa.uint64():
        return Type(Kind.LONG, arrow)
    if types.is_floating(arrow):
        return Type(Kind.DOUBLE, arrow)
    if types.is_decimal(arrow) and arrow.precision <= _MOST_DIGITS and arrow.scale >= 0:
        return Type(Kind.DECIMAL, pa.decimal128(arrow.precision, arrow.scale))
    if types.is_string(arrow) or types.is_large_string(arrow) or arrow == pa.string_view():
        return TEXT
    if types.is_binary(arrow) or types.is_large_binary(arrow):
        return Type(Kind.TEXT, pa.binary())
    if types.is_timestamp(arrow):
        return Type(Kind.TIME, pa.timestamp("us", arrow.tz))
    if types.is_date(arrow):
        return Type(Kind.TIME, pa.date32())
    if types.is_duration(arrow):
        return SPAN
    return None


def numbers_of(array: pa.Array, found: Type) -> tuple[Longs, Flags]:
    """A column that is no text as 64-bit numbers (fractions as their bits), and which of them are known."""
    known = np.ones(len(array), np.bool_) if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
    kind = found.kind
    if kind is Kind.NULL:
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if kind is Kind.DECIMAL:
        array = array.cast(found.arrow)
        words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
        return np.ascontiguousarray(words[array.offset : array.offset + len(array), 0]), known
    if kind is Kind.DOUBLE:
        given = _filled(array.cast(pa.float64()), 0.0) + 0.0  # one form of zero
        return np.where(given != given, np.nan, given).view(np.int64), known
    if kind is Kind.TIME:
        if pa.types.is_date(array.type):
            array = array.cast(pa.timestamp("us"))
        array = array.cast(pa.timestamp("us", getattr(array.type, "tz", None)), safe=False).cast(pa.int64())
    elif kind is Kind.SPAN:
        array = array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    else:
        array = array.cast(pa.int64())
    return _filled(array, 0), known


def _filled(array: pa.Array, value: Any) -> Any:
    return (array.fill_null(value) if array.null_count else array).to_numpy(zero_copy_only=False)


def column_of(longs: Longs, doubles: Doubles, known: Flags, found: Type, texts: pa.Array | None) -> pa.Array:
    """Numbers as a column again; `texts` are those that places of texts mean."""
    missing = ~known
    if found.kind is Kind.NULL:
        return pa.nulls(len(longs))
    if found.kind is Kind.DOUBLE:
        return pa.array(doubles, pa.float64(), mask=missing).cast(found.arrow, safe=False)
    if found.kind is Kind.TEXT:
        assert texts is not None
        return texts.take(pa.array(longs, mask=missing)).cast(found.arrow)
    if found.kind is Kind.DECIMAL:
        words = np.empty((len(longs), 2), np.int64)
        words[:, 0] = longs
        words[:, 1] = longs >> 63
        validity = pc.invert(pa.array(missing)).buffers()[1]
        return pa.Array.from_buffers(found.arrow, len(longs), [validity, pa.py_buffer(words)])
    if found.kind is Kind.BOOL:
        return pa.array(longs != 0, mask=missing)
    column = pa.array(longs, mask=missing)
    if pa.types.is_date(found.arrow):
        return column.cast(pa.timestamp("us")).cast(found.arrow, safe=False)
    return column.cast(found.arrow)
