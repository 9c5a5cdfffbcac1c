"""From a record to what it says about a row. Pure.

Understood are Debezium's envelope, with or without Connect's schema around it, rows alone, and tombstones, as JSON or
as Avro. Where a schema comes with a record, times and decimals become texts that every store can read.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from headrace.client.cluster import Cluster
from headrace.connect.avro.places import look_up_at
from headrace.connect.avro.reading import AvroReader
from headrace.connect.avro.types import DECIMAL
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sync.meanings import (
    AVRO_MARKS,
    CONVERTERS,
    JSON_MARKS,
    UnreadableRecord,
    decimal_text,
    is_unavailable,
)
from headrace.forgetting.errors import Tampered, UnknownKey
from headrace.forgetting.keyring import Keyring

ENVELOPE, PLAIN = "envelope", "plain"
JSON, TEXT, AVRO = "json", "text", "avro"

_TRUNCATE: Final = re.compile(rb'"op"\s*:\s*"t"')


@dataclass(frozen=True, slots=True)
class RecordFormat:
    value: str = ENVELOPE
    key: str = JSON
    key_column: str = "key"  # of a key that is a bare value
    value_column: str = "value"  # of a plain value that is no object
    format: str = JSON
    registry: str = ""  # the URL of the schema registry; without one Avro's schemas are in our topic
    reader: AvroReader | None = field(default=None, compare=False, repr=False)  # of Avro, once there is a cluster
    keys: Keyring | None = field(default=None, compare=False, repr=False)  # open what is sealed, if there are any

    def __post_init__(self) -> None:
        if self.value not in (ENVELOPE, PLAIN):
            raise InvalidConnectSetting("value", self.value, "choose 'envelope' or 'plain'")
        if self.key not in (JSON, TEXT):
            raise InvalidConnectSetting("key", self.key, "choose 'json' or 'text'")
        if self.format not in (JSON, AVRO):
            raise InvalidConnectSetting("format", self.format, "choose 'json' or 'avro'")
        if self.registry and self.format != AVRO:
            raise InvalidConnectSetting("registry", "…", 'only Avro has one: add format = "avro"')

    def opened(self, connect: Callable[[], Cluster]) -> "RecordFormat":
        """The same, able to read: Avro needs its schemas."""
        if self.format != AVRO or self.reader is not None:
            return self
        return replace(self, reader=AvroReader(look_up_at(self.registry, connect)))

    def may_truncate(self, value: bytes) -> bool:
        """Whether a value may be a truncate, told without reading it."""
        if self.value != ENVELOPE:
            return False
        return _TRUNCATE.search(value) is not None if self.reader is None else self.reader.may_truncate(value)

    def leaves_out(self, value: bytes | None) -> bool:
        """Whether a value may lack something that the database did not send again, told without reading it."""
        return value is not None and any(mark in value for mark in (JSON_MARKS if self.reader is None else AVRO_MARKS))

    def parsed(self, data: bytes, part: str, *, is_envelope: bool = False) -> Any:
        """A key or a value, without what is only around it."""
        if self.reader is not None:
            return self.reader.read_envelope(data) if is_envelope else self.reader.read(data, part)
        return _payload(_json(data, part))


class ReadRow(NamedTuple):
    """What a value says: the row after it, None if it is gone; and what it was before, if told."""

    after: dict[str, Any] | None
    before: dict[str, Any] | None = None
    truncates: tuple[int, ...] | None = None  # when it did; later ones compare as greater
    op: str = ""  # of an envelope


def read_key(key: bytes | None, form: RecordFormat) -> dict[str, Any]:
    if key is None:
        raise UnreadableRecord("the record has no key, so no row can be found by it")
    if form.key == TEXT:
        return {form.key_column: _text(key)}
    read = form.parsed(key, "key")
    if isinstance(read, dict):
        if not read:
            raise UnreadableRecord("the key is an empty object")
        return read
    return {form.key_column: read}


def read_value(value: bytes | None, form: RecordFormat) -> ReadRow:
    """What a value says about its row, with what is sealed in it opened if there are keys."""
    read = _read_value(value, form)
    if form.keys is None:
        return read
    try:
        after, before = (None if row is None else form.keys.open_sealed(row) for row in (read.after, read.before))
    except (Tampered, UnknownKey) as error:
        raise UnreadableRecord(str(error)) from error
    return read._replace(after=after, before=before)


def _read_value(value: bytes | None, form: RecordFormat) -> ReadRow:
    if value is None:
        return ReadRow(None)
    read = form.parsed(value, "value", is_envelope=form.value == ENVELOPE)
    if form.value == PLAIN:
        if not isinstance(read, dict):
            return ReadRow({form.value_column: read})
        if (deleted := read.pop("__deleted", None)) is not None and str(deleted).lower() == "true":
            return ReadRow(None, read)
        return ReadRow(read)
    if not isinstance(read, dict) or "op" not in read:
        raise UnreadableRecord(
            "the value is not a change envelope: it has no 'op'; for rows alone set value = \"plain\""
        )
    after, before = read.get("after"), read.get("before")
    match read["op"]:
        case "c" | "u" | "r":
            if not isinstance(after, dict):
                raise UnreadableRecord(f"the envelope has op {read['op']!r} and no row in 'after'")
            return ReadRow(after, before if isinstance(before, dict) else None, op=read["op"])
        case "d":
            return ReadRow(None, before if isinstance(before, dict) else None, op="d")
        case "t":
            return ReadRow(None, None, _moment(read.get("source") or {}))
    raise UnreadableRecord(f"the envelope has the unknown op {read['op']!r}")


def _moment(source: Mapping[str, Any]) -> tuple[int, ...]:
    """When it was, and which of that moment: some databases count seconds.

    The time comes first, because places in the log begin anew in a database that was restored.
    """
    ts_us = source.get("ts_us")
    micros = ts_us if isinstance(ts_us, int) else 1000 * int(source.get("ts_ms") or 0)
    number = re.search(r"\d+$", str(source.get("gtid") or ""))
    places = (source.get("lsn"), int(number[0]) if number else None, source.get("pos"), source.get("position"))
    return (micros, *(place if isinstance(place, int) else 0 for place in places))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableRecord("the key is not valid UTF-8") from error


_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # the decoder's own, in C


def _json(data: bytes, part: str) -> Any:
    try:
        text = data.decode()
        try:
            read, end = _scan(text, 0)  # a third faster than `loads`, which guesses encodings and trims
            if end == len(text):
                return read
        except StopIteration:
            pass
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableRecord(f"the {part} is not valid JSON: {error}") from error


def _payload(read: Any) -> Any:
    """What stands inside Connect's schema wrapper, if there is one."""
    if not isinstance(read, dict) or len(read) != 2 or "payload" not in read or "schema" not in read:
        return read
    schema = read["schema"]
    return _plain(read["payload"], schema) if isinstance(schema, dict) else read["payload"]


def _plain(value: Any, schema: Mapping[str, Any]) -> Any:
    if value is None:
        return None
    kind = schema.get("type")
    if kind == "struct" and isinstance(value, dict):
        fields = {field.get("field"): field for field in schema.get("fields") or ()}
        return {name: _plain(part, fields[name]) if name in fields else part for name, part in value.items()}
    if kind == "array" and isinstance(value, list):
        items = schema.get("items") or {}
        return [_plain(part, items) for part in value]
    name = str(schema.get("name"))
    convert = CONVERTERS.get(name)
    if (convert is None and name != DECIMAL) or is_unavailable(value):
        return value
    try:
        if convert is None:
            scale = (schema.get("parameters") or {})["scale"]
            return decimal_text(base64.b64decode(value, validate=True), int(scale))
        return convert(value)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        raise UnreadableRecord(f"{value!r} is no {schema.get('name')}") from error
