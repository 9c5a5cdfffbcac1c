"""What a walk over binary values found, and the columns that are made of it.

A walk fills cells: for each wanted leaf of each record whether it is there, and a number or a place in the arena. What
the writer meant by it is a `Meaning`; making a column checks every value against the wanted type, all rows at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.columns.arrow import booleans, fixed, spans
from headrace.pipelines.columns.decimals import rescaled
from headrace.pipelines.columns.json_grammar import utf8_ok
from headrace.pipelines.columns.walk import Bytes, Longs

Mask = NDArray[np.bool_]
_DAY_MICROS = 24 * 60 * 60 * 1_000_000


class Form(Enum):
    """How a value was written, and so how its cell is to be read."""

    WHOLE = auto()
    UNSIGNED = auto()  # 64 bits without a sign
    SINGLE = auto()  # the bits of a float
    DOUBLE = auto()  # the bits of a double
    BOOLEAN = auto()
    TEXT = auto()  # checked by the walk to be UTF-8
    BYTES = auto()
    SYMBOL = auto()  # the number of a name
    DATE = auto()
    TIME = auto()
    INSTANT = auto()
    DECIMAL = auto()  # bytes, two's complement, the highest first
    UUID = auto()  # sixteen bytes


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a leaf's cells stand for."""

    form: Form
    name: str
    micros: int = 1  # of one unit of an instant or a time
    scale: int = 0  # of a decimal
    symbols: tuple[tuple[int, str], ...] = ()


class Cells:
    """A row per leaf, a column per record."""

    def __init__(self, leaves: int, rows: int) -> None:
        self.found = np.zeros((leaves, rows), np.uint8)
        self.numbers = np.zeros((leaves, rows), np.int64)
        self.at = np.zeros((leaves, rows), np.int64)
        self.size = np.zeros((leaves, rows), np.int64)
        self.fault = np.zeros(rows, np.uint8)
        self.where = np.zeros(rows, np.int64)  # the step of the walk at which a fault was met

    def read_faults(self, reasons: Mapping[int, str], names: Sequence[str]) -> "Faults":
        """Why the walk could not read rows; `names` has the field of each step."""
        faults = Faults()
        faults.mark(
            np.flatnonzero(self.fault), lambda row: reasons[int(self.fault[row])].format(name=names[self.where[row]])
        )
        return faults


class Faults(dict[int, str]):
    """Why rows do not decode: the first reason of each."""

    def mark(self, rows: NDArray[np.intp], reason: Callable[[int], str]) -> None:
        """Give these rows a reason, unless they have one."""
        for row in rows.tolist():
            self.setdefault(row, reason(row))


_WHOLE_LIKE = {Form.WHOLE, Form.UNSIGNED, Form.DATE, Form.TIME, Form.INSTANT}
_REAL_FROM = {Form.WHOLE, Form.UNSIGNED, Form.SINGLE, Form.DOUBLE}


def fits(form: Form, kind: pa.DataType) -> bool:
    """Whether values of this form can stand in a column of this type at all."""
    types = pa.types
    if types.is_signed_integer(kind):
        return form in _WHOLE_LIKE or form is Form.SYMBOL
    if types.is_float64(kind):
        return form in _REAL_FROM
    if types.is_float32(kind):
        return form in _REAL_FROM - {Form.DOUBLE}
    if types.is_boolean(kind):
        return form is Form.BOOLEAN
    if types.is_string(kind):
        return form in {Form.TEXT, Form.BYTES, Form.SYMBOL, Form.UUID}
    if types.is_binary(kind):
        return form in {Form.TEXT, Form.BYTES, Form.UUID}
    if types.is_timestamp(kind):
        return form is Form.INSTANT
    if types.is_date32(kind):
        return form is Form.DATE
    if types.is_time64(kind):
        return form is Form.TIME
    if types.is_decimal128(kind):
        return form in {Form.DECIMAL, Form.UNSIGNED}
    return False


def column(arena: Bytes, cells: Cells, leaf: int, meaning: Meaning, kind: pa.DataType, faults: Faults) -> pa.Array:
    """One leaf's column; rows whose value does not fit are given a fault, and what stands there is of no account."""
    there = cells.found[leaf] != 0
    numbers = cells.numbers[leaf]
    types = pa.types
    if types.is_decimal(kind):
        return _decimals(arena, cells, leaf, meaning, kind, faults)
    if meaning.form is Form.SYMBOL and types.is_string(kind):
        return _symbols(numbers, there, meaning)
    if types.is_signed_integer(kind):
        return _wholes(numbers, there, meaning, kind, faults)
    if types.is_floating(kind):
        return fixed(kind, _reals(numbers, meaning).astype(kind.to_pandas_dtype()), there)
    if types.is_boolean(kind):
        return booleans(numbers != 0, there)
    if types.is_date32(kind):
        return _wholes(numbers, there, meaning, pa.int32(), faults).view(kind)
    if types.is_timestamp(kind) or types.is_time64(kind):
        is_of_day = types.is_time64(kind)
        lowest, highest = (0, _DAY_MICROS - 1) if is_of_day else (-(2**63), 2**63 - 1)
        outside = there & ((numbers > highest // meaning.micros) | (numbers < -(-lowest // meaning.micros)))
        words = "which is not a time of day" if is_of_day else "too large for a time"
        faults.mark(np.flatnonzero(outside), lambda row: f"field {meaning.name!r} is {numbers[row]}, {words}")
        return fixed(kind, np.where(outside, 0, numbers) * meaning.micros, there)
    return _bytes(arena, cells, leaf, meaning, kind, faults)


def without(array: pa.Array, faults: Faults) -> pa.Array:
    """The column, null where a row does not decode."""
    if not faults:
        return array
    gone = np.zeros(len(array), np.bool_)
    gone[list(faults)] = True
    return array.take(pa.array(np.arange(len(array)), mask=gone))


def _wholes(numbers: Longs, there: Mask, meaning: Meaning, kind: pa.DataType, faults: Faults) -> pa.Array:
    low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    outside = (numbers < (0 if meaning.form is Form.UNSIGNED else low)) | (numbers > high)
    shown = numbers.view(np.uint64) if meaning.form is Form.UNSIGNED else numbers
    faults.mark(
        np.flatnonzero(there & outside), lambda row: f"field {meaning.name!r} is {shown[row]}, too large for {kind}"
    )
    return fixed(kind, numbers.astype(kind.to_pandas_dtype()), there)


def _reals(numbers: Longs, meaning: Meaning) -> NDArray[np.generic]:
    match meaning.form:
        case Form.DOUBLE:
            return numbers.view(np.float64)
        case Form.SINGLE:
            return numbers.astype(np.uint32).view(np.float32)
        case Form.UNSIGNED:
            return numbers.view(np.uint64)
    return numbers


def _symbols(numbers: Longs, there: Mask, meaning: Meaning) -> pa.StringArray:
    """The names of numbers; a number without a name, which an open enum allows, is shown as itself."""
    known = np.array([number for number, _ in meaning.symbols], np.int64)
    order = np.argsort(known, kind="stable")
    names = pa.array([meaning.symbols[place][1] for place in order.tolist()], pa.string())
    place = np.searchsorted(known[order], numbers)
    place[place == len(known)] = 0
    unnamed = known[order][place] != numbers if len(known) else np.ones(len(numbers), np.bool_)
    found = names.take(pa.array(place, mask=~there | unnamed))
    if not (there & unnamed).any():
        return found
    return pc.if_else(pa.array(there & unnamed), pc.cast(pa.array(numbers), pa.string()), found)


def _bytes(arena: Bytes, cells: Cells, leaf: int, meaning: Meaning, kind: pa.DataType, faults: Faults) -> pa.Array:
    there = cells.found[leaf] != 0
    at = cells.at[leaf]
    if meaning.form is Form.UUID and pa.types.is_string(kind):
        out = np.zeros(36 * len(at), np.uint8)
        uuids_at(arena, at, there, out)
        return spans(kind, out, np.arange(len(at)) * 36, np.where(there, 36, -1))
    array = spans(kind, arena, at, np.where(there, cells.size[leaf], -1))
    if meaning.form is Form.BYTES and pa.types.is_string(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            ends = at + cells.size[leaf]
            bad = [row for row in np.flatnonzero(there).tolist() if not utf8_ok(arena, at[row], ends[row])]
            faults.mark(np.array(bad, np.intp), lambda _row: f"field {meaning.name!r} is not valid UTF-8")
    return array


def _decimals(arena: Bytes, cells: Cells, leaf: int, meaning: Meaning, kind: pa.DataType, faults: Faults) -> pa.Array:
    there = cells.found[leaf] != 0
    out = np.zeros((len(there), 2), np.int64)
    if meaning.form is Form.UNSIGNED:
        out[:, 0] = cells.numbers[leaf]
    else:
        long = np.zeros(len(there), np.bool_)
        decimals_at(arena, cells.at[leaf], cells.size[leaf], there, out.view(np.uint8).reshape(-1, 16), long)
        there = there & ~long
        faults.mark(np.flatnonzero(long), lambda _row: f"field {meaning.name!r} has more than 38 digits")
    array, unfit = rescaled(out, there, meaning.scale, kind)

    def reason(row: int) -> str:
        units = (int(out[row, 1]) << 64) | (int(out[row, 0]) & (2**64 - 1))
        value = Decimal(f"{units}E-{meaning.scale}")  # not a calculation, which would round
        return f"field {meaning.name!r} is {value}, which does not fit {kind}"

    faults.mark(unfit, reason)
    return array


_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


@compiled
def decimals_at(
    arena: Bytes, at: Longs, size: Longs, there: NDArray[np.bool_], out: Bytes, long: NDArray[np.bool_]
) -> None:
    """Whole numbers, the highest byte first, as Arrow's 16 bytes, the lowest first; `long` where 16 do not do."""
    for row in range(at.shape[0]):
        if not there[row]:
            continue
        start, count = at[row], size[row]
        filler = np.uint8(0xFF if count > 0 and arena[start] >= 0x80 else 0)
        for step in range(16):
            out[row, step] = arena[start + count - 1 - step] if step < count else filler
        for step in range(count - 16):
            if arena[start + step] != filler:
                long[row] = True
        if count > 16 and (out[row, 15] >= 0x80) != (filler == 0xFF):
            long[row] = True


@compiled
def uuids_at(arena: Bytes, at: Longs, there: NDArray[np.bool_], out: Bytes) -> None:
    """Sixteen bytes as 36 characters of text, for each row that is there."""
    for row in range(at.shape[0]):
        if not there[row]:
            continue
        to = row * 36
        for step in range(16):
            if step == 4 or step == 6 or step == 8 or step == 10:
                out[to] = 0x2D
                to += 1
            byte = arena[at[row] + step]
            out[to] = _DIGITS[byte >> 4]
            out[to + 1] = _DIGITS[byte & 15]
            to += 2
