"""Records as JSON, as they are sent here and shown from here. Pure.

    {"key": "ann", "value": {"clicks": 3}, "headers": {"trace": "17"}, "partition": 0, "timestamp": 1790000000000}

A value is any JSON; one that is not JSON is base64, with the mark `"value_encoding": "base64"`. A `null` is no value at
all, which in a compacted topic deletes its key. A key is a text, and marked in the same way where its bytes are none;
other JSON as a key is its text. Headers are an object, or a list of pairs where a name comes twice.

What always holds: what was shown here and is sent here is the same record.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headrace.gateways.http.exact_json import ExactNumber, as_json_text, json_bytes
from headrace.records import Header
from headrace.serving.asking import InvalidRequest

MOST_RECORDS: Final = 10_000  # in a request
_KEYS: Final = ("key", "key_encoding", "value", "value_encoding", "headers", "partition", "timestamp")
_SHOWN_ONLY: Final = ("topic", "offset")  # told of a record, and of no use when it is sent again
_ENCODINGS: Final = ("json", "text", "base64")
_LAST_TIMESTAMP: Final = 2**62
_LAST_PARTITION: Final = 2**31 - 1


class Given(NamedTuple):
    """A record to be written; without a timestamp it has that of its arrival."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp: int | None = None

    @property
    def size_bytes(self) -> int:
        return (
            len(self.key or b"") + len(self.value or b"") + sum(len(name) + len(value) for name, value in self.headers)
        )


# --- what is sent here


def read_records(body: Any) -> tuple[list[Given], bool]:
    """The records that a body of JSON says, and whether it is a batch; raises `InvalidRequest`."""
    if isinstance(body, list):
        return _batch(body), True
    if isinstance(body, dict) and "records" in body:
        if len(body) > 1 or not isinstance(body["records"], list):
            raise InvalidRequest("a batch is {'records': [record, …]} and nothing else")
        return _batch(body["records"]), True
    return [read_record(body, "the record")], False


def _batch(records: list[Any]) -> list[Given]:
    if not records:
        raise InvalidRequest("the batch has no record: send at least one")
    if len(records) > MOST_RECORDS:
        raise InvalidRequest(f"a batch has at most {MOST_RECORDS:,} records, not {len(records):,}: send several")
    return [read_record(each, f"record {number}") for number, each in enumerate(records, 1)]


def read_record(said: Any, what: str) -> Given:
    if not isinstance(said, dict):
        raise InvalidRequest(f'{what} is not a JSON object: write {{"key": …, "value": …}}')
    for name in said:
        if name not in _KEYS and name not in _SHOWN_ONLY:
            raise InvalidRequest(f"{what} has {name[:40]!r}, which is unknown: a record has {', '.join(_KEYS)}")
    if "value" not in said:
        raise InvalidRequest(f"{what} has no value: write null for a record without one")
    return Given(
        _key(said.get("key"), said.get("key_encoding", "text"), what),
        _value(said["value"], said.get("value_encoding", "json"), what),
        _headers(said.get("headers"), what),
        whole_number(said.get("partition"), f"the partition of {what}", _LAST_PARTITION),
        whole_number(said.get("timestamp"), f"the timestamp of {what}", _LAST_TIMESTAMP),
    )


def _key(key: Any, encoding: Any, what: str) -> bytes | None:
    if key is None:
        return None
    if encoding == "text" and not isinstance(key, str):
        return json_bytes(key)
    return _encoded(key, encoding, f"the key of {what}")


def _value(value: Any, encoding: Any, what: str) -> bytes | None:
    return None if value is None else _encoded(value, encoding, f"the value of {what}")


def _encoded(value: Any, encoding: Any, what: str) -> bytes:
    if encoding not in _ENCODINGS:
        raise InvalidRequest(f"{what} has an unknown encoding: use json, text or base64")
    if encoding == "json":
        return json_bytes(value)
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} is said to be {encoding}, so it must be a JSON string")
    return read_base64(value, what) if encoding == "base64" else as_text(value, what)


def as_text(value: str, what: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} has half a character, which is no text: send base64") from None


def read_base64(value: str, what: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"{what} is not base64") from None


def _headers(said: Any, what: str) -> tuple[tuple[str, bytes], ...]:
    if said is None:
        return ()
    pairs: Sequence[Any] = list(said.items()) if isinstance(said, dict) else said
    if not isinstance(pairs, list):
        raise InvalidRequest(f"the headers of {what} are an object, or a list of pairs")
    found = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidRequest(f'the headers of {what} are pairs of a name and a value: ["trace", "17"]')
        name, value = pair
        where = f"header {name[:40]!r} of {what}"
        as_text(name, where)
        if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
            found.append((name, read_base64(value["base64"], where)))
        elif isinstance(value, str):
            found.append((name, as_text(value, where)))
        else:
            raise InvalidRequest(f'{where} is not a text: write one, or {{"base64": "…"}}')
    return tuple(found)


def whole_number(said: Any, what: str, most: int) -> int | None:
    if said is None:
        return None
    if isinstance(said, bool | float | ExactNumber) or not isinstance(said, int) or not 0 <= said <= most:
        raise InvalidRequest(f"{what} is not a whole number from 0 to {most:,}")
    return said


def read_raw(
    body: bytes, *, key: str | None, headers: Sequence[tuple[str, str]], partition: str | None, timestamp: str | None
) -> Given:
    """A record whose value is the body, and the rest of which stands in the address."""

    def number(text: str | None, what: str, most: int) -> int | None:
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise InvalidRequest(f"{what} is not a whole number: {text[:40]!r}")
        return whole_number(int(text), what, most)

    return Given(
        None if key is None else as_text(key, "the key"),
        body,
        tuple((name, as_text(value, f"header {name[:40]!r}")) for name, value in headers),
        number(partition, "partition", _LAST_PARTITION),
        number(timestamp, "timestamp", _LAST_TIMESTAMP),
    )


# --- what is shown from here


def shown_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> str:
    """A record as a line of JSON."""
    parts = [f'"topic":"{topic}","partition":{partition},"offset":{offset},"timestamp":{timestamp}', _shown_key(key)]
    parts.append(_shown_value(value))
    if headers:
        parts.append(f'"headers":{_shown_headers(headers)}')
    return "{" + ",".join(parts) + "}"


def _shown_key(key: bytes | None) -> str:
    if key is None:
        return '"key":null'
    try:
        return f'"key":{json.dumps(key.decode(), ensure_ascii=False)}'
    except UnicodeDecodeError:
        return f'"key":"{_base64(key)}","key_encoding":"base64"'


def _shown_value(value: bytes | None) -> str:
    if value is None:
        return '"value":null'
    text = as_json_text(value)
    if text is None or text.strip() == "null":  # which would look like no value
        return f'"value":"{_base64(value)}","value_encoding":"base64"'
    return f'"value":{text}'


def _shown_headers(headers: Sequence[Header]) -> str:
    pairs: list[tuple[str, Any]] = []
    for header in headers:
        value = bytes(header.value) if header.value is not None else None
        try:
            pairs.append((header.key, None if value is None else value.decode()))
        except UnicodeDecodeError:
            pairs.append((header.key, {"base64": _base64(value or b"")}))
    is_object = len({name for name, _ in pairs}) == len(pairs)
    return json.dumps(dict(pairs) if is_object else pairs, ensure_ascii=False, separators=(",", ":"))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
