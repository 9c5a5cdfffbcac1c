"""A request as a record: which delivery it is, and its key and headers. Pure.

What always holds: the record's value is the body as it came; a body that is not JSON, or has nothing at a pointer, has
no key or id from there and is a record all the same.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headrace.connect.delivery import Entry
from headrace.gateways.errors import GatewayError
from headrace.gateways.webhooks.signatures import Headers, InvalidSignature, header

_LONGEST_ID: Final = 256
_LONGEST_KEY: Final = 4096
IDEMPOTENCY_KEY: Final = "idempotency-key"


class InvalidDelivery(GatewayError):
    """A request that is signed, and cannot be a record."""


class Source(NamedTuple):
    """Where a text is found: in a header, or in a JSON body by a pointer (RFC 6901)."""

    header: str = ""
    pointer: tuple[str, ...] | None = None

    def find(self, headers: Headers, body: "JsonBody") -> str:
        """The text; empty if there is none."""
        if self.header:
            try:
                return header(headers, self.header)
            except InvalidSignature as error:
                raise InvalidDelivery(str(error)) from None
        return "" if self.pointer is None else body.at(self.pointer)

    @property
    def is_set(self) -> bool:
        return bool(self.header) or self.pointer is not None


def read_source(text: str, what: str) -> Source:
    """From `/repository/full_name`, a pointer, or the name of a header."""
    if not text:
        return Source()
    if text.startswith("/"):
        return Source(pointer=tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")))
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise GatewayError(f"{what} is {text[:80]!r}: write the name of a header, or a JSON pointer such as /data/id")
    return Source(text.lower())


class JsonBody:
    """A body that is parsed when somebody first asks."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._parsed: Any = None
        self._is_parsed = False

    def at(self, pointer: Sequence[str]) -> str:
        """A text, a number or a truth as a text; empty for anything else."""
        if not self._is_parsed:
            self._is_parsed = True
            try:
                self._parsed = json.loads(self._body)
            except (ValueError, RecursionError):
                self._parsed = None
        found = self._parsed
        for part in pointer:
            if isinstance(found, dict):
                found = found.get(part)
            elif isinstance(found, list) and part.isascii() and part.isdecimal() and len(part) < 10:
                found = found[int(part)] if int(part) < len(found) else None
            else:
                return ""
        if isinstance(found, str):
            return found
        return json.dumps(found) if isinstance(found, int | float | bool) else ""


class Wanted(NamedTuple):
    """What of a request goes into its record."""

    id: Source
    event: Source
    key: Source
    headers: tuple[str, ...]


class Delivery(NamedTuple):
    id: str  # empty if it has none: then nobody can tell it from another
    entry: Entry


def read_delivery(wanted: Wanted, headers: Headers, body: bytes, now_ms: int) -> Delivery:
    """What a request that was verified says; raises `InvalidDelivery`."""
    parsed = JsonBody(body)
    found = wanted.id.find(headers, parsed) or Source(IDEMPOTENCY_KEY).find(headers, parsed)
    if len(found) > _LONGEST_ID:
        raise InvalidDelivery(f"the id has {len(found)} characters: send one of at most {_LONGEST_ID}")
    event, key = wanted.event.find(headers, parsed), wanted.key.find(headers, parsed)
    if len(key) > _LONGEST_KEY:
        raise InvalidDelivery(f"the key has {len(key)} characters: send one of at most {_LONGEST_KEY}")
    carried = [("content-type", each) for name, each in headers if name == "content-type"][:1]
    carried += [("content-encoding", each) for name, each in headers if name == "content-encoding"][:1]
    carried += [("webhook-id", found)] * bool(found) + [("webhook-event", event)] * bool(event)
    carried += [(name, value) for name, value in headers if name in wanted.headers]
    return Delivery(
        found,
        (_bytes(key) if key else None, body, now_ms, tuple((name, _bytes(value)) for name, value in carried)),
    )


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
