"""Whole numbers and decimals summed exactly, on columns: each number in pieces of 32 bits, each piece summed by itself.

A piece is kept in 64 bits, so two thousand million rows fit before anything could overflow; whether the sum as a whole
fits its type is seen when it is put together again.
"""

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.operators.errors import BadAggregate

Limbs = list[NDArray[np.int64]]
_LOW = np.int64(0xFFFFFFFF)
_EXACT = Context(prec=80)


def limbs_needed(kind: pa.DataType) -> int:
    """In how many pieces a number of that type is kept."""
    if pa.types.is_decimal(kind):
        return 4
    return 2 if kind.bit_width > 32 or pa.types.is_uint32(kind) else 1


def split(values: pa.Array) -> Limbs:
    """The pieces of each number, lowest first; of a null they are 0."""
    kind = values.type
    if pa.types.is_decimal(kind):
        values = values.cast(pa.decimal128(38, kind.scale)).fill_null(Decimal(0))
        raw = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)[values.offset : values.offset + len(values)]
        low, high = raw[:, 0], raw[:, 1]
        return [low & _LOW, (low >> 32) & _LOW, high & _LOW, high >> 32]
    numbers = np.asarray(values.fill_null(0)).astype(np.int64)
    return [numbers] if limbs_needed(kind) == 1 else [numbers & _LOW, numbers >> 32]


def joined(limbs: Limbs, what: str) -> NDArray[np.int64]:
    """One or two pieces as whole numbers again; `BadAggregate` if one does not fit."""
    if len(limbs) == 1:
        return limbs[0]
    low, high = _carried(limbs)
    if len(high) and (high.max() >= 2**31 or high.min() < -(2**31)):
        raise BadAggregate(f"{what} is more than a bigint holds: cast the field to decimal(38,0) before it is summed")
    return (high << 32) | low


def whole(limbs: Limbs) -> list[int]:
    """Any pieces as Python's numbers, which are as long as they have to be."""
    return [sum(int(piece) << (32 * at) for at, piece in enumerate(row)) for row in zip(*limbs, strict=True)]


def decimals(limbs: Limbs, valid: NDArray[Any], kind: pa.Decimal128Type, what: str) -> pa.Array:
    """Pieces as decimals."""
    one, two, three, four = _carried(limbs)
    if len(four) and (four.max() >= 2**31 or four.min() < -(2**31)):
        raise BadAggregate(_too_long(what, kind))
    raw = np.empty((len(one), 2), np.int64)
    raw[:, 0] = (two << 32) | one
    raw[:, 1] = (four << 32) | three
    mask = pa.array(valid)
    wide = pa.Array.from_buffers(
        pa.decimal128(38, kind.scale), len(one), [mask.buffers()[1], pa.py_buffer(raw.tobytes())]
    )
    try:
        return wide.cast(kind)
    except pa.ArrowInvalid:
        raise BadAggregate(_too_long(what, kind)) from None


def means(limbs: Limbs, counts: NDArray[np.int64], scale: int, kind: pa.Decimal128Type) -> pa.Array:
    """Pieces divided by counts, rounded half up to the type's digits; null where the count is 0."""
    unit = Decimal(1).scaleb(-kind.scale)
    found = [
        (Decimal(total).scaleb(-scale, _EXACT) / Decimal(n)).quantize(unit, ROUND_HALF_UP, _EXACT) if n else None
        for total, n in zip(whole(limbs), counts.tolist(), strict=True)
    ]
    return pa.array(found, kind)


def _carried(limbs: Limbs) -> Limbs:
    """Each piece but the last brought to 32 bits."""
    found, carry = [], np.zeros(len(limbs[0]), np.int64)
    for piece in limbs[:-1]:
        total = piece + carry
        found.append(total & _LOW)
        carry = total >> 32
    return [*found, limbs[-1] + carry]


def _too_long(what: str, kind: pa.DataType) -> str:
    return f"{what} is more than {kind} holds: cast the field to a decimal with fewer digits behind the point"
