"""Records as JSON, after Debezium's conventions. Pure.

For each shape of a table straight-line code is made that writes its rows, so nothing is looked up by column while
changes run.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

from headrace.connect.change import Message, Origin, SchemaChange
from headrace.connect.filters import Filters
from headrace.connect.form import KeyAndValue, TableWriters
from headrace.connect.images import image_writer, key_differs, members_writer, record_writer
from headrace.connect.schemas import described_change, envelope_schema, key_schema, row_schema, source_names, wrapped
from headrace.connect.table import Row, Table, json_wire, quoted
from headrace.connect.transactions import Block
from headrace.connect.units import units_header

_CLOSING: Final = "}"


class JsonForm:
    """Writes the records of one connector; `source` is what its `source` blocks have in common."""

    null = "null"

    def __init__(self, source: dict[str, Any], filters: Filters, *, schemas: bool, unwrap: str) -> None:
        self._fixed = source
        self._filters = filters
        self._schemas = schemas
        self._unwrap = unwrap

    def origin(self, origin: Origin) -> str:
        """Its members."""
        members = origin.members
        return members_writer(tuple(members))(members.values())

    def place(self, origin: Origin) -> Callable[[Any], str]:
        """Its members."""
        own = origin.own
        if own[:1] == ("sequence",):  # there is one in every change of PostgreSQL's log
            head = ',"sequence":' + quoted(origin.sequence_head)[:-1]
            return lambda lsn: f'{head}{lsn}\\"]","lsn":{lsn}'
        write = members_writer(own)
        return write if len(own) != 1 else lambda value: write((value,))

    def end(self, block: Block | None, now_us: int) -> str:
        """The transaction and the times."""
        told = "null"
        if block is not None:
            told = (
                f'{{"id":"{block.id}","total_order":{block.total_order},'
                f'"data_collection_order":{block.data_collection_order}}}'
            )
        return f',"transaction":{told},{_times(now_us)}'

    def table(self, table: Table, topic: str) -> TableWriters:
        """The writers of a table."""
        view = self._filters.view(table)
        key_view = tuple((index, table.columns[index]) for index in table.key)
        key_around = wrapped(key_schema(topic, key_view)) if self._schemas else ("", "")
        before, after = key_around
        write_key: Callable[[Row], bytes | None] = _no_key
        empty = None
        if key_view:
            write_key = image_writer(key_view, before=before, after=after, nullable=False, encoded=True)
            nulls = ",".join(f"{json_wire(column.name)}:null" for _, column in key_view)
            empty = f"{before}{{{nulls}}}{after}".encode("latin-1")
        head, tail, flat_head = '{"before":', _CLOSING, ""
        if self._schemas:
            opening, closing = wrapped(envelope_schema(topic, row_schema(view)))
            head, tail = opening + head, tail + closing
            flat_head = wrapped(row_schema(view))[0]
        source = self._source(table.schema, table.name)
        row = image_writer(view)

        def envelope(old: str, new: str, members: str, place: str, op: str, end: str) -> bytes:
            return f'{head}{old},"after":{new},{source}{members}{place}}},"op":"{op}"{end}{tail}'.encode("latin-1")

        def flat(values: Row, is_gone: bool) -> bytes:
            text = row(values)
            if self._unwrap == "rewrite":
                text = f'{text[:-1]},"__deleted":"{str(is_gone).lower()}"}}'
            return f"{flat_head}{text}{tail[1:]}".encode("latin-1")

        whole = record_writer(view, table.key, key_around=key_around, head=head, source=source, tail=tail)
        units = () if self._schemas else units_header(column for _, column in view)
        return TableWriters(topic, write_key, empty, row, whole, envelope, flat, key_differs(table.key), units)

    # --- what stands beside rows

    def transaction(self, told: dict[str, Any]) -> KeyAndValue:
        """Where a transaction begins or ends."""
        return f'{{"id":"{told["id"]}"}}'.encode(), json_wire(told).encode("latin-1")

    def message(self, message: Message, ts_ms: int, now_us: int) -> KeyAndValue:
        """A message of the database's log."""
        members = self.origin(message.origin) or f',"ts_ms":{ts_ms},"snapshot":"false"'
        content = base64.b64encode(message.content).decode()
        prefix = json_wire(message.prefix)
        value = (
            f'{{"op":"m","message":{{"prefix":{prefix},"content":"{content}"}},{self._source("", "")}{members}'
            f"{self.place(message.origin)(message.place)}}},{_times(now_us)}}}"
        )
        return f'{{"prefix":{prefix}}}'.encode("latin-1"), value.encode("latin-1")

    def schema_change(self, event: SchemaChange, now_us: int) -> KeyAndValue:
        """A table that took another shape."""
        table, database = event.table, self._fixed["db"]
        source = self._source(table.schema, table.name) + self.origin(event.origin)
        value = (
            f"{{{source}{self.place(event.origin)(event.place)}}},{_times(now_us)},"
            f'"databaseName":{json_wire(database)},"tableChanges":[{json_wire(described_change(event, database))}]}}'
        )
        key = json_wire({"databaseName": database, "table": table.full_name})
        return key.encode("latin-1"), value.encode("latin-1")

    def _source(self, schema: str, table: str) -> str:
        told = self._fixed | source_names(schema, table)
        return '"source":{' + members_writer(tuple(told))(told.values())[1:]


def _times(now_us: int) -> str:
    return f'"ts_ms":{now_us // 1000},"ts_us":{now_us},"ts_ns":{now_us}000'


def _no_key(_row: Row) -> None:
    return None
