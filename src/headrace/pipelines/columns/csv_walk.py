"""CSV's grammar over one value per record: so that each is known to be one row before Arrow reads them all. Compiled.

A quote is one only where a field begins; inside quotes it is doubled. What follows a closing quote up to the delimiter
belongs to the field, as Arrow's reader has it.
"""

import numpy as np
from numpy.typing import NDArray

from headrace.pipelines.columns.jit import compiled
from headrace.pipelines.columns.walk import Bytes, Longs

FINE, OPEN_QUOTE, LINE_BREAK, FIELDS = range(4)
_LF, _CR = 0x0A, 0x0D


@compiled
def walk_lines(
    arena: Bytes, value_at: Longs, value_size: Longs, delimiter: int, quote: int, fields: int,
    sizes: Longs, counts: Longs, fault: Bytes,
) -> bool:  # fmt: skip
    """Each row's size without its line's end, its number of fields, and its fault; whether one holds a line break."""
    has_breaks = False
    for row in range(value_at.shape[0]):
        sizes[row] = value_size[row]
        if value_size[row] < 0:
            continue
        at = value_at[row]
        end = at + value_size[row]
        if end > at and arena[end - 1] == _LF:
            end -= 1
        if end > at and arena[end - 1] == _CR:
            end -= 1
        sizes[row] = end - at
        count = 1
        begins = True
        quoted = False
        code = FINE
        while at < end:
            byte = arena[at]
            if quoted:
                if byte == quote:
                    if at + 1 < end and arena[at + 1] == quote:
                        at += 1
                    else:
                        quoted = False
                elif byte in (_LF, _CR):
                    has_breaks = True
            elif byte == quote and begins:
                quoted = True
                begins = False
            elif byte == delimiter:
                count += 1
                begins = True
            else:
                begins = False
                if byte in (_LF, _CR):
                    code = LINE_BREAK
            at += 1
        if quoted:
            code = OPEN_QUOTE
        elif code == FINE and count != fields:
            code = FIELDS
        fault[row] = code
        counts[row] = count
    return has_breaks


@compiled
def gather_lines(arena: Bytes, at: Longs, sizes: Longs, rows: NDArray[np.intp], out: Bytes) -> int:
    """Copy these rows one behind the other, a line break behind each; the bytes written."""
    to = 0
    for row in rows:
        start = at[row]
        for step in range(sizes[row]):
            out[to + step] = arena[start + step]
        to += sizes[row]
        out[to] = _LF
        to += 1
    return to
