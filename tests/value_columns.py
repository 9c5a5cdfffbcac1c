"""Values as the columns that a decoder takes, and what a decoder made of them, side by side with what was expected."""

from collections.abc import Sequence

import numpy as np

from headrace.pipelines.columns.decoding import Decoded
from headrace.pipelines.columns.records import RecordColumns

# What stands between two values: a loop that reads on behind its value finds more of the same, and is found out.
BETWEEN = b'0123456789"}],\x01\x80\xff'


def value_columns(values: Sequence[bytes | None], between: bytes = BETWEEN) -> RecordColumns:
    """One record for each value, with `between` in front of and behind each."""
    pieces, at, size = [between], [], []
    place = len(between)
    for value in values:
        at.append(place)
        size.append(-1 if value is None else len(value))
        pieces += [value or b"", between]
        place += len(value or b"") + len(between)
    none = np.zeros(len(values), np.int64)
    return RecordColumns(
        arena=np.frombuffer(b"".join(pieces) or b"\0", np.uint8),
        offset=np.arange(len(values), dtype=np.int64),
        timestamp=none,
        key_at=none,
        key_size=none - 1,
        value_at=np.array(at, np.int64),
        value_size=np.array(size, np.int64),
        headers_at=none,
        end=none,
        is_append_time=np.zeros(len(values), np.bool_),
    )


def rows_of(decoded: Decoded) -> list[list[object]]:
    """Python values row by row; every column is checked to be sound as Arrow sees it."""
    for column in decoded.columns:
        column.validate(full=True)
    lists = [column.to_pylist() for column in decoded.columns]
    return [list(row) for row in zip(*lists, strict=True)]
