"""CloudEvents 1.0 as HTTP carries them, to and from records as Kafka's binding has them. Pure.

Over HTTP an event comes in one of three modes: binary (attributes in headers `ce-…`, the body is the data), structured
(a JSON object) or a batch of those. In a topic it always stands in the binary mode of Kafka's binding: attributes in
headers `ce_…`, the data's type in `content-type`, the data as the value, the key from the extension `partitionkey`.

What always holds: an event that was read and written again has the same attributes and the same data.
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/
"""

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

from headrace.gateways.http.exact_json import ExactNumber, as_json_text, json_bytes, read_exact, write_exact
from headrace.gateways.http.record_form import MOST_RECORDS, Given, as_text, read_base64
from headrace.records import Header
from headrace.serving.asking import InvalidRequest

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
CONTENT_TYPE: Final = "content-type"
_SPEC: Final = "1.0"
_REQUIRED: Final = ("id", "source", "specversion", "type")
_NOT_EMPTY: Final = (*_REQUIRED, "subject", "dataschema", "datacontenttype")
_DATA: Final = "data"  # where an event as JSON has its data, which a header of that name would stand beside
_NAME: Final = re.compile(r"[a-z0-9]{1,64}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_JSON_TYPE: Final = re.compile(r"[^/;]+/([^/;]+\+)?json\s*(;.*)?", re.IGNORECASE)
_MOST_ATTRIBUTES: Final = 100
_LATEST_S: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_LEAST_INT, _MOST_INT = -(2**31), 2**31 - 1


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_event(headers: Mapping[str, str]) -> bool:
    """Whether a request carries CloudEvents, in whichever mode; names of headers are in small letters."""
    return media_type(headers.get(CONTENT_TYPE, "")) in (STRUCTURED, BATCH) or "ce-specversion" in headers


def read_events(headers: Mapping[str, str], body: bytes) -> tuple[list[Given], bool]:
    """The records that a request's events are, and whether it is a batch; raises `InvalidRequest`."""
    kind = media_type(headers.get(CONTENT_TYPE, ""))
    if kind == BATCH:
        events = read_exact(body)
        if not isinstance(events, list):
            raise InvalidRequest("a batch of CloudEvents is a JSON array")
        if len(events) > MOST_RECORDS:
            raise InvalidRequest(f"a batch has at most {MOST_RECORDS:,} events, not {len(events):,}: send several")
        return [_structured(event, f"event {number}") for number, event in enumerate(events, 1)], True
    if kind == STRUCTURED:
        return [_structured(read_exact(body), "the event")], False
    return [_binary(headers, body)], False


def _binary(headers: Mapping[str, str], body: bytes) -> Given:
    attributes: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith("ce-"):
            try:
                attributes[name.removeprefix("ce-")] = unquote(value.strip('"'), errors="strict")
            except UnicodeDecodeError:
                raise InvalidRequest(f"header {name[:40]} is not percent-encoded UTF-8") from None
    kind = headers.get(CONTENT_TYPE)
    if kind is not None:
        attributes["datacontenttype"] = kind
    return _record(attributes, body if body or kind is not None else None, "the event")


def _structured(event: Any, what: str) -> Given:
    if not isinstance(event, dict):
        raise InvalidRequest(f"{what} is not a JSON object")
    attributes = {}
    for name, value in event.items():
        if name not in ("data", "data_base64") and value is not None:
            attributes[name] = _attribute_text(name, value, what)
    if event.get("data") is not None and event.get("data_base64") is not None:
        raise InvalidRequest(f"{what} has both data and data_base64: send one of them")
    kind = attributes.get("datacontenttype")
    data: bytes | None = None
    if event.get("data_base64") is not None:
        if not isinstance(event["data_base64"], str):
            raise InvalidRequest(f"data_base64 of {what} is not a string")
        data = read_base64(event["data_base64"], f"data_base64 of {what}")
    elif "data" in event and (event["data"] is not None or kind is not None):
        if kind is None:
            attributes["datacontenttype"] = "application/json"  # what data without a type are
        if isinstance(event["data"], str) and kind is not None and not _JSON_TYPE.fullmatch(kind):
            data = as_text(event["data"], f"data of {what}")
        else:
            data = json_bytes(event["data"])
    return _record(attributes, data, what)


def _attribute_text(name: str, value: Any, what: str) -> str:
    """An attribute of JSON in the canonical form that it has as a header."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and _LEAST_INT <= value <= _MOST_INT:
        return str(value)
    if isinstance(value, str):
        return value
    shown = value.text[:40] if isinstance(value, ExactNumber) else type(value).__name__
    raise InvalidRequest(f"attribute {name[:40]!r} of {what} is a string, a boolean or a 32-bit number, not {shown}")


def _record(attributes: Mapping[str, str], data: bytes | None, what: str) -> Given:
    if len(attributes) > _MOST_ATTRIBUTES:
        raise InvalidRequest(f"{what} has more than {_MOST_ATTRIBUTES} attributes")
    for name, value in attributes.items():
        if not _NAME.fullmatch(name) or name == _DATA:
            raise InvalidRequest(
                f"{what} has an attribute {name[:40]!r}: names are small letters and digits, and {_DATA} is none"
            )
        if any(ord(character) < 32 or 127 <= ord(character) < 160 or _is_half(character) for character in value):
            raise InvalidRequest(f"attribute {name!r} of {what} has a character that is not allowed in one")
        if name in _NOT_EMPTY and not value:
            raise InvalidRequest(f"attribute {name!r} of {what} is empty")
    for name in _REQUIRED:
        if name not in attributes:
            raise InvalidRequest(f"{what} has no attribute {name!r}, which every CloudEvent has")
    if attributes["specversion"] != _SPEC:
        raise InvalidRequest(f"{what} is of specversion {attributes['specversion'][:20]!r}: send {_SPEC}")
    key = attributes.get("partitionkey")
    headers = [(f"ce_{name}", value.encode()) for name, value in attributes.items() if name != "datacontenttype"]
    if "datacontenttype" in attributes:
        headers.append((CONTENT_TYPE, attributes["datacontenttype"].encode()))
    timestamp = _milliseconds(attributes["time"], what) if "time" in attributes else None
    return Given(None if key is None else key.encode(), data, tuple(headers), None, timestamp)


def _is_half(character: str) -> bool:
    return 0xD800 <= ord(character) <= 0xDFFF


def _milliseconds(text: str, what: str) -> int:
    if _TIME.fullmatch(text):
        # Python reads at most microseconds.
        shortened = re.sub(r"(\.\d{6})\d+", r"\1", text.upper())
        try:
            return max(0, int(datetime.fromisoformat(shortened).timestamp() * 1000))
        except (ValueError, OverflowError):
            pass
    raise InvalidRequest(f"time of {what} is {text[:40]!r}: write it as 2026-01-31T12:00:00Z")


# --- back to events


def event_of(
    topic: str, partition: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None,
    headers: Sequence[Header],
) -> str:  # fmt: skip
    """A record as a structured event; one that is no CloudEvent becomes one, named by where it stands."""
    attributes: dict[str, Any] = {}
    kind: str | None = None
    for header in headers:
        text = bytes(header.value or b"").decode(errors="replace")
        if header.key.startswith("ce_") and _NAME.fullmatch(header.key[3:]) and header.key[3:] != _DATA:
            attributes[header.key[3:]] = text
        elif header.key.lower() == CONTENT_TYPE:
            kind = text
    if any(name not in attributes for name in _REQUIRED):
        at_s = min(max(0, timestamp) / 1000, _LATEST_S)  # of what is later, no date tells when
        when = datetime.fromtimestamp(at_s, tz=UTC).isoformat(timespec="milliseconds")
        attributes = {
            "specversion": _SPEC, "id": f"{partition}-{offset}", "source": f"/topics/{topic}",
            "type": "headrace.record", "time": when.replace("+00:00", "Z"),
        }  # fmt: skip
        if key is not None:
            attributes["partitionkey"] = key.decode(errors="replace")
    if kind is not None:
        attributes["datacontenttype"] = kind
    text = write_exact(attributes)[:-1]
    if value is None:
        return text + "}"
    data = as_json_text(value) if kind is None or _JSON_TYPE.fullmatch(kind) else None
    if data is not None:
        return f'{text},"data":{data}}}'
    return f'{text},"data_base64":"{base64.b64encode(value).decode()}"}}'
