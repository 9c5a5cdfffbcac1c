"""What an HTTP gateway is told: where it listens, which topics it shows, and how much of everything it takes. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.inlet import LIMIT_BYTES
from headrace.records import Codec
from headrace.serving.access_keys import check_access
from headrace.serving.record_feed import Slow

DEFAULT_PORT: Final = 8500
MIB: Final = 2**20
OVERLOADS: Final = (Overload.FAIL, Overload.BLOCK)  # whoever waits for an answer is told: nothing is dropped silently
INTERNAL: Final = "__"  # how the names of internal topics begin
_PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?-]{1,249}")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """One gateway; the defaults are those of its section."""

    name: str
    port: int = DEFAULT_PORT
    produce: tuple[str, ...] = ("*",)
    consume: tuple[str, ...] = ("*",)
    origins: tuple[str, ...] = ()
    overload: Overload = Overload.FAIL
    limit_bytes: int = LIMIT_BYTES
    body_bytes: int = 8 * MIB
    connections: int = 2_000
    timeout_s: float = 10.0
    idempotency_s: float = 24 * 3600.0
    slow: Slow = Slow.REPLAY
    followed: int = 32
    kept_bytes: int = 16 * MIB
    instances: int = 100
    instance_s: float = 300.0
    registry: str | None = None
    codec: Codec = Codec.NONE
    changes: tuple[tuple[str, str], ...] = ()

    def may_produce(self, topic: str) -> bool:
        return _allows(self.produce, topic)

    def may_consume(self, topic: str) -> bool:
        return _allows(self.consume, topic)


def _allows(patterns: Sequence[str], topic: str) -> bool:
    return not topic.startswith(INTERNAL) and any(re.match(translate(each), topic) for each in patterns)


def from_section(name: str, section: Mapping[str, Any]) -> HttpSettings:
    """What a section with its defaults says; raises the first thing that is wrong with a value."""
    where = f"gateways.{name}"
    for key in ("produce", "consume"):
        for pattern in section.get(key) or ():
            if not _PATTERN.fullmatch(pattern):
                raise GatewayError(
                    f"[{where}] {key} has {pattern!r}, which is no name of topics: write one, or a pattern with * or ?"
                )
    for origin in section.get("origins") or ():
        check_origin(origin, where)
    for _, sentence in check_access(section, where):
        raise GatewayError(sentence)
    changes = section.get("changes") or {}
    for key, url in changes.items():
        if not isinstance(url, str) or "://" not in url:
            raise GatewayError(
                f'[{where}] changes.{key} is not a URL: write "postgresql://…" or "kafka://host:9092/TOPIC"'
            )
    return HttpSettings(
        name,
        section["port"],
        tuple(section["produce"]),
        tuple(section["consume"]),
        tuple(section.get("origins") or ()),
        Overload(section["overload"]),
        section["limit_mib"] * MIB,
        section["body_mib"] * MIB,
        section["connections"],
        float(section["timeout_s"]),
        section["idempotency_hours"] * 3600.0,
        Slow(section["slow"]),
        section["followed"],
        section["kept_mib"] * MIB,
        section["instances"],
        float(section["instance_s"]),
        section.get("registry"),
        Codec.named(section["compression"]),
        tuple(changes.items()),
    )


def check_origin(origin: str, where: str) -> None:
    """An origin is what a browser calls itself by: scheme, host, and a port that is not the usual one."""
    try:
        parts = urlsplit(origin)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and "*" not in origin
        is_one = is_one and f"{parts.scheme}://{parts.netloc}" == origin and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise GatewayError(f"[{where}] origins has {origin!r}, which is no origin: write https://shop.example")
