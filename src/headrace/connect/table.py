"""A table as the envelope sees it: its columns, its key, and how a raw value of each column is written.

*Wire text* is what values and JSON are held in until the last moment: a `str` with one character for each byte of
UTF-8. It is sliced and joined as cheaply as bytes and escaped by the C encoder of `json`, because nothing above 0x7F
needs escaping; `encode("latin-1")` makes the bytes. Only who looks at characters (truncation, Python values) pays for
real text.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from json import dumps
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
Raw: TypeAlias = Any
Row: TypeAlias = tuple[Raw, ...]
Schema: TypeAlias = Mapping[str, Any]

UNAVAILABLE_TEXT: Final = "__debezium_unavailable_value"


class _Unchanged:
    """A stored value that the database did not send again."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()


def to_wire(text: str) -> str:
    return text if text.isascii() else text.encode().decode("latin-1")


def from_wire(wire: str) -> str:
    return wire if wire.isascii() else wire.encode("latin-1").decode()


def quoted(wire: str) -> str:
    return encode_basestring(wire)


def json_wire(value: object) -> str:
    """Any JSON value, in wire text."""
    return to_wire(dumps(value, ensure_ascii=False, separators=(",", ":")))


# How generated code writes a raw value that is neither null nor unchanged; `{v}` is the value, `{f}` the function.
VERBATIM: Final = "{v}"  # it is JSON as it stands: a number
PLAIN: Final = "'\"' + {v} + '\"'"  # text that never needs escaping: a UUID, an ISO time
QUOTED: Final = "q({v})"  # text
CALLED: Final = "{f}({v})"  # whatever `to_json` makes of it


@dataclass(frozen=True, slots=True)
class Codec:
    """How raw values of one type are written as JSON and read as Python."""

    form: str
    to_json: Callable[[Raw], str]
    to_python: Callable[[Raw], Any]
    schema: Schema
    unavailable: str = f'"{UNAVAILABLE_TEXT}"'  # what stands for a value that was not sent again
    avro: Schema | None = None  # its schema in Avro, where JSON's values reach further than `schema` does


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type_name: str
    codec: Codec
    optional: bool = True
    type_id: int = 0
    modifier: int = -1

    @property
    def field_schema(self) -> dict[str, Any]:
        """Its field in a Connect schema."""
        return {**self.codec.schema, "optional": self.optional, "field": self.name}


class TableName(NamedTuple):
    """A table before anything is known of its columns; `is_keyed` is whether its rows have a key."""

    schema: str
    name: str
    is_keyed: bool


@dataclass(frozen=True)
class Table:
    """One table in one of its shapes; a change of shape makes another `Table`."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]  # positions of the key's columns; empty for a table without
    id: int = 0
    version: int = field(default=0, compare=False)

    @cached_property
    def full_name(self) -> str:
        """Schema and name, as people write them."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.columns[index] for index in self.key)

    @property
    def as_name(self) -> TableName:
        return TableName(self.schema, self.name, bool(self.key))

    def key_of(self, row: Row) -> Row:
        return tuple(row[index] for index in self.key)

    def python_row(self, row: Row | None) -> dict[str, Any] | None:
        """A row as Python values by column name; `UNCHANGED` stays what it is."""
        if row is None:
            return None
        return {
            column.name: value if value is None or value is UNCHANGED else column.codec.to_python(value)
            for column, value in zip(self.columns, row, strict=True)
        }


def text_codec(schema: Schema | None = None, to_python: Callable[[str], Any] = from_wire) -> Codec:
    return Codec(QUOTED, quoted, to_python, schema or {"type": "string"})


def base64_json(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


UNAVAILABLE_BYTES: Final = base64_json(UNAVAILABLE_TEXT.encode())


def unscaled_bytes(number: int) -> bytes:
    """A whole number in two's complement, as the unscaled value of Connect's Decimal."""
    size = ((number if number >= 0 else -number - 1).bit_length() + 8) // 8
    return number.to_bytes(size, "big", signed=True)


def or_text(read: Callable[[str], T]) -> Callable[[str], T | str]:
    """A function that reads a text, and leaves it as it is where Python has no value for it."""

    def try_reading(text: str) -> T | str:
        try:
            return read(text)
        except ValueError:
            return text

    return try_reading


def schema_of(kind: str, name: str | None = None, **parameters: str) -> dict[str, Any]:
    """A schema of Kafka Connect; an underscore in a parameter's name is a dot there."""
    found: dict[str, Any] = {"type": kind}
    if name:
        found |= {"name": name, "version": 1}
    if parameters:
        found["parameters"] = {key.replace("_", "."): value for key, value in parameters.items()}
    return found


def list_differences(
    old: Mapping[str, tuple[object, str]],
    new: Mapping[str, tuple[object, str]],
    keys: tuple[Iterable[str], Iterable[str]],
) -> list[str]:
    """What changed between two shapes of a table, in words: of each column what it is and how that is called."""
    parts = [f"column {name} was added" for name in new if name not in old]
    parts += [f"column {name} was dropped" for name in old if name not in new]
    parts += [f"column {name} became {new[name][1]}" for name in new if name in old and old[name][0] != new[name][0]]
    before, after = map(list, keys)
    if before != after:
        parts.append(f"the key became {', '.join(after) or 'none'}")
    return parts
