"""Avro values to columns: bare, or in Confluent's framing with the writer's schema looked up by its id.

Each writer's schema is compiled once into a program that `avro_walk` runs over all its records. A schema with arrays,
maps or unions of more than null and one type is read record by record by fastavro instead (`headrace[avro]`).
"""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import extras
from headrace.pipelines.columns import avro_walk as walk
from headrace.pipelines.columns.avro_program import (
    Constant,
    NeedsLibrary,
    Node,
    Program,
    Struct,
    compile_program,
    default_of,
    reader_fields,
    source_name,
)
from headrace.pipelines.columns.avro_schema import AvroField, AvroType, BadSchema, read_schema
from headrace.pipelines.columns.cells import Cells, Faults, column, without
from headrace.pipelines.columns.decoding import Decoded, Reader, Refusal, fit, one_by_one, read_parts
from headrace.pipelines.columns.framing import REASONS, split_frames
from headrace.pipelines.columns.json_exact import DoesNotFit
from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.columns.walk import Bytes, Longs
from headrace.schema_registry import UnknownSchema

SchemaLookup = Callable[[int], str]


class AvroDecoder:
    """Reads one record of Avro per value. Give `lookup` for Confluent's framing, or `writer` for bare values.

    `reader` is a schema whose defaults and aliases are used for wanted fields that a writer does not have.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        lookup: SchemaLookup | None = None,
        writer: str | None = None,
        reader: str | None = None,
    ) -> None:
        self._schema = schema
        self._lookup = lookup
        self._told = _reader_schema(reader, schema) if reader is not None else None
        self._readers: dict[int, Reader] = {}
        self._bare = self._reader(writer, "the Avro schema") if writer is not None else None
        if (self._lookup is None) == (self._bare is None):
            raise TypeError("give either a look-up for schema ids or the one writer's schema")

    def decode(self, records: RecordColumns) -> Decoded:
        """The wanted fields of every record."""
        at, size = np.ascontiguousarray(records.value_at), np.ascontiguousarray(records.value_size)
        if self._bare is not None:
            return self._bare.read(records.arena, at, size)
        ids, body_at, body_size = np.empty_like(at), np.empty_like(at), np.empty_like(at)
        split_frames(records.arena, at, size, ids, body_at, body_size)
        groups = np.unique(ids).tolist()
        if len(groups) == 1 and groups[0] >= 0:
            return self._written_with(groups[0]).read(records.arena, body_at, body_size)
        readers = [
            (
                np.flatnonzero(ids == group),
                self._written_with(group) if group >= 0 else Refusal(self._schema, REASONS.get(group, "")),
            )
            for group in groups
        ]
        return read_parts(self._schema, readers, records.arena, body_at, body_size)

    def _written_with(self, schema_id: int) -> Reader:
        if schema_id not in self._readers:
            assert self._lookup is not None
            try:
                text = self._lookup(schema_id)
                self._readers[schema_id] = self._reader(text, f"the schema with the id {schema_id}")
            except (UnknownSchema, BadSchema) as error:
                # The record names a schema that cannot be: that is the record's fault, and must not stop the others.
                return Refusal(self._schema, str(error))
        return self._readers[schema_id]

    def _reader(self, text: str, where: str) -> Reader:
        writer = read_schema(text, where)
        try:
            return _ProgramReader(compile_program(writer, self._schema, self._told), self._schema)
        except NeedsLibrary:
            return LibraryReader(text, writer, self._schema, self._told, where)
        except DoesNotFit as error:
            return Refusal(self._schema, str(error))


def _reader_schema(text: str, wanted: pa.Schema) -> AvroType:
    """The reader's schema, every default in it that is wanted known to fit its column."""
    told = read_schema(text, "the reader's Avro schema")
    for field in wanted:
        try:
            default_of(field, reader_fields(told))
        except DoesNotFit as error:
            raise BadSchema(f"the reader's Avro schema has a default that does not fit: {error}") from error
    return told


class _ProgramReader:
    def __init__(self, program: Program, schema: pa.Schema) -> None:
        self._program = program
        self._schema = schema

    def read(self, arena: Bytes, at: Longs, size: Longs) -> Decoded:
        program = self._program
        cells = Cells(program.leaves, len(at))
        failed = walk.walk_avro(
            arena, at, size, program.steps,
            cells.found, cells.numbers, cells.at, cells.size, cells.fault, cells.where,
        )  # fmt: skip
        faults = cells.read_faults(walk.REASONS, program.names) if failed else Faults()
        is_null = size < 0
        columns = [_column(arena, cells, node, faults, is_null) for node in program.nodes]
        return Decoded([without(array, faults) for array in columns], dict(faults))


def _column(arena: Bytes, cells: Cells, node: Node, faults: Faults, is_null: Any) -> pa.Array:
    if isinstance(node, Constant):
        same = pa.repeat(pa.scalar(node.value, node.kind), len(is_null))
        return same.take(pa.array(np.arange(len(is_null)), mask=is_null)) if is_null.any() else same
    if isinstance(node, Struct):
        children = [_column(arena, cells, child, faults, is_null) for child in node.children]
        missing = cells.found[node.leaf] == 0
        return pa.StructArray.from_arrays(children, fields=list(node.kind), mask=pa.array(missing))
    return column(arena, cells, node.leaf, node.meaning, node.kind, faults)


class LibraryReader:
    """Reads values of one writer's schema."""

    def __init__(self, text: str, writer: AvroType, schema: pa.Schema, reader: AvroType | None, where: str) -> None:
        fastavro = extras.load("fastavro", f"{where}, with arrays, maps or unions of several types,")
        try:
            self._parsed = fastavro.parse_schema(json.loads(text))
        except Exception as error:  # fastavro raises errors of several families
            raise BadSchema(f"{where} is not an Avro schema that fastavro reads: {error}") from error
        self._read = fastavro.schemaless_reader
        self._schema = schema
        self._told: Mapping[str, AvroField] = reader_fields(reader)
        self._writer = writer
        written = {field.name for field in writer.fields}
        self._names = [source_name(field.name, written, self._told) for field in schema]
        self._defaults = [None if name in written else default_of(schema.field(index), self._told)
                          for index, name in enumerate(self._names)]  # fmt: skip

    def read(self, arena: Bytes, at: Longs, size: Longs) -> Decoded:
        """The wanted fields of every value."""
        return one_by_one(self._schema, self._row, arena, at, size)

    def _row(self, data: bytes) -> list[Any]:
        source = io.BytesIO(data)
        try:
            record = self._read(source, self._parsed, None)
        except Exception as error:  # whatever a broken value makes fastavro stumble over
            raise DoesNotFit(f"the value does not follow its Avro schema ({type(error).__name__}: {error})") from error
        if source.tell() != len(data):
            raise DoesNotFit("bytes follow the record")
        assert isinstance(record, dict)
        return [
            fit(record[name], field.type, field.name) if name in record else default
            for name, field, default in zip(self._names, self._schema, self._defaults, strict=True)
        ]
