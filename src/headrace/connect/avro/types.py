"""Schemas of Kafka Connect as Avro's, the way Confluent's converter makes them, and functions that write values. Pure.

Besides Connect's kinds there is `any`, a value that may be a number, a text or bytes whatever its column says: a union.
A value comes as JSON has it, bytes in base64; arrays of arrays are written as one, because the schema has one level.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from headrace.connect.avro import binary
from headrace.connect.errors import SourceRefused
from headrace.connect.table import UNAVAILABLE_TEXT

_WRONG: Final = re.compile(r"[^A-Za-z0-9_]")


def field_name(name: str) -> str:
    """A field's name; one that begins with a digit gets an underscore before it."""
    fitting = _WRONG.sub("_", name)
    return fitting if fitting and not fitting[0].isdigit() else f"_{fitting}"


def full_name(name: str) -> str:
    """A schema's name: parts between dots, each a name."""
    return ".".join(field_name(part) for part in name.split("."))


def check_distinct(table: str, columns: Iterable[str]) -> None:
    """Refuse columns that Avro cannot tell apart."""
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.setdefault(field_name(column), column)
        if other != column:
            raise SourceRefused(
                f"columns {other!r} and {column!r} of {table} have the same name in Avro ({field_name(column)})",
                'name one of them in exclude_columns, or write format = "json"',
            )


Schema = Mapping[str, Any]
Write = Callable[[Any], bytes]

ANY: Final = "any"
COLUMN: Final = "headrace.column"  # a column's own name, where Avro does not take it
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_UNNAMED: Final = "ConnectDefault"
_PRECISION: Final = 64  # what Confluent's converter says of a decimal that does not tell
_PRIMITIVES: Final = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float", "double": "double",
    "boolean": "boolean", "string": "string", "bytes": "bytes",
}  # fmt: skip
_BRANCHES: Final = ("long", "double", "string", "bytes")
_MARK: Final = UNAVAILABLE_TEXT.encode()
MARK_CODES: Final = list(_MARK)  # what an array of numbers holds in place of one that was not sent again
MARK_BITS: Final = [bool(code >> bit & 1) for code in _MARK for bit in range(8)]  # and one of booleans


def avro_schema(schema: Schema, known: set[str] | None = None) -> Any:
    """A schema as Avro's JSON; a named one that was described before is only named."""
    known = set() if known is None else known
    kind = schema["type"]
    if kind == "struct":
        return _record(schema, known)
    if kind == "array":
        return {"type": "array", "items": optional_schema(schema["items"], known)}
    if kind == ANY:
        return list(_BRANCHES)
    described: dict[str, Any] = {"type": _PRIMITIVES[kind]}
    if kind in ("int8", "int16"):
        described["connect.type"] = kind
    if schema.get("name") == DECIMAL:
        parameters = schema.get("parameters", {})
        described["scale"] = int(parameters.get("scale", 0))
        described["precision"] = int(parameters.get("connect.decimal.precision", _PRECISION))
        described["logicalType"] = "decimal"
    described |= _annotations(schema)
    return described["type"] if len(described) == 1 else described


def optional_schema(schema: Schema, known: set[str]) -> Any:
    """A schema, as a union with null if it is optional."""
    found = avro_schema(schema, known)
    if not schema.get("optional"):
        return found
    return ["null", *found] if isinstance(found, list) else ["null", found]


def _record(schema: Schema, known: set[str]) -> Any:
    full = full_name(schema.get("name") or _UNNAMED)
    if full in known:
        return full
    known.add(full)
    space, _, name = full.rpartition(".")
    fields = [_field(field, known) for field in schema["fields"]]
    return {"type": "record", "name": name, "namespace": space, "fields": fields, **_annotations(schema)}


def _field(schema: Schema, known: set[str]) -> dict[str, Any]:
    name = field_name(schema["field"])
    described: dict[str, Any] = {"name": name, "type": optional_schema(schema, known)}
    if schema.get("optional"):
        described["default"] = None
    if name != schema["field"]:
        described[COLUMN] = schema["field"]
    return described


def _annotations(schema: Schema) -> dict[str, Any]:
    """What Avro has no word for, in the properties that Connect's readers look for."""
    found: dict[str, Any] = {}
    for word in ("version", "parameters"):
        if schema.get(word):
            found[f"connect.{word}"] = schema[word]
    if schema.get("name"):
        found["connect.name"] = full_name(schema["name"])
    return found


# --- values


def value_writer(schema: Schema) -> Write:
    """A function that writes a value of this schema, or null where it may."""
    write = _writer(schema)
    if not schema.get("optional"):
        return write
    if schema["type"] == ANY:
        return lambda value: binary.NULL if value is None else any_bytes(value, 1)
    return lambda value: binary.NULL if value is None else binary.PRESENT + write(value)


def _writer(schema: Schema) -> Write:
    match schema["type"]:
        case "struct":
            return _struct_writer(schema)
        case "array":
            item = value_writer(schema["items"])
            return lambda values: _array(list(_leaves(values)), item)
        case "string":
            return lambda value: binary.sized(value.encode())
        case "bytes":
            return lambda value: binary.sized(value if isinstance(value, bytes) else base64.b64decode(value))
        case "boolean":
            return lambda value: b"\x01" if value else b"\x00"
        case "double":
            return lambda value: binary.double(float(value))
        case "float":
            return lambda value: binary.single(float(value))
        case "any":
            return any_bytes
        case _:
            return lambda value: binary.long(int(value))


def _struct_writer(schema: Schema) -> Write:
    fields = [(field["field"], value_writer(field)) for field in schema["fields"]]
    return lambda value: b"".join([write(value.get(name)) for name, write in fields])


def _array(values: list[Any], item: Write) -> bytes:
    if not values:
        return b"\x00"
    return binary.long(len(values)) + b"".join(map(item, values)) + b"\x00"


def _leaves(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _leaves(value)
        else:
            yield value


def any_bytes(value: Any, before: int = 0) -> bytes:
    """A value in the branch of what it is, with so many branches before; wire text that is no UTF-8 goes as bytes."""
    if isinstance(value, str):
        data = value.encode("latin-1")
        try:
            data.decode()
        except UnicodeDecodeError:
            value = data
        else:
            return binary.long(before + 2) + binary.sized(data)
    if isinstance(value, int):
        return binary.long(before) + binary.long(value)
    if isinstance(value, float):
        return binary.long(before + 1) + binary.double(value)
    return binary.long(before + 3) + binary.sized(value)


def unavailable(schema: Schema) -> bytes | None:
    """What stands for a value that the database did not send again; None where there is nothing to stand for it.

    Debezium's mark as far as the type can hold it: itself, its bytes, and in a list of numbers its characters' codes.
    """
    kind = schema["type"]
    if schema.get("name") == DECIMAL or kind == "struct":
        return None
    if kind in ("string", "bytes"):
        return binary.sized(_MARK)
    if kind == "array":
        items = schema["items"]
        if items["type"] in ("string", "bytes"):
            return _array([UNAVAILABLE_TEXT if items["type"] == "string" else _MARK], value_writer(items))
        if items["type"] == "boolean":
            return _array(list(MARK_BITS), value_writer(items))
        if items["type"] not in ("struct", "array", ANY):
            return _array(list(MARK_CODES), value_writer(items))
    return None


def mark_arrays() -> tuple[bytes, ...]:
    """How the marks in arrays look in a record."""
    kinds = ("int32", "double", "float", "boolean")
    found = [unavailable({"type": "array", "items": {"type": kind, "optional": True}}) for kind in kinds]
    return tuple(mark for mark in found if mark is not None)
