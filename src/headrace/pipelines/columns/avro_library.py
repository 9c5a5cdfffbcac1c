"""Avro records read one by one by fastavro: for schemas with arrays, maps, unions of several types, or recursion."""

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace import extras
from headrace.pipelines.columns.avro_program import default_of, reader_fields, source_name
from headrace.pipelines.columns.avro_schema import AvroField, AvroType, BadSchema
from headrace.pipelines.columns.decoding import Decoded
from headrace.pipelines.columns.fitting import fit
from headrace.pipelines.columns.groups import one_by_one
from headrace.pipelines.columns.json_exact import DoesNotFit
from headrace.pipelines.columns.walk import Bytes, Longs


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
