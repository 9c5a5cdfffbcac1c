"""How far an endpoint is and how it stands, as the records that are committed with its deliveries. Pure.

    {"webhooks": GATEWAY, "endpoint": ID, "topic": ID, "partition": 0}     {"offset": 17, "ahead": [19], "tries": …}
    {"webhooks": GATEWAY, "endpoint": ID}                                  {"disabled_ms": …, "reason": "…"}

A place in a topic that was deleted is none in the one that was made again under its name: the topic is named by its id.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.gateways.webhook_sender.lanes import Place, Try


@dataclass(frozen=True, slots=True)
class Health:
    """How an endpoint has taken what it was sent."""

    failures: int = 0  # in a row
    failing_since_ms: int = 0
    delivered_ms: int = 0
    disabled_ms: int = 0
    reason: str = ""

    def delivered(self, now_ms: int) -> "Health":
        """After a success; one that was under way when it was disabled does not enable it again."""
        return self if self.disabled_ms else Health(delivered_ms=now_ms)

    def failed(self, now_ms: int, why: str, *, disable_ms: int, disable_failures: int) -> "Health":
        """After one more failure; disabled if that is too many, or for too long."""
        if self.disabled_ms:
            return self
        failures, since_ms = self.failures + 1, self.failing_since_ms or now_ms
        is_too_much = now_ms - since_ms >= disable_ms or 0 < disable_failures <= failures
        return Health(failures, since_ms, self.delivered_ms, now_ms if is_too_much else 0, why)

    def resumed(self) -> "Health":
        """Of one that was disabled what was before counts no more."""
        return Health(delivered_ms=self.delivered_ms) if self.disabled_ms else self

    def is_disabled(self, resumed_ms: int) -> bool:
        return bool(self.disabled_ms) and self.disabled_ms >= resumed_ms


def is_of(gateway: str, key: bytes) -> bool:
    try:
        found = json.loads(key)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("webhooks") == gateway and isinstance(found.get("endpoint"), str)


def read_places(stored: Mapping[bytes, bytes]) -> dict[tuple[str, str], dict[int, Place]]:
    """The places of all endpoints, by endpoint and topic's id."""
    found: dict[tuple[str, str], dict[int, Place]] = {}
    for key, value in stored.items():
        name, said = json.loads(key), json.loads(value)
        if "partition" in name:
            tries = {int(offset): Try(*each) for offset, each in said.get("tries", {}).items()}
            place = Place(said["offset"], tuple(said.get("ahead", ())), tries)
            found.setdefault((name["endpoint"], name["topic"]), {})[name["partition"]] = place
    return found


def read_healths(stored: Mapping[bytes, bytes]) -> dict[str, Health]:
    found = {}
    for key, value in stored.items():
        name = json.loads(key)
        if "partition" not in name:
            said = json.loads(value)
            found[name["endpoint"]] = Health(
                said["failures"], said["failing_since_ms"], said["delivered_ms"], said["disabled_ms"], said["reason"]
            )
    return found


def place_record(
    gateway: str, endpoint: str, topic_id: str, partition: int, place: Place | None
) -> tuple[bytes, bytes | None]:
    key = _json({"webhooks": gateway, "endpoint": endpoint, "topic": topic_id, "partition": partition})
    if place is None:
        return key, None
    tries = {str(offset): list(each) for offset, each in place.tries.items()}
    return key, _json({"offset": place.offset, "ahead": list(place.ahead), "tries": tries})


def health_record(gateway: str, endpoint: str, health: Health | None) -> tuple[bytes, bytes | None]:
    key = _json({"webhooks": gateway, "endpoint": endpoint})
    if health is None:
        return key, None
    return key, _json(
        {
            "failures": health.failures,
            "failing_since_ms": health.failing_since_ms,
            "delivered_ms": health.delivered_ms,
            "disabled_ms": health.disabled_ms,
            "reason": health.reason,
        }
    )


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
