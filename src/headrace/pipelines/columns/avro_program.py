"""From a writer's schema and the wanted columns to a program for `avro_walk`, and a plan for the columns.

Fields are matched by name, or by an alias that the reader's schema tells. A wanted field that the writer does not have
is the reader's default, else null.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.columns import avro_walk as walk
from headrace.pipelines.columns.avro_schema import ABSENT, AvroField, AvroType
from headrace.pipelines.columns.cells import Form, Meaning, fits
from headrace.pipelines.columns.json_exact import DoesNotFit, convert
from headrace.pipelines.columns.walk import Longs

_INT, _LONG = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
_INSTANTS = {
    "timestamp-millis": 1000, "timestamp-micros": 1, "local-timestamp-millis": 1000, "local-timestamp-micros": 1,
}  # fmt: skip
_TIMES = {("int", "time-millis"): 1000, ("long", "time-micros"): 1}


class NeedsLibrary(Exception):
    """The writer's schema has a type that a program cannot read: an array, a map, a union of more."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column out of one leaf's cells."""

    leaf: int
    meaning: Meaning
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class Struct:
    """A column of structs: a leaf that says where they are, and a column for each field."""

    leaf: int
    kind: pa.StructType
    children: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A column that is the same in every record: a default, or null."""

    value: Any
    kind: pa.DataType


Node = Leaf | Struct | Constant


@dataclass(frozen=True, slots=True)
class Program:
    """What the walk runs; `names` has the field of each step, and one more for the end."""

    steps: Longs
    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    leaves: int


def compile_program(writer: AvroType, wanted: pa.Schema, reader: AvroType | None = None) -> Program:
    """The program for one writer's schema; raises `DoesNotFit` or `NeedsLibrary`."""
    if writer.kind != "record":
        raise DoesNotFit(f"the schema it was written with is of type {writer.kind}, not record")
    compiler = _Compiler()
    nodes = compiler.record(writer, wanted, reader, "")
    steps = np.array(compiler.steps, np.int64).reshape(-1, 4)
    return Program(steps, (*compiler.names, ""), nodes, compiler.leaves)


class _Compiler:
    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.names: list[str] = []
        self.leaves = 0

    def record(
        self, writer: AvroType, wanted: Iterable[pa.Field], reader: AvroType | None, prefix: str
    ) -> tuple[Node, ...]:
        """Steps for every field of a record, in the order they are written; nodes in the order they are wanted."""
        wanted = list(wanted)
        told = reader_fields(reader)
        written = {field.name for field in writer.fields}
        source = {source_name(field.name, written, told): field for field in wanted}
        nodes: dict[str, Node] = {}
        for field in writer.fields:
            target = source.get(field.name)
            inner = told.get(target.name) if target else None
            node = self.value(field.type, target, inner.type if inner else None, prefix + field.name)
            if target is not None and node is not None:
                nodes[target.name] = node
        return tuple(nodes.get(field.name) or Constant(default_of(field, told), field.type) for field in wanted)

    def value(self, writer: AvroType, wanted: pa.Field | None, reader: AvroType | None, name: str) -> Node | None:
        """Steps for one value; its node if somebody wants it."""
        match writer.kind:
            case "null":
                return Constant(None, wanted.type) if wanted else None
            case "union":
                return self.union(writer, wanted, reader, name)
            case "record":
                return self.nested(writer, wanted, reader, name)
            case "array" | "map" | "recursive":
                raise NeedsLibrary
        meaning = meaning_of(writer, name)
        if wanted is not None and not fits(meaning.form, wanted.type):
            raise DoesNotFit(f"field {name!r} was written as {shown(writer)}, which is not {wanted.type}")
        leaf = self.leaf() if wanted is not None else -1
        self.step(*_step_of(writer), leaf=leaf, name=name)
        return Leaf(leaf, meaning, wanted.type) if wanted is not None else None

    def union(self, writer: AvroType, wanted: pa.Field | None, reader: AvroType | None, name: str) -> Node | None:
        kinds = [branch.kind for branch in writer.branches]
        if len(kinds) != 2 or kinds.count("null") != 1:
            raise NeedsLibrary
        union = self.step(walk.UNION, kinds.index("null"), 0, leaf=-1, name=name)
        node = self.value(writer.without_null, wanted, reader.without_null if reader else None, name)
        union[3] = len(self.steps)
        return node

    def nested(self, writer: AvroType, wanted: pa.Field | None, reader: AvroType | None, name: str) -> Node | None:
        if wanted is None:
            self.record(writer, (), None, name + ".")
            return None
        if not pa.types.is_struct(wanted.type):
            raise DoesNotFit(f"field {name!r} was written as a record, which is not {wanted.type}")
        leaf = self.leaf()
        self.step(walk.PRESENT, 0, 0, leaf=leaf, name=name)
        inner = reader.without_null if reader else None
        return Struct(leaf, wanted.type, self.record(writer, wanted.type, inner, name + "."))

    def leaf(self) -> int:
        self.leaves += 1
        return self.leaves - 1

    def step(self, kind: int, first: int, second: int, *, leaf: int, name: str) -> list[int]:
        step = [kind, leaf, first, second]
        self.steps.append(step)
        self.names.append(name)
        return step


def reader_fields(reader: AvroType | None) -> Mapping[str, AvroField]:
    """The fields of the reader's schema, by name."""
    return {field.name: field for field in reader.fields} if reader else {}


def source_name(name: str, written: set[str], told: Mapping[str, AvroField]) -> str:
    """What the writer calls a wanted field: its own name, or the first of its aliases that was written."""
    if name in written or name not in told:
        return name
    return next((alias for alias in told[name].aliases if alias in written), name)


def default_of(wanted: pa.Field, told: Mapping[str, AvroField]) -> Any:
    """What stands in a wanted field that was not written."""
    field = told.get(wanted.name)
    if field is None or field.default is ABSENT or field.default is None:
        return None
    if pa.types.is_binary(wanted.type) and isinstance(field.default, str):
        return field.default.encode("latin-1")  # Avro writes the bytes of a default as code points up to 255
    return convert(field.default, None, wanted.type, wanted.name, _INSTANTS.get(field.type.without_null.logical, 0))


def meaning_of(writer: AvroType, name: str) -> Meaning:
    """What the cells of a scalar stand for."""
    logical = writer.logical
    if writer.kind in ("bytes", "fixed") and logical == "decimal":
        return Meaning(Form.DECIMAL, name, scale=writer.scale)
    if writer.kind == "fixed" and logical == "uuid" and writer.size == 16:
        return Meaning(Form.UUID, name)
    if writer.kind == "int" and logical == "date":
        return Meaning(Form.DATE, name)
    if writer.kind == "long" and logical in _INSTANTS:
        return Meaning(Form.INSTANT, name, micros=_INSTANTS[logical])
    if (writer.kind, logical) in _TIMES:
        return Meaning(Form.TIME, name, micros=_TIMES[writer.kind, logical])
    if writer.kind == "enum":
        return Meaning(Form.SYMBOL, name, symbols=tuple(enumerate(writer.symbols)))
    return Meaning(_PLAIN[writer.kind], name)


_PLAIN = {
    "boolean": Form.BOOLEAN, "int": Form.WHOLE, "long": Form.WHOLE, "float": Form.SINGLE, "double": Form.DOUBLE,
    "string": Form.TEXT, "bytes": Form.BYTES, "fixed": Form.BYTES,
}  # fmt: skip


def _step_of(writer: AvroType) -> tuple[int, int, int]:
    match writer.kind:
        case "boolean":
            return walk.BOOLEAN, 0, 0
        case "int":
            return walk.NUMBER, *_INT
        case "long":
            return walk.NUMBER, *_LONG
        case "enum":
            return walk.NUMBER, 0, len(writer.symbols) - 1
        case "float":
            return walk.FLOAT, 0, 0
        case "double":
            return walk.DOUBLE, 0, 0
        case "fixed":
            return walk.FIXED, writer.size, 0
    return walk.BLOB, int(writer.kind == "string"), 0


def shown(writer: AvroType) -> str:
    """A type in words."""
    return f"{writer.kind} ({writer.logical})" if writer.logical else writer.kind
