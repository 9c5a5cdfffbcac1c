"""Avro values back to what JSON would have said of them, for derived systems: fastavro reads, and times become texts.

What a value means is taken from Connect's names in the schema (`connect.name`), else from Avro's logical types. The
library is told neither, so that a number that is no date, like PostgreSQL's infinity, troubles nobody but its reader.
"""

import io
import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headrace import extras
from headrace.connect.avro.types import COLUMN, DECIMAL
from headrace.connect.sync.meanings import CONVERTERS, UnreadableRecord, decimal_text, is_unavailable
from headrace.schema_registry import UnknownSchema

Convert = Callable[[Any], Any]
LookUp = Callable[[int], str]
_FRAME_BYTES: Final = 5
_NO_ROWS: Final = b"\x00\x00"  # neither before nor after
_LOGICAL: Final = {  # Avro's own names, for topics that another program writes
    "date": "org.apache.kafka.connect.data.Date",
    "timestamp-millis": "io.debezium.time.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "time-millis": "io.debezium.time.Time",
    "time-micros": "io.debezium.time.MicroTime",
}


class _Known(NamedTuple):
    """A schema that was met."""

    parsed: Any
    convert: Convert | None
    row: Any = None  # the row with null, if a value begins with `before` and `after`, as an envelope does
    convert_row: Convert | None = None


class AvroReader:
    """Reads values in Confluent's framing."""

    def __init__(self, look_up: LookUp) -> None:
        fastavro = extras.load("fastavro", "Avro")
        self._library = fastavro
        self._read = fastavro.schemaless_reader
        self._look_up = look_up
        self._known: dict[bytes, _Known] = {}

    def read(self, data: bytes, part: str) -> Any:
        """A key or a value; raises `UnreadableRecord`."""
        known = self._schema_of(data, part)
        stream = io.BytesIO(data)
        stream.seek(_FRAME_BYTES)
        try:
            found = self._read(stream, known.parsed, None)
        except Exception as error:  # whatever a broken value makes the library stumble over
            raise UnreadableRecord(
                f"the {part} does not match its Avro schema ({type(error).__name__}: {error})"
            ) from error
        if stream.tell() != len(data):
            raise UnreadableRecord(f"bytes follow the Avro of the {part}")
        return found if known.convert is None else known.convert(found)

    def read_envelope(self, data: bytes) -> Any:
        """A value; of an envelope only the rows, which say enough, unless there are none."""
        known = self._schema_of(data, "value")
        if known.row is None or data[_FRAME_BYTES : _FRAME_BYTES + 2] == _NO_ROWS:
            return self.read(data, "value")
        stream = io.BytesIO(data)
        stream.seek(_FRAME_BYTES)
        try:
            before = self._read(stream, known.row, None)
            after = self._read(stream, known.row, None)
        except Exception as error:  # whatever a broken value makes the library stumble over
            raise UnreadableRecord(
                f"the value does not match its Avro schema ({type(error).__name__}: {error})"
            ) from error
        if known.convert_row is not None:
            before, after = known.convert_row(before), known.convert_row(after)
        return {"op": "d" if after is None else "u", "before": before, "after": after}

    def may_truncate(self, data: bytes) -> bool:
        """Whether it is worth reading a value to see whether it is a truncate: those have no rows."""
        try:
            known = self._schema_of(data, "value")
        except UnreadableRecord:
            return False  # told when it is read
        return known.row is None or data[_FRAME_BYTES : _FRAME_BYTES + 2] == _NO_ROWS

    def _schema_of(self, data: bytes, part: str) -> _Known:
        head = data[:_FRAME_BYTES]
        known = self._known.get(head)
        if known is None:
            if len(head) < _FRAME_BYTES or head[0]:
                raise UnreadableRecord(
                    f"the {part} has no schema id before it, so it is not Avro in Confluent's framing"
                )
            try:
                known = self._known[head] = self._learned(self._look_up(int.from_bytes(head[1:])))
            except UnknownSchema as error:
                raise UnreadableRecord(f"the {part} cannot be read: {error}") from error
        return known

    def _learned(self, text: str) -> _Known:
        try:
            described = json.loads(text)
            convert = _converter(described, {})
            parsed = self._library.parse_schema(_bare(described))
            if not _leads_with_rows(described):
                return _Known(parsed, convert)
            row = described["fields"][0]["type"]
            return _Known(parsed, convert, self._library.parse_schema(_bare(row)), _converter(row, {}))
        except Exception as error:  # the library raises errors of several families
            raise UnreadableRecord(f"its schema is none that can be read ({error})") from error


def _bare(schema: Any) -> Any:
    """A schema without logical types."""
    if isinstance(schema, list):
        return [_bare(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: [_bare(one) for one in value] if name == "fields" else _bare(value) if name in _INNER else value
        for name, value in schema.items()
        if name != "logicalType"
    }


_INNER: Final = ("type", "items", "values")


def _leads_with_rows(schema: Any) -> bool:
    """Whether a record begins with two rows of one type, each of which may be null."""
    fields = schema.get("fields", []) if isinstance(schema, dict) else []
    if [field["name"] for field in fields[:2]] != ["before", "after"]:
        return False
    before, after = (field["type"] for field in fields[:2])
    if not isinstance(before, list) or len(before) != 2 or before[0] != "null" or not isinstance(before[1], dict):
        return False
    name, space = before[1].get("name", ""), before[1].get("namespace", schema.get("namespace", ""))
    before[1].setdefault("namespace", space)  # so that it has the same name when it stands alone
    return after in (["null", name], ["null", f"{space}.{name}"])


def _converter(schema: Any, records: dict[str, Convert | None]) -> Convert | None:
    """A function that makes a read value what JSON would have; None if it is that already."""
    if isinstance(schema, str):
        return _base64 if schema == "bytes" else records.get(schema)
    if isinstance(schema, list):
        return _union(schema, records)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _converter(kind, records)
    if kind == "record":
        return _record(schema, records)
    if kind == "array":
        item = _converter(schema["items"], records)
        return None if item is None else lambda values: [item(value) for value in values]
    if kind == "map":
        value_of = _converter(schema["values"], records)
        return None if value_of is None else lambda held: {key: value_of(value) for key, value in held.items()}
    return _scalar(schema, kind)


def _scalar(schema: Mapping[str, Any], kind: str) -> Convert | None:
    name = schema.get("connect.name") or _LOGICAL.get(schema.get("logicalType", ""), "")
    if kind in ("bytes", "fixed"):
        if name == DECIMAL or schema.get("logicalType") == "decimal":
            scale = int(schema.get("scale", 0))
            return lambda data: decimal_text(data, scale)
        return _base64
    convert = CONVERTERS.get(name)
    return None if convert is None else lambda value: _meant(convert, value, name)


def _meant(convert: Callable[[Any], str], value: Any, name: str) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise UnreadableRecord(f"{value!r} is no {name}") from error


def _union(branches: list[Any], records: dict[str, Convert | None]) -> Convert | None:
    """With null and one type, that type's; of more types only bytes have to be changed."""
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        for branch in others:
            _converter(branch, records)  # for the names in it
        return _any
    convert = _converter(others[0], records)
    return None if convert is None else lambda value: None if value is None else convert(value)


def _record(schema: Mapping[str, Any], records: dict[str, Convert | None]) -> Convert | None:
    name, space = schema["name"], schema.get("namespace", "")
    changes = [(field["name"], _converter(field["type"], records)) for field in schema["fields"]]
    wanted = [(field, convert) for field, convert in changes if convert is not None]
    renamed = {field["name"]: field[COLUMN] for field in schema["fields"] if COLUMN in field}
    made: Convert | None = None
    if wanted or renamed:

        def made(value: dict[str, Any]) -> dict[str, Any]:
            for field, convert in wanted:
                held = value[field]
                if held is not None and not (held.__class__ is not bytes and is_unavailable(held)):
                    value[field] = convert(held)
            return {renamed.get(field, field): held for field, held in value.items()} if renamed else value

    records[name] = made
    records[f"{space}.{name}" if space else name] = made
    return made


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _any(value: Any) -> Any:
    return _base64(value) if isinstance(value, bytes) else value
