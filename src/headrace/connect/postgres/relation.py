"""What the replication stream is made of: tables as it announces them, rows in its messages, positions. Pure."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self, TypeAlias

from headrace.connect.errors import ConnectError
from headrace.connect.table import UNCHANGED, Row, Table, list_differences

FULL, DEFAULT, NOTHING, INDEX = "f", "d", "n", "i"  # pg_class.relreplident
_COLUMN: Final = struct.Struct(">Ii")
_KEY_FLAG = 1


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as announced."""

    name: str
    is_identity: bool
    type_id: int
    modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as announced."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """A text that ends with a zero, and the place behind that."""
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def read_relation(data: bytes, at: int) -> Relation:
    """The announcement whose relation id is at `at`."""
    relation_id = int.from_bytes(data[at : at + 4])
    schema, at = read_text(data, at + 4)
    name, at = read_text(data, at)
    identity = chr(data[at])
    count = int.from_bytes(data[at + 1 : at + 3])
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = read_text(data, at + 1)
        type_id, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, bool(flags & _KEY_FLAG), type_id, modifier))
    return Relation(relation_id, schema or "pg_catalog", name, identity, tuple(columns))


def difference(before: Table, after: Table) -> str:
    """What changed between two shapes of a table, in words."""
    old, new = ({c.name: ((c.type_id, c.modifier), c.type_name) for c in table.columns} for table in (before, after))
    old_key, new_key = ((column.name for column in table.key_columns) for table in (before, after))
    return "; ".join(list_differences(old, new, (old_key, new_key))) or "the order of its columns changed"


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


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Behind the transaction that ended at `lsn`, and `count` changes of the one that commits at `commit_lsn`."""

    lsn: int
    commit_lsn: int = 0
    count: int = 0

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"lsn": format_lsn(self.lsn)}
        if self.commit_lsn:
            found |= {"commit_lsn": format_lsn(self.commit_lsn), "count": self.count}
        return found

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        return cls(
            parse_lsn(stored["lsn"]),
            parse_lsn(stored["commit_lsn"]) if "commit_lsn" in stored else 0,
            int(stored.get("count", 0)),
        )


def format_lsn(lsn: int) -> str:
    """A log sequence number as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """A log sequence number as PostgreSQL writes it."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
