"""Debezium's envelope, written by functions that are made for each table. Pure.

`EnvelopeWriter.write` takes an event and answers records. For each shape of a table straight-line code is made that
writes its rows as JSON, so nothing is looked up by column while changes run.

A record's key is the primary key. An update that changes it is a delete of the old key and a create of the new one, as
Debezium does it, each with a header that names the other. A delete is followed by a tombstone, so that compaction
forgets the row. A truncate has the key with nulls in it, which no row has, and goes to every partition: a compacted
topic takes no record without a key, and without the truncate a reader would keep rows that are gone.

Only JSON is written here. Avro will have a writer beside this one (`avro.py`), chosen by `format`.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.connect.change import (
    CREATE,
    DELETE,
    MESSAGE,
    OPERATIONS,
    READ,
    TRUNCATE,
    UPDATE,
    Change,
    Event,
    Message,
    Origin,
    SchemaChange,
    TransactionEnd,
)
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters
from headrace.connect.images import image_writer, key_differs, record_writer
from headrace.connect.naming import TopicNames
from headrace.connect.outbox import route
from headrace.connect.schemas import envelope_schema, key_schema, row_schema, wrapped
from headrace.connect.table import Row, Table, json_wire
from headrace.connect.transactions import TransactionLog

EVERY_PARTITION: Final = -1
ANY_PARTITION: Final = -2
Headers: TypeAlias = tuple[tuple[str, bytes], ...]
_NONE: Final[Headers] = ()
_ROW_ALONE: Final = (CREATE, READ)


class OutRecord(NamedTuple):
    """A record for a topic; `partition` is `ANY_PARTITION` where the key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    partition: int = ANY_PARTITION


@dataclass(frozen=True, slots=True)
class EnvelopeSettings:
    """How changes are written."""

    connector: str
    database: str
    version: str
    names: TopicNames
    schemas: bool = False  # each record with its schema, as Connect's JsonConverter does
    tombstones: bool = True
    unwrap: str = ""  # "": the envelope; "drop": the row alone, deletes as tombstones; "rewrite": rows with __deleted
    skipped_operations: frozenset[str] = frozenset()
    transaction_metadata: bool = False
    outbox_prefix: str = "outbox"  # messages with it are routed; "" routes none
    format: str = "json"

    def __post_init__(self) -> None:
        if self.unwrap not in ("", "drop", "rewrite"):
            raise InvalidConnectSetting("unwrap", self.unwrap, "choose 'drop' or 'rewrite', or leave it out")
        if self.format != "json":
            raise InvalidConnectSetting("format", self.format, "only 'json' is there yet")
        for operation in self.skipped_operations:
            if operation not in OPERATIONS:
                raise InvalidConnectSetting("skipped_operations", operation, f"choose among {', '.join(OPERATIONS)}")


class _Writers(NamedTuple):
    """What was made for one shape of a table."""

    topic: str
    key: Callable[[Row], bytes | None]
    empty_key: bytes | None
    row: Callable[[Row], str]
    whole: Callable[[Row, str, str, str, str, str], tuple[bytes | None, bytes]]  # key and value of what has a row
    head: str  # of the envelope, before the row
    source: str  # the beginning of its source block
    tail: str
    flat_head: str
    key_differs: Callable[[Row, Row], bool]


class EnvelopeWriter:
    """Writes the events of one connector."""

    def __init__(self, settings: EnvelopeSettings, filters: Filters) -> None:
        self._settings = settings
        self._filters = filters
        self._made: dict[int, tuple[Table, _Writers]] = {}
        self._log = TransactionLog(settings.names.transactions) if settings.transaction_metadata else None
        self._skipped = settings.skipped_operations

    def topic_of(self, table: Table) -> str:
        """The topic of a table."""
        return self._settings.names.table(self._settings.database, table.schema, table.name)

    def write(self, events: Iterable[Event], now_us: int) -> Iterator[OutRecord]:
        """The records of some events, in order; `now_us` is when they are written."""
        times = f'"ts_ms":{now_us // 1000},"ts_us":{now_us},"ts_ns":{now_us}000'
        log = self._log
        made = self._made
        skipped = self._skipped
        plain = f',"transaction":null,{times}'
        is_flat = bool(self._settings.unwrap)
        is_plain = not is_flat and log is None and not skipped
        new = tuple.__new__  # a record without the detour through its keyword arguments
        # Changes of one table and one transaction mostly stand together, so what they share is looked up once.
        last_table: Table | None = None
        last_origin: Origin | None = None
        members, ts_ms = "", 0
        for event in events:
            if event.__class__ is Change:
                change: Any = event
                table, op, before, after, origin, place = change
                if table is not last_table:
                    known = made.get(id(table))
                    writers = known[1] if known is not None else self._make(table)
                    topic, whole = writers.topic, writers.whole
                    last_table = table
                if origin is not last_origin:
                    members, ts_ms = origin.members, origin.ts_us // 1000
                    last_origin = origin
                if is_plain and op in _ROW_ALONE:
                    key, value = whole(after, "null", members, place, op, plain)
                    yield new(OutRecord, (topic, key, value, ts_ms, _NONE, ANY_PARTITION))
                    continue
                if op in skipped:
                    continue
                end = plain
                if log is not None and origin.transaction_id is not None:
                    block, begun = log.count(origin, table.full_name)
                    if begun is not None:
                        yield OutRecord(*begun, ts_ms)
                    end = f',"transaction":{block},{times}'
                if is_flat:
                    yield from self._flat(writers, op, before, after, ts_ms)
                elif op == UPDATE:
                    if before is not None and writers.key_differs(before, after):
                        yield from self._moved(writers, before, after, origin.members, place, end, ts_ms)
                    else:
                        old = "null" if before is None else writers.row(before)
                        key, value = whole(after, old, members, place, op, end)
                        yield new(OutRecord, (topic, key, value, ts_ms, _NONE, ANY_PARTITION))
                elif op == DELETE:
                    yield from self._deleted(writers, before, origin.members, place, end, ts_ms, _NONE)
                elif op == TRUNCATE:
                    value = self._value(writers, "null", "null", TRUNCATE, origin.members, place, end)
                    yield OutRecord(writers.topic, writers.empty_key, value, ts_ms, _NONE, EVERY_PARTITION)
                else:  # create or read
                    key, value = whole(after, "null", members, place, op, end)
                    yield new(OutRecord, (topic, key, value, ts_ms, _NONE, ANY_PARTITION))
            elif isinstance(event, TransactionEnd):
                if log is not None and (ended := log.end(event.origin)) is not None:
                    yield OutRecord(*ended, event.origin.ts_ms)
            elif isinstance(event, Message):
                if MESSAGE not in skipped:
                    yield self._message(event, times, now_us)
            else:
                assert isinstance(event, SchemaChange)
                yield self._schema_change(event, times, now_us)

    # --- rows

    def _value(self, writers: _Writers, before: str, after: str, op: str, members: str, place: str, end: str) -> bytes:
        return (
            f'{writers.head}{before},"after":{after},{writers.source}{members},{place}}},"op":"{op}"{end}{writers.tail}'
        ).encode("latin-1")

    def _deleted(
        self, writers: _Writers, before: Row, members: str, place: str, end: str, ts_ms: int, headers: Headers
    ) -> Iterator[OutRecord]:
        key = writers.key(before)
        value = self._value(writers, writers.row(before), "null", DELETE, members, place, end)
        yield OutRecord(writers.topic, key, value, ts_ms, headers)
        if self._settings.tombstones and key is not None:
            yield OutRecord(writers.topic, key, None, ts_ms)

    def _moved(
        self, writers: _Writers, before: Row, after: Row, members: str, place: str, end: str, ts_ms: int
    ) -> Iterator[OutRecord]:
        """An update of the key: the row under the old key goes, one under the new key comes."""
        old_key, new_key = writers.key(before), writers.key(after)
        to_new = (("__debezium.newkey", new_key),) if new_key is not None else _NONE
        yield from self._deleted(writers, before, members, place, end, ts_ms, to_new)
        value = self._value(writers, "null", writers.row(after), CREATE, members, place, end)
        to_old = (("__debezium.oldkey", old_key),) if old_key is not None else _NONE
        yield OutRecord(writers.topic, new_key, value, ts_ms, to_old)

    def _flat(
        self, writers: _Writers, op: str, before: Row | None, after: Row | None, ts_ms: int
    ) -> Iterator[OutRecord]:
        if op == TRUNCATE:
            return  # a row alone cannot say it; who needs it reads the envelope
        if before is not None and (after is None or writers.key_differs(before, after)):
            key = writers.key(before)
            if self._settings.unwrap == "rewrite":
                yield OutRecord(writers.topic, key, self._flat_value(writers, before, "true"), ts_ms)
            if key is not None:
                yield OutRecord(writers.topic, key, None, ts_ms)
        if after is not None:
            yield OutRecord(writers.topic, writers.key(after), self._flat_value(writers, after, "false"), ts_ms)

    def _flat_value(self, writers: _Writers, row: Row, deleted: str) -> bytes:
        text = writers.row(row)
        if self._settings.unwrap == "rewrite":
            text = f'{text[:-1]},"__deleted":"{deleted}"}}'
        return f"{writers.flat_head}{text}{writers.tail[1:]}".encode("latin-1")

    # --- what stands beside rows

    def _message(self, message: Message, times: str, now_us: int) -> OutRecord:
        settings = self._settings
        ts_ms = message.origin.ts_ms or now_us // 1000
        if settings.outbox_prefix and message.prefix == settings.outbox_prefix:
            routed = route(message.content)
            if routed is not None:
                return OutRecord(routed.topic, routed.key, routed.value, ts_ms, routed.headers)
        members = f"{message.origin.members}," if message.origin.members else f'"ts_ms":{ts_ms},"snapshot":"false",'
        content = base64.b64encode(message.content).decode()
        prefix = json_wire(message.prefix)
        value = (
            f'{{"op":"m","message":{{"prefix":{prefix},"content":"{content}"}},{self._source("", "")}{members}'
            f"{message.place}}},{times}}}"
        )
        key = f'{{"prefix":{prefix}}}'
        return OutRecord(settings.names.messages, key.encode("latin-1"), value.encode("latin-1"), ts_ms)

    def _schema_change(self, event: SchemaChange, times: str, now_us: int) -> OutRecord:
        table = event.table
        described = {
            "id": f"{self._settings.database}.{table.full_name}",
            "change": event.what,
            "primaryKeyColumnNames": [column.name for column in table.key_columns],
            "columns": [
                {"name": column.name, "typeName": column.type_name, "optional": column.optional}
                for column in table.columns
            ],
        }
        members = f"{event.origin.members}," if event.origin.members else ""
        value = (
            f"{{{self._source(table.schema, table.name)}{members}{event.place}}},{times},"
            f'"databaseName":{json_wire(self._settings.database)},"tableChanges":[{json_wire(described)}]}}'
        )
        key = json_wire({"databaseName": self._settings.database, "table": table.full_name})
        return OutRecord(
            self._settings.names.schema_changes, key.encode("latin-1"), value.encode("latin-1"), now_us // 1000
        )

    # --- writers for a table

    def _source(self, schema: str, table: str) -> str:
        settings = self._settings
        fixed: dict[str, Any] = {
            "version": settings.version,
            "connector": settings.connector,
            "name": settings.names.prefix,
            "db": settings.database,
        }
        if table:
            fixed |= {"schema": schema, "table": table}
        return f'"source":{json_wire(fixed)[:-1]},'

    def _make(self, table: Table) -> _Writers:
        settings = self._settings
        view = self._filters.view(table)
        key_view = tuple((index, table.columns[index]) for index in table.key)
        topic = self.topic_of(table)
        key_around = wrapped(key_schema(topic, key_view)) if settings.schemas else ("", "")
        before, after = key_around
        write_key: Callable[[Row], bytes | None] = _no_key
        empty = None
        if key_view:
            write_key = image_writer(key_view, before=before, after=after, nullable=False, encoded=True)
            nulls = ",".join(f"{json_wire(column.name)}:null" for _, column in key_view)
            empty = f"{before}{{{nulls}}}{after}".encode("latin-1")
        head, tail, flat_head = '{"before":', "}", ""
        if settings.schemas:
            opening, closing = wrapped(envelope_schema(topic, row_schema(view)))
            head, tail = opening + head, tail + closing
            flat_head = wrapped(row_schema(view))[0]
        source = self._source(table.schema, table.name)
        writers = _Writers(
            topic,
            write_key,
            empty,
            image_writer(view),
            record_writer(view, table.key, key_around=key_around, head=head, source=source, tail=tail),
            head,
            source,
            tail,
            flat_head,
            key_differs(table.key),
        )
        # The table is kept with them, so that no other can come to have its identity.
        self._made[id(table)] = (table, writers)
        return writers


def _no_key(_row: Row) -> None:
    return None
