"""Records as Avro, after Debezium's and Confluent's conventions. Pure, but for `schema_ids`, which is handed in.

Field order is ours where a reader does not care, so that what changes least is written least: in the `source` block
first what belongs to the table, then what a transaction shares, then each change's own place. A table's schemas are
made known when its first record is written, under the names of Confluent's default: `TOPIC-key` and `TOPIC-value`.

A truncate's key has a schema of its own, because the key's columns cannot be null: the same fields, all of them null.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from headrace.connect.avro import binary, rows
from headrace.connect.avro.types import avro_schema, check_distinct, value_writer
from headrace.connect.change import Block, Message, Origin, Place, SchemaChange
from headrace.connect.envelope import TopicNames
from headrace.connect.filters import Filters
from headrace.connect.form import (
    BLOCK_FIELDS,
    OPERATION_FIELD,
    SOURCE_FIELDS,
    TIME_FIELDS,
    KeyAndValue,
    SchemaIds,
    TableWriters,
    described_change,
    envelope_schema,
    field_of,
    source_names,
    source_schema,
    struct,
)
from headrace.connect.json_form import key_differs
from headrace.connect.table import Row, Table

_FIXED: Final = ("version", "connector", "name", "db", "schema", "table")
_SHARED: Final = ("ts_ms", "ts_us", "ts_ns", "snapshot")
# What each connector's changes of one transaction share, and what each has alone.
_OWN: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "postgresql": (("txId", "xmin"), ("sequence", "lsn", "position")),
    "mysql": (("server_id", "gtid"), ("file", "pos", "row")),
    "sqlite": ((), ("position",)),
}
_BY_NAME: Final = {field["field"]: field for field in SOURCE_FIELDS}
_write_block = value_writer(struct("", BLOCK_FIELDS, optional=True))


class AvroForm:
    """Writes the records of one connector; `source` is what its `source` blocks have in common."""

    null = binary.NULL

    def __init__(
        self, source: dict[str, Any], names: TopicNames, filters: Filters, schema_ids: SchemaIds, *, unwrap: str
    ) -> None:
        self._fixed = source
        self._names = names
        self._filters = filters
        self._ids = schema_ids
        self._unwrap = unwrap
        connector = source["connector"]
        rest = tuple(name for name in _BY_NAME if name not in (*_FIXED, *_SHARED))
        shared, own = _OWN.get(connector, ((), rest))
        fields = [_BY_NAME[name] for name in (*_FIXED, *_SHARED, *shared, *own)]
        self._source_schema = source_schema(f"io.debezium.connector.{connector}.Source", fields)
        self._write_fixed = _part_writer(_FIXED)
        self._write_origin = _part_writer((*_SHARED, *shared))
        self._own = own
        self._places: dict[tuple[str, ...], Callable[[Place], bytes]] = {}
        self._beside: dict[str, Callable[[Any], bytes]] = {}

    def origin(self, origin: Origin) -> bytes:
        return self._write_origin({"ts_ms": origin.ts_ms, **origin.members})

    def place(self, origin: Origin) -> Callable[[Any], bytes]:
        own = origin.own
        if own[:1] == ("sequence",):  # there is one in every change of PostgreSQL's log
            head, sized, long = origin.sequence_head, binary.sized_present, binary.long
            rest = binary.NULL * (len(self._own) - 2)
            return lambda lsn: sized(f'{head}{lsn}"]'.encode()) + binary.PRESENT + long(lsn) + rest
        known = self._places.get(own)
        if known is None:
            write = _part_writer(self._own)
            known = self._places[own] = lambda place: write(Origin(None, 0, own=own).placed(place))
        return known

    def end(self, block: Block | None, now_us: int) -> bytes:
        return _write_block(None if block is None else block._asdict()) + _times(now_us)

    def table(self, table: Table, topic: str) -> TableWriters:
        """The writers of a table, whose schemas are known from here on."""
        view = self._filters.view(table)
        check_distinct(table.full_name, (column.name for _, column in view))
        key_view = tuple((index, table.columns[index]) for index in table.key)
        write_key: Callable[[Row], bytes | None] = _no_key
        key_head, empty = b"", None
        if key_view:
            fields = [rows.column_schema(column, optional=False) for _, column in key_view]
            key_head = self._frame(f"{topic}-key", struct(f"{topic}.Key", fields, optional=False))
            write_key = rows.key_writer(key_view, key_head)
            empty = self._empty_key(topic, [column.name for _, column in key_view])
        value_fields = [rows.column_schema(column, optional=index not in table.key) for index, column in view]
        if self._unwrap:
            return self._flat(table, topic, write_key, empty, value_fields)
        row_of = struct(f"{topic}.Value", value_fields, optional=True)
        head = self._frame(f"{topic}-value", envelope_schema(topic, row_of, self._source_schema))
        source = self._write_fixed(self._fixed | source_names(table.schema, table.name))
        operations = rows.OPERATION_BYTES

        def envelope(old: bytes, new: bytes, members: bytes, place: bytes, op: str, end: bytes) -> bytes:
            return b"".join((head, old, new, source, members, place, operations[op], end))

        whole = rows.record_writer(view, table.key, key_head=key_head, head=head, source=source)
        row = rows.row_writer(view, table.key, binary.PRESENT)
        return TableWriters(topic, write_key, empty, row, whole, envelope, _unused, key_differs(table.key))

    def _flat(
        self,
        table: Table,
        topic: str,
        write_key: Callable[[Row], bytes | None],
        empty: bytes | None,
        fields: list[dict[str, Any]],
    ) -> TableWriters:
        """Rows without an envelope."""
        view = self._filters.view(table)
        tails = [b"", b""]
        if self._unwrap == "rewrite":
            fields = [*fields, field_of("string", "__deleted")]
            tails = [binary.sized_present(word) for word in (b"false", b"true")]
        head = self._frame(f"{topic}-value", struct(f"{topic}.Value", fields, optional=False))
        flat = rows.row_writer(view, table.key, head, tails)
        return TableWriters(topic, write_key, empty, _unused, _unused, _unused, flat, key_differs(table.key))

    def _empty_key(self, topic: str, columns: list[str]) -> bytes:
        described = avro_schema(struct(f"{topic}.TruncateKey", [field_of("string", name) for name in columns]))
        for field in described["fields"]:
            field["type"] = "null"
        return binary.frame(self._ids(f"{topic}-truncate-key", _text(described)))

    def _frame(self, subject: str, schema: dict[str, Any]) -> bytes:
        return binary.frame(self._ids(subject, _text(avro_schema(schema))))

    # --- what stands beside rows

    def transaction(self, event: dict[str, Any]) -> KeyAndValue:
        topic = self._names.transactions
        return self._put(f"{topic}-key", _TRANSACTION_KEY, event), self._put(f"{topic}-value", _TRANSACTION, event)

    def message(self, message: Message, ts_ms: int, now_us: int) -> KeyAndValue:
        topic = self._names.messages
        content = {"prefix": message.prefix, "content": message.content}
        source = {"ts_ms": ts_ms, "snapshot": "false", **message.origin.placed(message.place)}
        value = {"op": "m", "message": content, "source": self._fixed | source, **_named_times(now_us)}
        fields = [OPERATION_FIELD, _MESSAGE, self._source_schema, *TIME_FIELDS]
        schema = struct("io.debezium.connector.MessageValue", fields)
        return self._put(f"{topic}-key", _MESSAGE_KEY, content), self._put(f"{topic}-value", schema, value)

    def schema_change(self, event: SchemaChange, now_us: int) -> KeyAndValue:
        topic, table = self._names.schema_changes, event.table
        about = {"databaseName": self._fixed["db"], "table": table.full_name}
        source = self._fixed | source_names(table.schema, table.name) | {"ts_ms": event.origin.ts_ms}
        source |= event.origin.placed(event.place)
        changes = [described_change(event, self._fixed["db"])]
        value = {"source": source, **about, "tableChanges": changes, **_named_times(now_us)}
        schema = struct("io.debezium.connector.SchemaChangeValue", [self._source_schema, *TIME_FIELDS, *_CHANGE_FIELDS])
        return self._put(f"{topic}-key", _CHANGE_KEY, about), self._put(f"{topic}-value", schema, value)

    def _put(self, subject: str, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
        write = self._beside.get(subject)
        if write is None:
            head, body = self._frame(subject, schema), value_writer(schema)
            write = self._beside[subject] = lambda told: head + body(told)
        return write(value)


def _part_writer(names: tuple[str, ...]) -> Callable[[dict[str, Any]], bytes]:
    return value_writer(struct("", [_BY_NAME[name] for name in names]))


def _times(now_us: int) -> bytes:
    return b"".join(binary.PRESENT + binary.long(number) for number in (now_us // 1000, now_us, now_us * 1000))


def _named_times(now_us: int) -> dict[str, int]:
    return {"ts_ms": now_us // 1000, "ts_us": now_us, "ts_ns": now_us * 1000}


def _text(described: Any) -> str:
    return json.dumps(described, ensure_ascii=False, separators=(",", ":"))


def _no_key(_row: Row) -> None:
    return None


def _unused(*_given: Any) -> Any:
    raise AssertionError("rows without an envelope have none, and envelopes are not written without one")


_TRANSACTION_KEY: Final = struct("io.debezium.connector.TransactionMetadataKey", [field_of("string", "id")])
_TRANSACTION: Final = struct(
    "io.debezium.connector.TransactionMetadataValue",
    [
        field_of("string", "status", optional=False),
        field_of("string", "id", optional=False),
        field_of("int64", "event_count"),
        {
            "type": "array",
            "items": struct(
                "event.collection",
                [
                    field_of("string", "data_collection", optional=False),
                    field_of("int64", "event_count", optional=False),
                ],
            ),
            "optional": True,
            "field": "data_collections",
        },
        field_of("int64", "ts_ms", optional=False),
    ],
)
_MESSAGE_KEY: Final = struct("io.debezium.connector.MessageKey", [field_of("string", "prefix")])
_MESSAGE: Final = struct(
    "io.debezium.connector.Message",
    [field_of("string", "prefix"), field_of("bytes", "content")],
    optional=False,
    field="message",
)
_CHANGE_KEY: Final = struct(
    "io.debezium.connector.SchemaChangeKey",
    [field_of("string", "databaseName", optional=False), field_of("string", "table", optional=False)],
)
_STRINGS: Final = {"type": "string", "optional": False}
_COLUMN_OF: Final = struct(
    "io.debezium.connector.schema.Column",
    [
        field_of("string", "name", optional=False),
        field_of("string", "typeName", optional=False),
        field_of("boolean", "optional", optional=False),
    ],
)
_CHANGE_OF: Final = struct(
    "io.debezium.connector.schema.Change",
    [
        field_of("string", "id", optional=False),
        field_of("string", "change", optional=False),
        {"type": "array", "items": _STRINGS, "field": "primaryKeyColumnNames"},
        {"type": "array", "items": _COLUMN_OF, "field": "columns"},
    ],
)
_CHANGE_FIELDS: Final = (
    field_of("string", "databaseName", optional=False),
    field_of("string", "table", optional=False),
    {"type": "array", "items": _CHANGE_OF, "field": "tableChanges"},
)
