"""Values that stand in an arena as bytes of their own making: decimals and UUIDs. Compiled."""

import numpy as np
from numpy.typing import NDArray

from headrace.pipelines.columns.jit import compiled
from headrace.pipelines.columns.walk import Bytes, Longs

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
