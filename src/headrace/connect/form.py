"""What the envelope needs of the form in which records are written, and the schemas that forms share.

`json_form.py` is one form, `avro/` the other.

A *piece* is a part of a record as the format has it while the record is put together: wire text in JSON, bytes in Avro.
The envelope hands pieces around and never looks inside.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from headrace.connect.change import Block, Message, Origin, SchemaChange
from headrace.connect.table import Column, Row, Table, json_wire

View = Sequence[tuple[int, Column]]


def field_of(kind: str, name: str, *, optional: bool = True) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


def key_schema(topic: str, view: View) -> dict[str, Any]:
    fields = [{**column.field_schema, "optional": False} for _, column in view]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{topic}.Key"}


def row_schema(view: View) -> dict[str, Any]:
    return {"type": "struct", "fields": [column.field_schema for _, column in view], "optional": True}


# The fields of all sources: each writes its own, and the others are absent.
SOURCE_FIELDS: Final = (
    field_of("string", "version", optional=False),
    field_of("string", "connector", optional=False),
    field_of("string", "name", optional=False),
    field_of("string", "db", optional=False),
    field_of("string", "schema"),
    field_of("string", "table"),
    field_of("int64", "ts_ms", optional=False),
    field_of("int64", "ts_us"),
    field_of("int64", "ts_ns"),
    field_of("string", "snapshot"),
    field_of("string", "sequence"),
    field_of("int64", "txId"),
    field_of("int64", "lsn"),
    field_of("int64", "xmin"),
    field_of("int64", "server_id"),
    field_of("string", "gtid"),
    field_of("string", "file"),
    field_of("int64", "pos"),
    field_of("int32", "row"),
    field_of("int64", "position"),
)
BLOCK_FIELDS: Final = (
    field_of("string", "id", optional=False),
    field_of("int64", "total_order", optional=False),
    field_of("int64", "data_collection_order", optional=False),
)
OPERATION_FIELD: Final = field_of("string", "op", optional=False)
TIME_FIELDS: Final = (field_of("int64", "ts_ms"), field_of("int64", "ts_us"), field_of("int64", "ts_ns"))
SOURCE_TYPES: Final = {field["field"]: field["type"] for field in SOURCE_FIELDS}


def struct(name: str, fields: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A schema of several fields; none if it has no `name`."""
    return {"type": "struct", "fields": list(fields), **({"name": name} if name else {}), **more}


def source_schema(name: str = "", fields: Sequence[dict[str, Any]] = SOURCE_FIELDS) -> dict[str, Any]:
    return struct(name, fields, optional=False, field="source")


def source_names(schema: str, table: str) -> dict[str, str]:
    """What a `source` block says about its table; nothing if it is of none."""
    return {"schema": schema, "table": table} if table else {}


def described_change(event: SchemaChange, database: str) -> dict[str, Any]:
    """A table that took another shape, as readers are told."""
    table = event.table
    return {
        "id": f"{database}.{table.full_name}",
        "change": event.what,
        "primaryKeyColumnNames": [column.name for column in table.key_columns],
        "columns": [
            {"name": column.name, "typeName": column.type_name, "optional": column.optional} for column in table.columns
        ],
    }


def envelope_schema(topic: str, row: dict[str, Any], source: dict[str, Any] | None = None) -> dict[str, Any]:
    row = {**row, "name": f"{topic}.Value"}
    block = {"type": "struct", "fields": list(BLOCK_FIELDS), "optional": True, "name": "event.block", "version": 1}
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        source or source_schema(),
        OPERATION_FIELD,
        {**block, "field": "transaction"},
        *TIME_FIELDS,
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{topic}.Envelope", "version": 1}


def wrapped(schema: dict[str, Any]) -> tuple[str, str]:
    """What stands before and behind a payload that carries its schema."""
    return f'{{"schema":{json_wire(schema)},"payload":', "}"


Piece: TypeAlias = Any
KeyAndValue: TypeAlias = tuple[bytes, bytes]
SchemaIds: TypeAlias = Callable[[str, str], int]  # of a subject and a schema's text; known to readers when it returns


class TableWriters(NamedTuple):
    """What was made for one shape of a table."""

    topic: str
    key: Callable[[Row], bytes | None]
    empty_key: bytes | None  # of a truncate: no row has it
    row: Callable[[Row], Piece]
    whole: Callable[[Row, Piece, Piece, Piece, str, Piece], tuple[bytes | None, bytes]]
    envelope: Callable[[Piece, Piece, Piece, Piece, str, Piece], bytes]  # before, after, origin, place, operation, end
    flat: Callable[[Row, bool], bytes]  # the row alone, and whether it is gone
    key_differs: Callable[[Row, Row], bool]
    headers: tuple[tuple[str, bytes], ...] = ()  # of every record of a row


class Form(Protocol):
    """How records are written."""

    @property
    def null(self) -> Piece:
        """What stands for a row that is not there."""
        ...

    def origin(self, origin: Origin) -> Piece:
        """What all changes of a transaction share of the `source` block."""
        ...

    def place(self, origin: Origin) -> Callable[[Any], Piece]:
        """A function that writes what each change of a transaction has alone: its place."""
        ...

    def end(self, block: Block | None, now_us: int) -> Piece:
        """What stands behind the operation: the transaction, and when the record was written."""
        ...

    def table(self, table: Table, topic: str) -> TableWriters:
        """The writers of a table; `whole` makes key and value of row, old row, origin, place, operation and end."""
        ...

    def transaction(self, event: dict[str, Any]) -> KeyAndValue:
        """Where a transaction begins or ends."""
        ...

    def message(self, message: Message, ts_ms: int, now_us: int) -> KeyAndValue:
        """A message of the database's log."""
        ...

    def schema_change(self, event: SchemaChange, now_us: int) -> KeyAndValue: ...
