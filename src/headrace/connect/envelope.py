"""Debezium's envelope, written by functions that are made for each table. Pure.

`EnvelopeWriter.write` takes an event and answers records: which ones, under which key, in which order. How they are
written is the form's (`json_form.py`, `avro/`): it makes straight-line code for each shape of a table.

A record's key is the primary key. An update that changes it is a delete of the old key and a create of the new one, as
Debezium does it, each with a header that names the other. A delete is followed by a tombstone, so that compaction
forgets the row. A truncate has the key with nulls in it, which no row has, and goes to every partition: a compacted
topic takes no record without a key, and without the truncate a reader would keep rows that are gone.
"""

import json
import re
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
    Position,
    Ready,
    SchemaChange,
    TransactionEnd,
    TransactionLog,
)
from headrace.connect.errors import InvalidConnectSetting, SourceRefused
from headrace.connect.filters import Filters, keyed, refuse_nulls
from headrace.connect.form import Form, Piece, SchemaIds, TableWriters
from headrace.connect.json_form import JsonForm
from headrace.connect.table import Row, Table, TableName


class RoutedEvent(NamedTuple):
    """Where an event goes, and as what."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def route(content: bytes) -> RoutedEvent | None:
    """The event in a message; None if it is none, which is then treated as any other message."""
    try:
        event = json.loads(content)
        kind = str(event["aggregatetype"])
    except (ValueError, TypeError, KeyError):
        return None
    payload = event.get("payload")
    value = (
        None if payload is None else payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    )
    headers = tuple(
        (name, str(event[field]).encode()) for field, name in (("id", "id"), ("type", "eventType")) if event.get(field)
    )
    key = event.get("aggregateid")
    return RoutedEvent(
        f"outbox.event.{kind}",
        None if key is None else str(key).encode(),
        None if value is None else value.encode(),
        headers,
    )


_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Topic names of one connector; `template` may hold {prefix}, {database}, {schema} and {table}."""

    prefix: str
    template: str = "{prefix}.{schema}.{table}"

    def __post_init__(self) -> None:
        if not _ALLOWED.fullmatch(self.prefix):
            raise InvalidConnectSetting("prefix", self.prefix, "use letters, digits, '.', '_' and '-' only")
        try:
            self.template.format(prefix="p", database="d", schema="s", table="t")
        except (KeyError, IndexError, ValueError) as error:
            wanted = "it may hold {prefix}, {database}, {schema} and {table}"
            raise InvalidConnectSetting("topic", self.template, wanted) from error

    def table(self, database: str, schema: str, table: str) -> str:
        """The topic of a table; what a topic's name cannot hold becomes an underscore."""
        return _FORBIDDEN.sub("_", self.written(database, schema, table))

    def written(self, database: str, schema: str, table: str) -> str:
        """What the template says, before it is made fit for a topic."""
        return self.template.format(prefix=self.prefix, database=database, schema=schema, table=table)

    @property
    def transactions(self) -> str:
        """Where transactions begin and end."""
        return f"{self.prefix}.transaction"

    @property
    def messages(self) -> str:
        """Logical messages of the database."""
        return f"{self.prefix}.message"

    @property
    def schema_changes(self) -> str:
        """Changes of tables' shapes."""
        return f"{self.prefix}.schema-changes"


EVERY_PARTITION: Final = -1
ANY_PARTITION: Final = -2
Headers: TypeAlias = tuple[tuple[str, bytes], ...]
_NONE: Final[Headers] = ()
JSON, AVRO = "json", "avro"
NUMBERING: Final = "numbering"  # the key of ours in a position
FORMATS: Final = (JSON, AVRO)
_ROW_ALONE: Final = (CREATE, READ)
_NOWHERE: Final = object()


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
    format: str = JSON

    def __post_init__(self) -> None:
        if self.unwrap not in ("", "drop", "rewrite"):
            raise InvalidConnectSetting("unwrap", self.unwrap, "choose 'drop' or 'rewrite', or leave it out")
        if self.format not in FORMATS:
            raise InvalidConnectSetting("format", self.format, f"choose {' or '.join(FORMATS)}")
        if self.format == AVRO and self.schemas:
            raise InvalidConnectSetting("schemas", True, "Avro has its schemas beside the records: leave it out")
        for operation in self.skipped_operations:
            if operation not in OPERATIONS:
                raise InvalidConnectSetting("skipped_operations", operation, f"choose among {', '.join(OPERATIONS)}")


class EnvelopeWriter:
    def __init__(self, settings: EnvelopeSettings, filters: Filters, schema_ids: SchemaIds | None = None) -> None:
        """Avro needs `schema_ids`, which makes a schema known and tells its number."""
        self._settings = settings
        self._filters = filters
        self._form = _form(settings, filters, schema_ids)
        self._made: dict[int, tuple[Table, TableWriters]] = {}
        self._log = TransactionLog() if settings.transaction_metadata else None
        self._skipped = settings.skipped_operations
        self._topics: dict[str, tuple[str, str]] = {}  # what each was to be called, and for which table

    def topic_of(self, table: Table) -> str:
        return self._topic(table.schema, table.name)

    def _topic(self, schema: str, table: str) -> str:
        names, database = self._settings.names, self._settings.database
        topic, written = names.table(database, schema, table), names.written(database, schema, table)
        other, of_other = self._topics.setdefault(topic, (written, f"{schema}.{table}"))
        if other != written:
            raise SourceRefused(
                f"tables {of_other} and {schema}.{table} would both be written to topic {topic}, because a topic's "
                "name cannot hold every letter",
                "exclude one of them with exclude_tables, and capture it by itself with a prefix of its own",
            )
        return topic

    def topics_of(self, tables: Iterable[TableName]) -> dict[str, bool]:
        """The topics of tables, and whether every record of one has a key."""
        found: dict[str, bool] = {}
        for schema, name, is_keyed in tables:
            topic = self._topic(schema, name)
            has_key = is_keyed or bool(self._filters.key_of(f"{schema}.{name}"))
            found[topic] = found.get(topic, True) and has_key
        return found

    def stamped(self, position: Position) -> Position:
        """A position with what is needed to go on writing there: the numbers of a transaction that is not complete."""
        state = None if self._log is None else self._log.state
        return position if state is None else {**position, NUMBERING: state}

    def resume(self, position: Position | None) -> None:
        """Go on writing behind a position that was `stamped`."""
        if self._log is not None and position is not None and NUMBERING in position:
            self._log.resume(position[NUMBERING])

    def write(self, events: Iterable[Event], now_us: int) -> Iterator[OutRecord]:
        """The records of some events, in order; `now_us` is when they are written."""
        form = self._form
        null, log, made, skipped = form.null, self._log, self._made, self._skipped
        plain = form.end(None, now_us)
        is_flat = bool(self._settings.unwrap)
        is_plain = not is_flat and log is None and not skipped
        new = tuple.__new__  # a record without the detour through its keyword arguments
        # Changes of one table and one transaction mostly stand together, so what they share is looked up once.
        last_table: Table | None = None
        last_origin: Origin | None = None
        last_place: Any = _NOWHERE
        members: Piece = null
        placed: Piece = null
        ts_ms = 0
        for event in events:
            if event.__class__ is Change:
                change: Any = event
                table, op, before, after, origin, place = change
                if table is not last_table:
                    known = made.get(id(table))
                    writers = known[1] if known is not None else self._make(table)
                    topic, whole, headers = writers.topic, writers.whole, writers.headers
                    last_table = table
                if origin is not last_origin:
                    members, ts_ms = form.origin(origin), origin.ts_us // 1000
                    write_place = form.place(origin)
                    last_origin, last_place = origin, _NOWHERE
                if place is not last_place:  # rows of a snapshot have one and the same
                    placed, last_place = write_place(place), place
                if is_plain and op in _ROW_ALONE:
                    key, value = whole(after, null, members, placed, op, plain)
                    yield new(OutRecord, (topic, key, value, ts_ms, headers, ANY_PARTITION))
                    continue
                if op in skipped:
                    continue
                end = plain
                if log is not None and origin.transaction_id is not None:
                    block, begun = log.count(origin, table.full_name)
                    if begun is not None:
                        yield self._transaction(begun, ts_ms)
                    end = form.end(block, now_us)
                if is_flat:
                    yield from self._flat(writers, op, before, after, ts_ms)
                elif op == UPDATE:
                    if before is not None and writers.key_differs(before, after):
                        yield from self._moved(writers, before, after, members, placed, end, ts_ms)
                    else:
                        old = null if before is None else writers.row(before)
                        key, value = whole(after, old, members, placed, op, end)
                        yield new(OutRecord, (topic, key, value, ts_ms, headers, ANY_PARTITION))
                elif op == DELETE:
                    yield from self._deleted(writers, before, members, placed, end, ts_ms, _NONE)
                elif op == TRUNCATE:
                    value = writers.envelope(null, null, members, placed, TRUNCATE, end)
                    yield OutRecord(writers.topic, writers.empty_key, value, ts_ms, _NONE, EVERY_PARTITION)
                else:  # create or read
                    key, value = whole(after, null, members, placed, op, end)
                    yield new(OutRecord, (topic, key, value, ts_ms, headers, ANY_PARTITION))
            elif event.__class__ is Ready:
                ready: Any = event
                yield new(OutRecord, (*ready[:5], ANY_PARTITION))
            elif isinstance(event, TransactionEnd):
                if log is not None and (ended := log.end(event.origin)) is not None:
                    yield self._transaction(ended, event.origin.ts_ms)
            elif isinstance(event, Message):
                if MESSAGE not in skipped:
                    yield self._message(event, now_us)
            else:
                assert isinstance(event, SchemaChange)
                yield self._schema_change(event, now_us)

    # --- rows

    def _deleted(
        self, writers: TableWriters, before: Row, members: Piece, place: Piece, end: Piece, ts_ms: int, headers: Headers
    ) -> Iterator[OutRecord]:
        key = writers.key(before)
        value = writers.envelope(writers.row(before), self._form.null, members, place, DELETE, end)
        yield OutRecord(writers.topic, key, value, ts_ms, writers.headers + headers)
        if self._settings.tombstones and key is not None:
            yield OutRecord(writers.topic, key, None, ts_ms, writers.headers)

    def _moved(
        self, writers: TableWriters, before: Row, after: Row, members: Piece, place: Piece, end: Piece, ts_ms: int
    ) -> Iterator[OutRecord]:
        """An update of the key: the row under the old key goes, one under the new key comes."""
        old_key, new_key = writers.key(before), writers.key(after)
        to_new = (("__debezium.newkey", new_key),) if new_key is not None else _NONE
        yield from self._deleted(writers, before, members, place, end, ts_ms, to_new)
        value = writers.envelope(self._form.null, writers.row(after), members, place, CREATE, end)
        to_old = (("__debezium.oldkey", old_key),) if old_key is not None else _NONE
        yield OutRecord(writers.topic, new_key, value, ts_ms, writers.headers + to_old)

    def _flat(
        self, writers: TableWriters, op: str, before: Row | None, after: Row | None, ts_ms: int
    ) -> Iterator[OutRecord]:
        if op == TRUNCATE:
            return  # a row alone cannot say it; who needs it reads the envelope
        key = None if before is None else writers.key(before)
        # A row without a key is known by its values alone: the old one goes, and the new one comes.
        if before is not None and (after is None or key is None or writers.key_differs(before, after)):
            if self._settings.unwrap == "rewrite":
                yield OutRecord(writers.topic, key, writers.flat(before, True), ts_ms, writers.headers)
            if key is not None:
                yield OutRecord(writers.topic, key, None, ts_ms, writers.headers)
        if after is not None:
            yield OutRecord(writers.topic, writers.key(after), writers.flat(after, False), ts_ms, writers.headers)

    def _make(self, table: Table) -> TableWriters:
        chosen = self._filters.key_of(table.full_name)
        writers = self._form.table(keyed(table, chosen), self.topic_of(table))
        if chosen:
            writers = _checked(writers, refuse_nulls(keyed(table, chosen)))
        # The table is kept with them, so that no other can come to have its identity.
        self._made[id(table)] = (table, writers)
        return writers

    # --- what stands beside rows

    def _transaction(self, event: dict[str, Any], ts_ms: int) -> OutRecord:
        return OutRecord(self._settings.names.transactions, *self._form.transaction(event), ts_ms)

    def _message(self, message: Message, now_us: int) -> OutRecord:
        settings = self._settings
        ts_ms = message.origin.ts_ms or now_us // 1000
        if settings.outbox_prefix and message.prefix == settings.outbox_prefix:
            routed = route(message.content)
            if routed is not None:
                return OutRecord(routed.topic, routed.key, routed.value, ts_ms, routed.headers)
        return OutRecord(settings.names.messages, *self._form.message(message, ts_ms, now_us), ts_ms)

    def _schema_change(self, event: SchemaChange, now_us: int) -> OutRecord:
        topic = self._settings.names.schema_changes
        return OutRecord(topic, *self._form.schema_change(event, now_us), now_us // 1000)


def _checked(writers: TableWriters, check: Callable[[Row], None]) -> TableWriters:
    """Writers that look at the key before they write it."""

    def key(row: Row) -> bytes | None:
        check(row)
        return writers.key(row)

    def whole(row: Row, *rest: Any) -> tuple[bytes | None, bytes]:
        check(row)
        return writers.whole(row, *rest)

    return writers._replace(key=key, whole=whole)


def _form(settings: EnvelopeSettings, filters: Filters, schema_ids: SchemaIds | None) -> Form:
    source = {
        "version": settings.version,
        "connector": settings.connector,
        "name": settings.names.prefix,
        "db": settings.database,
    }
    if settings.format == JSON:
        return JsonForm(source, filters, schemas=settings.schemas, unwrap=settings.unwrap)
    if schema_ids is None:
        raise InvalidConnectSetting("format", settings.format, "whoever writes Avro says where its schemas are kept")
    from headrace.connect.avro.avro_form import AvroForm

    return AvroForm(source, settings.names, filters, schema_ids, unwrap=settings.unwrap)
