"""Records as text and back: a line for a person, an object for a program.

What always holds: what `as_json` makes of a record, `from_json` reads back as the same key, value, headers, timestamp
and partition, byte for byte.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from rich.highlighter import JSONHighlighter
from rich.text import Text

from headrace.cli.output import human_time, text
from headrace.client.reader import ReadRecord
from headrace.client.writer import NewRecord
from headrace.errors import HeadraceError, harmless
from headrace.records import Header

TOMBSTONE = "∅ (tombstone)"
_NOTHING = "–"
_BASE64 = "$base64"  # a name that a document of a user's own will not have
_FIELDS = frozenset({"key", "value", "headers", "timestamp", "partition"})
_TOLD_ONLY = frozenset({"topic", "offset", "time"})  # written by `as_json`, of no meaning for a new record
_LONGEST_TIMESTAMP = 2**63 - 1

_highlight = JSONHighlighter()


class InvalidLine(HeadraceError):
    """A line that describes no record."""


# --- for people


def as_line(read: ReadRecord, *, with_headers: bool) -> str:
    return "  ".join(_parts(read, with_headers=with_headers))


def as_coloured_line(read: ReadRecord, *, with_headers: bool) -> Text:
    """One record for a terminal: coloured, and with nothing in it that the terminal would obey."""
    place, time, key, *headers, value = (harmless(part) for part in _parts(read, with_headers=with_headers))
    shown = Text.assemble((place, "cyan"), "  ", (time, "dim"), "  ", (key, "bold"), "  ")
    for header in headers:
        shown.append(header, "magenta").append("  ")
    if read.record.value is None:
        return shown.append(value, "dim italic")
    body = Text(value)
    if value[:1] in ("{", "["):
        _highlight.highlight(body)
    return shown.append_text(body)


def _parts(read: ReadRecord, *, with_headers: bool) -> list[str]:
    record = read.record
    parts = [f"{read.partition.partition}:{record.offset}", human_time(record.timestamp)]
    parts.append(_NOTHING if record.key is None else text(record.key) or "")
    if with_headers and record.headers:
        parts.append(" ".join(f"{_name(header)}={text(header.value) or ''}" for header in record.headers))
    parts.append(TOMBSTONE if record.value is None else text(record.value) or "")
    return parts


def _name(header: Header) -> str:
    return header.key.encode(errors="surrogateescape").decode(errors="backslashreplace")


# --- for programs


def as_json(read: ReadRecord) -> dict[str, object]:
    """One record as an object; bytes that are no text are an object of their own, in base 64."""
    record = read.record
    return {
        "topic": read.partition.topic,
        "partition": read.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _from_bytes(record.key),
        "value": _from_bytes(record.value),
        "headers": [[_name(header), _from_bytes(header.value)] for header in record.headers],
    }


def _from_bytes(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def from_json(line: str, *, now_ms: int) -> NewRecord:
    """The record that a line describes: `value` must be there, if only as null; the other fields may be left out."""
    try:
        described = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidLine(f"it is not JSON ({error})") from None
    if not isinstance(described, dict):
        raise InvalidLine('it is not an object: write for example {"key": "k", "value": "v"}')
    if unknown := sorted(described.keys() - _FIELDS - _TOLD_ONLY):
        raise InvalidLine(f"field {unknown[0]!r} is unknown: use {', '.join(sorted(_FIELDS))}")
    if "value" not in described:
        raise InvalidLine("it has no value: write null for a tombstone")
    return NewRecord(
        _to_bytes(described.get("key"), "key"),
        _to_bytes(described["value"], "value"),
        _number(described, "timestamp", now_ms, _LONGEST_TIMESTAMP),
        _headers(described.get("headers")),
        _number(described, "partition", None, 2**31 - 1),
    )


def _to_bytes(value: object, what: str) -> bytes | None:
    """A text as it is, any other JSON as JSON, null as null."""
    if value is None:
        return None
    if isinstance(value, dict) and value.keys() == {_BASE64}:
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise InvalidLine(f"its {what} is not valid base64") from None
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return shown.encode()
    except UnicodeEncodeError:
        raise InvalidLine(f"its {what} holds half of a surrogate pair, which UTF-8 cannot carry") from None


def _number(described: Mapping[str, Any], name: str, default: Any, largest: int) -> Any:
    number = described.get(name)
    if number is None:
        return default
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= largest:
        raise InvalidLine(f"its {name} {number!r} is not a whole number from 0 on")
    return number


def _headers(described: object) -> tuple[Header, ...]:
    pairs = described.items() if isinstance(described, dict) else described or ()
    try:
        return tuple(Header(_header_name(name), _to_bytes(value, f"header {name!r}")) for name, value in pairs)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InvalidLine('its headers are neither {"name": "value"} nor [["name", "value"]]') from None


def _header_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(name)
    name.encode()  # ValueError for half of a surrogate pair
    return name
