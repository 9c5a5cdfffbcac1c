"""How a large value looks that a database did not send again: Debezium's placeholder, in each type that can hold one.

Text and bytes hold it as it is, or as capture writes bytes into text; a list of texts holds it alone, a list of numbers
the codes of its characters, a list of booleans their bits. In JSON every list has the text, so that the reader puts in
its place what the list's type can hold (`placeholder_in`), and whoever keeps rows looks for one thing (`placeholders`).
"""

import base64
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.connect.avro.types import MARK_BITS, MARK_CODES
from headrace.connect.table import UNAVAILABLE_TEXT

_BYTES = UNAVAILABLE_TEXT.encode()
_TEXTS = [UNAVAILABLE_TEXT, base64.b64encode(_BYTES).decode(), _BYTES.hex()]


def placeholders(kind: pa.DataType) -> list[Any]:
    """What may stand in a column of this type for a value that was not sent again; nothing, if none can."""
    types = pa.types
    if types.is_string(kind):
        return list(_TEXTS)
    if types.is_binary(kind):
        return [_BYTES]
    found = placeholder_in(kind.value_type) if types.is_list(kind) else None
    return [found] if found is not None else []


def placeholder_in(element: pa.DataType) -> list[Any] | None:
    """What stands in a list of such elements for the whole of it; None if nothing can."""
    types = pa.types
    if types.is_string(element):
        return [UNAVAILABLE_TEXT]
    if types.is_binary(element):
        return [_BYTES]
    if types.is_boolean(element):
        return list(MARK_BITS)
    is_wide = types.is_decimal(element) and element.precision - element.scale >= 3
    return list(MARK_CODES) if types.is_integer(element) or types.is_floating(element) or is_wide else None


def is_placeholder(column: pa.Array) -> NDArray[np.bool_]:
    """Which values of a column only stand for one that was not sent again."""
    marks = placeholders(column.type)
    found = np.zeros(len(column), np.bool_)
    if not pa.types.is_list(column.type):
        return np.asarray(pc.is_in(column, pa.array(marks, column.type))) if marks else found
    for mark in marks:
        rows = np.flatnonzero(np.asarray(pc.list_value_length(column).fill_null(-1)) == len(mark))
        cells = column.take(pa.array(rows)).flatten()
        same = pc.equal(cells, pa.array(mark * len(rows), cells.type)).fill_null(False)
        found[rows] = np.asarray(same).reshape(len(rows), len(mark)).all(axis=1)
    return found
