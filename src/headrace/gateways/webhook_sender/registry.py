"""The endpoints' topic: what is registered, what is paused, and what somebody wants done. Pure.

    endpoint/shop             {"topic": "orders", "url": "https://…", …}
    state/shop                {"paused": true}          also of endpoints that stand in a section
    request/shop/ID           {"do": "resend", "partition": 0, "from": 5, "to": 9}   {"do": "test"}

The last record of each key counts; one without a value takes away. A request is taken away once it was carried out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.gateways.webhook_sender.endpoint import Endpoint, InvalidEndpoint, read_endpoint

DEFAULT_TOPIC: Final = "webhooks"
DEFAULT_LOG: Final = "webhooks-log"
MOST_ENDPOINTS: Final = 1_000
_MOST_REQUESTS: Final = 1_000
_MOST_KEPT: Final = 10_000  # endpoints, and as many states: whoever may write to the topic fills no memory with them
_LARGEST: Final = 64 * 1024
_LONGEST_ID: Final = 200


def endpoint_key(endpoint_id: str) -> str:
    return f"endpoint/{endpoint_id}"


def state_key(endpoint_id: str) -> str:
    return f"state/{endpoint_id}"


def request_key(endpoint_id: str, request_id: str) -> str:
    return f"request/{endpoint_id}/{request_id}"


@dataclass(frozen=True, slots=True)
class Control:
    """What was said about an endpoint after it was registered."""

    paused: bool = False
    resumed_ms: int = 0
    """A disabling before this time counts no more."""


@dataclass(frozen=True, slots=True)
class Request:
    """Something to be done once."""

    id: str
    endpoint: str
    do: str  # "test", "resend"
    partition: int = 0
    start: int = 0
    end: int = 0  # the offset behind the last one
    takes_back: bool = False  # the dead letters of what is taken now

    @property
    def key(self) -> str:
        return request_key(self.endpoint, self.id)


@dataclass(slots=True)
class Registry:
    """What the topic says so far."""

    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """By id: why a registration cannot be."""
    controls: dict[str, Control] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    """By key."""

    def clear(self) -> None:
        for each in (self.endpoints, self.refused, self.controls, self.requests):
            each.clear()

    def control(self, endpoint_id: str) -> Control:
        return self.controls.get(endpoint_id, Control())

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """One record; what cannot be read is refused, or ignored where it names no endpoint."""
        kind, _, rest = (key or b"").decode(errors="replace").partition("/")
        if kind == "endpoint":
            self._register(rest, value)
        elif kind == "state":
            self._control(rest, value)
        elif kind == "request":
            self._request(rest, value)

    def _register(self, endpoint_id: str, value: bytes | None) -> None:
        self.endpoints.pop(endpoint_id, None)
        self.refused.pop(endpoint_id, None)
        if value is None or len(self.endpoints) + len(self.refused) >= _MOST_KEPT or len(endpoint_id) > _LONGEST_ID:
            return
        if len(self.endpoints) >= MOST_ENDPOINTS:
            self.refused[endpoint_id] = f"there are {MOST_ENDPOINTS:,} already: remove one, and register it anew"
            return
        try:
            self.endpoints[endpoint_id] = read_endpoint(endpoint_id, _json_object(value), endpoint_id)
        except HeadraceError as error:
            self.refused[endpoint_id] = str(error)

    def _control(self, endpoint_id: str, value: bytes | None) -> None:
        self.controls.pop(endpoint_id, None)
        if value is None or len(self.controls) >= _MOST_KEPT or len(endpoint_id) > _LONGEST_ID:
            return
        said = _object_or_none(value) or {}
        resumed = said.get("resumed_ms")
        resumed_ms = resumed if isinstance(resumed, int) and not isinstance(resumed, bool) else 0
        self.controls[endpoint_id] = Control(said.get("paused") is True, resumed_ms)

    def _request(self, rest: str, value: bytes | None) -> None:
        endpoint_id, _, request_id = rest.partition("/")
        key = request_key(endpoint_id, request_id)
        self.requests.pop(key, None)
        said = None if value is None else _object_or_none(value)
        if said is None or len(self.requests) >= _MOST_REQUESTS or len(rest) > 300:
            return
        if said.get("do") == "test":
            self.requests[key] = Request(request_id, endpoint_id, "test")
        elif said.get("do") == "resend":
            numbers = [said.get(name) for name in ("partition", "from", "to")]
            if all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 2**62 for each in numbers):
                partition, start, end = (int(each or 0) for each in numbers)
                takes_back = said.get("dead_letters") is True
                self.requests[key] = Request(request_id, endpoint_id, "resend", partition, start, end, takes_back)


def as_record(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=True, separators=(",", ":")).encode()


def _json_object(value: bytes) -> dict[str, Any]:
    if len(value) > _LARGEST:
        raise InvalidEndpoint(f"it has {len(value):,} bytes: write at most {_LARGEST:,}")
    found = _object_or_none(value)
    if found is None:
        raise InvalidEndpoint("it is not a JSON object: register it anew with headrace webhook add")
    return found


def _object_or_none(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


__all__ = [
    "DEFAULT_LOG",
    "DEFAULT_TOPIC",
    "Control",
    "Registry",
    "Request",
    "as_record",
    "endpoint_key",
    "request_key",
    "state_key",
]
