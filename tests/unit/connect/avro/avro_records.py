"""Avro records read by fastavro, which knows nothing of us."""

import io
import json
from typing import Any

import fastavro

from headrace.connect.change import Change, Event, Origin
from headrace.connect.envelope import EnvelopeSettings, EnvelopeWriter, OutRecord, TopicNames
from headrace.connect.filters import Filters
from headrace.connect.postgres.types import TypeModes, codec_of
from headrace.connect.table import Column, Table
from headrace.schema_registry import UnknownSchema

NOW_US = 1_700_000_000_123_456
ORIGIN = Origin("77", 1_600_000_000_000_001, "false", {"txId": 77, "xmin": None}, ("sequence", "lsn"), 41)
PLACE = 42


class Schemas:
    """A registry in memory."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.subjects: dict[int, str] = {}

    def __call__(self, subject: str, text: str) -> int:
        found = self.ids.setdefault(text, len(self.ids) + 1)
        self.subjects[found] = subject
        return found

    def text(self, schema_id: int) -> str:
        """The schema of an id."""
        for text, known in self.ids.items():
            if known == schema_id:
                return text
        raise UnknownSchema(schema_id, "memory")

    def read(self, data: bytes | None) -> Any:
        """A framed value; every byte of it counts."""
        assert data is not None
        assert data[:1] == b"\x00"
        stream = io.BytesIO(data[5:])
        schema = fastavro.parse_schema(json.loads(self.text(int.from_bytes(data[1:5]))))
        value = fastavro.schemaless_reader(stream, schema, None)
        assert not stream.read()
        return value


def column(name: str, type_id: int, *, modifier: int = -1, optional: bool = True, **modes: str) -> Column:
    return Column(name, *codec_of(type_id, modifier, TypeModes(**modes), lambda _: None), optional, type_id, modifier)


TABLE = Table("public", "people", (column("id", 23, optional=False), column("name", 25), column("secret", 25)), (0,))


def write(registry: Schemas, *events: Event, filters: Filters | None = None, **settings: Any) -> list[OutRecord]:
    chosen = EnvelopeSettings("postgresql", "shop", "1.0", TopicNames("srv"), format="avro", **settings)
    return list(EnvelopeWriter(chosen, filters or Filters(), registry).write(events, NOW_US))


def change(op: str, before: Any = None, after: Any = None, table: Table = TABLE) -> Change:
    return Change(table, op, before, after, ORIGIN, PLACE)
