"""From a record to what it says about a row. Pure.

Understood are Debezium's envelope, with or without Connect's schema around it, rows alone, and tombstones. Where a
schema comes with a record, times and decimals become texts that every store can read.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from headrace.connect.errors import ConnectError, InvalidConnectSetting
from headrace.connect.table import UNAVAILABLE_TEXT

ENVELOPE, PLAIN = "envelope", "plain"
JSON, TEXT = "json", "text"

_UNAVAILABLE_BASE64: Final = base64.b64encode(UNAVAILABLE_TEXT.encode()).decode()
UNAVAILABLE: Final = (UNAVAILABLE_TEXT, _UNAVAILABLE_BASE64)
UNAVAILABLE_MARKS: Final = tuple(mark.encode() for mark in UNAVAILABLE)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - Debezium's timestamps without a zone are counted from here


class UnreadableRecord(ConnectError):
    """A record that says nothing about a row; it goes to the dead letters."""


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How records are to be read."""

    value: str = ENVELOPE
    key: str = JSON
    key_column: str = "key"  # of a key that is a bare value
    value_column: str = "value"  # of a plain value that is no object

    def __post_init__(self) -> None:
        if self.value not in (ENVELOPE, PLAIN):
            raise InvalidConnectSetting("value", self.value, "choose 'envelope' or 'plain'")
        if self.key not in (JSON, TEXT):
            raise InvalidConnectSetting("key", self.key, "choose 'json' or 'text'")


class ReadRow(NamedTuple):
    """What a value says: the row after it, None if it is gone; and what it was before, if told."""

    after: dict[str, Any] | None
    before: dict[str, Any] | None = None
    truncates: tuple[int, ...] | None = None  # when it did; later ones compare as greater


def read_key(key: bytes | None, form: RecordFormat) -> dict[str, Any]:
    """A key's columns."""
    if key is None:
        raise UnreadableRecord("the record has no key, so no row can be found by it")
    if form.key == TEXT:
        return {form.key_column: _text(key)}
    read = _payload(_json(key, "key"))
    if isinstance(read, dict):
        if not read:
            raise UnreadableRecord("the key is an empty object")
        return read
    return {form.key_column: read}


def read_value(value: bytes | None, form: RecordFormat) -> ReadRow:
    """What a value says about its row."""
    if value is None:
        return ReadRow(None)
    read = _payload(_json(value, "value"))
    if form.value == PLAIN:
        if not isinstance(read, dict):
            return ReadRow({form.value_column: read})
        if (deleted := read.pop("__deleted", None)) is not None and str(deleted).lower() == "true":
            return ReadRow(None, read)
        return ReadRow(read)
    if not isinstance(read, dict) or "op" not in read:
        raise UnreadableRecord("the value is no change envelope: it has no 'op'; for rows alone set value = \"plain\"")
    after, before = read.get("after"), read.get("before")
    match read["op"]:
        case "c" | "u" | "r":
            if not isinstance(after, dict):
                raise UnreadableRecord(f"the envelope has op {read['op']!r} and no row in 'after'")
            return ReadRow(after, before if isinstance(before, dict) else None)
        case "d":
            return ReadRow(None, before if isinstance(before, dict) else None)
        case "t":
            return ReadRow(None, None, _moment(read.get("source") or {}))
    raise UnreadableRecord(f"the envelope has the unknown op {read['op']!r}")


def is_unavailable(value: object) -> bool:
    """Whether a value only stands for one that the database did not send again."""
    if isinstance(value, list):
        return len(value) == 1 and is_unavailable(value[0])
    return value in UNAVAILABLE if isinstance(value, str) else False


def _moment(source: Mapping[str, Any]) -> tuple[int, ...]:
    ts_us = source.get("ts_us")
    micros = ts_us if isinstance(ts_us, int) else 1000 * int(source.get("ts_ms") or 0)
    lsn = source.get("lsn")
    return (lsn if isinstance(lsn, int) else 0, micros)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableRecord("the key is no UTF-8") from error


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
        raise UnreadableRecord(f"the {part} is no JSON: {error}") from error


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
    convert = _BY_NAME.get(str(schema.get("name")))
    if convert is None or is_unavailable(value):
        return value
    try:
        return convert(value, schema.get("parameters") or {})
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        raise UnreadableRecord(f"{value!r} is no {schema.get('name')}") from error


def _date(days: int, _: Mapping[str, str]) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _moments(per_second: int) -> Any:
    def convert(count: int, _: Mapping[str, str]) -> str:
        return (_EPOCH + timedelta(microseconds=count * 1_000_000 // per_second)).isoformat()

    return convert


def _times(per_second: int) -> Any:
    def convert(count: int, _: Mapping[str, str]) -> str:
        return (_EPOCH + timedelta(microseconds=count * 1_000_000 // per_second)).time().isoformat()

    return convert


def _decimal(text: str, parameters: Mapping[str, str]) -> str:
    unscaled = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
    return f"{Decimal(unscaled).scaleb(-int(parameters['scale'])):f}"


_BY_NAME: Final = {
    "io.debezium.time.Date": _date,
    "org.apache.kafka.connect.data.Date": _date,
    "io.debezium.time.Timestamp": _moments(1_000),
    "io.debezium.time.MicroTimestamp": _moments(1_000_000),
    "io.debezium.time.NanoTimestamp": _moments(1_000_000_000),
    "org.apache.kafka.connect.data.Timestamp": _moments(1_000),
    "io.debezium.time.Time": _times(1_000),
    "io.debezium.time.MicroTime": _times(1_000_000),
    "io.debezium.time.NanoTime": _times(1_000_000_000),
    "org.apache.kafka.connect.data.Time": _times(1_000),
    "org.apache.kafka.connect.data.Decimal": _decimal,
}
