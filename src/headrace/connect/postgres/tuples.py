"""The row inside a pgoutput message, taken apart by a function that is written for its number of columns.

A column is a letter, and for a value its length and its text: straight-line code without a loop reads it fastest.
Values stay wire text: the message is decoded once, as latin-1, and a value is a slice of it.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from headrace.connect.errors import ConnectError
from headrace.connect.table import UNCHANGED, Row

Parse: TypeAlias = Callable[[bytes, str, int], tuple[Row, int]]
_LENGTH = struct.Struct(">I").unpack_from


class CorruptMessage(ConnectError):
    """A message of the replication stream that makes no sense."""


def _refuse(kind: int, column: int) -> None:
    raise CorruptMessage(f"column {column} of a replicated row has the unknown kind {kind:#x}: update headrace")


@lru_cache(maxsize=512)
def tuple_parser(columns: int) -> Parse:
    """A function of message, its wire text and the place of a tuple, to the row and the place behind it."""
    lines = [
        "def parse(d, s, p):",
        f"    if d[p] << 8 | d[p + 1] != {columns}:",
        f"        raise CorruptMessage(f'a replicated row has {{d[p] << 8 | d[p + 1]}} columns and not {columns}')",
        "    p += 2",
    ]
    for index in range(columns):
        lines += [
            "    k = d[p]",
            "    if k == 116:",  # t: text
            "        e = p + 5 + length(d, p + 1)[0]",
            f"        v{index} = s[p + 5:e]",
            "        p = e",
            "    elif k == 110:",  # n: null
            f"        v{index} = None",
            "        p += 1",
            "    elif k == 117:",  # u: an unchanged value that is stored out of line
            f"        v{index} = UNCHANGED",
            "        p += 1",
            "    else:",
            f"        refuse(k, {index})",
        ]
    row = "".join(f"v{index}, " for index in range(columns))
    lines.append(f"    return ({row}), p")
    scope: dict[str, Any] = {
        "length": _LENGTH,
        "UNCHANGED": UNCHANGED,
        "refuse": _refuse,
        "CorruptMessage": CorruptMessage,
    }
    exec(compile("\n".join(lines), f"<tuple of {columns} columns>", "exec"), scope)  # noqa: S102 - our own text
    parse: Parse = scope["parse"]
    return parse
