"""Avro schemas, read from their JSON into types; names are resolved, so a type stands wherever it is used."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.pipelines.errors import PipelineError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
_LARGEST = 2**31 - 1  # Avro's numbers about a type are ints
ABSENT: Any = object()  # a field without a default, which may well be null


class BadSchema(PipelineError):
    """What ought to be a schema is none, or none that can be read."""


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: "AvroType"
    aliases: tuple[str, ...] = ()
    default: Any = ABSENT


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type: a primitive, or record, enum, fixed, array, map, union; `recursive` is a record inside itself."""

    kind: str
    logical: str = ""
    name: str = ""
    fields: tuple[AvroField, ...] = ()
    branches: tuple["AvroType", ...] = ()  # of a union; the items of an array or map
    symbols: tuple[str, ...] = ()
    size: int = 0
    scale: int = 0

    @property
    def without_null(self) -> "AvroType":
        """The other branch of a union with null; any other type is itself."""
        others = [branch for branch in self.branches if branch.kind != "null"]
        return others[0] if self.kind == "union" and len(others) == 1 else self


def read_schema(text: str, where: str) -> AvroType:
    """The type that a schema's JSON describes; raises `BadSchema`, which names `where` it stood."""
    try:
        described = json.loads(text)
    except ValueError as error:
        raise BadSchema(f"{where} is not valid JSON ({error}): give an Avro schema as JSON") from error
    try:
        return _read(described, {}, "")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadSchema(f"{where} is not an Avro schema: {_words(error)}") from error


def _words(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


def _read(described: Any, known: dict[str, AvroType], space: str) -> AvroType:
    if isinstance(described, str):
        return _named(described, known, space)
    if isinstance(described, list):
        return AvroType("union", branches=tuple(_read(branch, known, space) for branch in described))
    kind = described["type"]
    if not isinstance(kind, str):
        return _read(kind, known, space)
    logical = described.get("logicalType", "")
    match kind:
        case "record" | "error":
            return _record(described, known, space)
        case "enum":
            name, _ = _full_name(described, space)
            found = AvroType("enum", name=name, symbols=tuple(map(str, described["symbols"])))
        case "fixed":
            name, _ = _full_name(described, space)
            size = int(described["size"])
            if size < 0:
                raise ValueError(f"a fixed of {size} bytes")
            found = AvroType("fixed", logical, name, size=size, scale=_scale(described))
        case "array":
            return AvroType("array", branches=(_read(described["items"], known, space),))
        case "map":
            return AvroType("map", branches=(_read(described["values"], known, space),))
        case _ if kind in PRIMITIVES:
            return AvroType(kind, logical, scale=_scale(described))
        case _:
            return _named(kind, known, space)
    known[found.name] = found
    return found


def _scale(described: Mapping[str, Any]) -> int:
    scale, precision = int(described.get("scale", 0)), int(described.get("precision", _LARGEST))
    if described.get("logicalType") == "decimal" and not 0 <= scale <= precision <= _LARGEST:
        raise ValueError(f"a decimal of {precision} digits, {scale} of them behind the point")
    return scale


def _record(described: Mapping[str, Any], known: dict[str, AvroType], space: str) -> AvroType:
    name, space = _full_name(described, space)
    known[name] = AvroType("recursive", name=name)
    fields = tuple(
        AvroField(
            str(field["name"]),
            _read(field["type"], known, space),
            tuple(field.get("aliases", ())),
            field.get("default", ABSENT),
        )
        for field in described["fields"]
    )
    known[name] = AvroType("record", name=name, fields=fields)
    return known[name]


def _full_name(described: Mapping[str, Any], space: str) -> tuple[str, str]:
    """A named type's full name, and the namespace for what is inside it."""
    name = str(described["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    space = str(described.get("namespace", space) or "")
    return (f"{space}.{name}" if space else name), space


def _named(name: str, known: Mapping[str, AvroType], space: str) -> AvroType:
    if name in PRIMITIVES:
        return AvroType(name)
    full = name if "." in name or not space else f"{space}.{name}"
    found = known.get(full) or known.get(name)
    if found is None:
        raise ValueError(f"the type {name!r} is not defined")
    return found
