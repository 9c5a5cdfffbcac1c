"""Kafka Connect's schemas of keys, rows and envelopes, for who wants them with every record."""

from collections.abc import Sequence
from typing import Any

from headrace.connect.table import Column, json_wire

View = Sequence[tuple[int, Column]]


def _field(kind: str, name: str, *, optional: bool = True) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


def key_schema(topic: str, view: View) -> dict[str, Any]:
    """The key's."""
    fields = [{**column.field_schema, "optional": False} for _, column in view]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{topic}.Key"}


def row_schema(view: View) -> dict[str, Any]:
    """A row's."""
    return {"type": "struct", "fields": [column.field_schema for _, column in view], "optional": True}


def envelope_schema(topic: str, row: dict[str, Any]) -> dict[str, Any]:
    """The whole record's."""
    row = {**row, "name": f"{topic}.Value"}
    # The fields of all sources: each writes its own, and the others are absent.
    source = {
        "type": "struct",
        "fields": [
            _field("string", "version", optional=False),
            _field("string", "connector", optional=False),
            _field("string", "name", optional=False),
            _field("string", "db", optional=False),
            _field("string", "schema"),
            _field("string", "table"),
            _field("int64", "ts_ms", optional=False),
            _field("int64", "ts_us"),
            _field("int64", "ts_ns"),
            _field("string", "snapshot"),
            _field("string", "sequence"),
            _field("int64", "txId"),
            _field("int64", "lsn"),
            _field("int64", "xmin"),
            _field("int64", "server_id"),
            _field("string", "gtid"),
            _field("string", "file"),
            _field("int64", "pos"),
            _field("int32", "row"),
            _field("int64", "position"),
        ],
        "optional": False,
        "field": "source",
    }
    block = {
        "type": "struct",
        "fields": [
            _field("string", "id", optional=False),
            _field("int64", "total_order", optional=False),
            _field("int64", "data_collection_order", optional=False),
        ],
        "optional": True,
        "name": "event.block",
        "version": 1,
        "field": "transaction",
    }
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        source,
        _field("string", "op", optional=False),
        block,
        _field("int64", "ts_ms"),
        _field("int64", "ts_us"),
        _field("int64", "ts_ns"),
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{topic}.Envelope", "version": 1}


def wrapped(schema: dict[str, Any]) -> tuple[str, str]:
    """What stands before and behind a payload that carries its schema."""
    return f'{{"schema":{json_wire(schema)},"payload":', "}"
