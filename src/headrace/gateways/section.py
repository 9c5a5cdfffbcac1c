"""The kinds of gateways, and a section `[gateways.NAME]` of `headrace.toml` at work, with a status.

    [gateways.access]
    kind = "file"
    paths = ["/var/log/nginx/access.log"]
    topic = "access"

A further kind is a folder with a `kind.py`, and a line in `_FOLDERS`.
"""

import importlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.client.address import Address
from headrace.errors import HeadraceError, nearest
from headrace.extras import look_for
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Gateway, GatewayKind
from headrace.reporting import Show, run_reported
from headrace.section_keys import Key
from headrace.status import FAILED, GATEWAYS, RUNNING, STOPPED, WAITING, Status

SECTION: Final = "gateways"
# Where the kind of each name is; it is loaded when it is asked for, because some bring large packages.
_FOLDERS: Final = {
    "file": "files",
    "grpc": "grpc",
    "lines": "lines",
    "multicast": "multicast",
    "nng": "nng",
    "otlp": "otlp",
    "syslog": "syslog",
    "http": "http",
    "statsd": "statsd",
    "webhook": "webhooks",
    "webhook-sender": "webhook_sender",
    "zeromq": "zeromq",
}
KINDS: Final = tuple(_FOLDERS)
KIND_KEY: Final = Key("kind", str, "What it is.", is_needed=True, choices=KINDS)


def kind_of(name: str) -> GatewayKind:
    """The kind of this name; raises `GatewayError`."""
    if name not in _FOLDERS:
        raise GatewayError(f"there is no kind of gateway {name!r}: {nearest(name, KINDS, 'choose among')}")
    kind: GatewayKind = importlib.import_module(f"headrace.gateways.{_FOLDERS[name]}.kind").KIND
    return kind


def keys_of(section: Mapping[str, Any]) -> tuple[Key, ...]:
    """The keys of a section's kind; none while it does not say a kind that there is."""
    return kind_of(section["kind"]).keys if section.get("kind") in KINDS else ()


def check_section(name: str, section: Mapping[str, Any]) -> None:
    """Raise the first thing that is wrong with a section that has its defaults."""
    kind = kind_of(section["kind"])
    for module in kind.modules:
        if missing := look_for(module, f"a gateway of kind {kind.name}"):
            raise GatewayError(missing)
    kind.check(name, section)


def run_gateway(
    name: str, section: Mapping[str, Any], bootstrap: Sequence[Address], stop: threading.Event, show: Show
) -> dict[str, HeadraceError]:
    """Run one until it is told to stop; how it is doing is shown every second, and kept for others to read."""
    check_section(name, section)
    kind = kind_of(section["kind"])
    return report_gateway(kind.name, kind.make(name, section, bootstrap, stop), bootstrap, show)


def report_gateway(kind: str, gateway: Gateway, bootstrap: Sequence[Address], show: Show) -> dict[str, HeadraceError]:
    """Run one that was made, until its end."""
    return run_reported(_Part(kind, gateway), gateway.run, GATEWAYS, bootstrap, show)


@dataclass(frozen=True, slots=True)
class _Part:
    kind: str
    gateway: Gateway

    @property
    def name(self) -> str:
        return self.gateway.name

    @property
    def records(self) -> int:
        return self.gateway.progress.records

    def status(self, per_s: float, error: HeadraceError | None, *, is_over: bool) -> Status:
        return status_of(self.kind, self.gateway, per_s, error, is_over=is_over)


def status_of(kind: str, gateway: Gateway, per_s: float, error: HeadraceError | None, *, is_over: bool) -> Status:
    """How a gateway is doing."""
    progress = gateway.progress
    state = (WAITING if progress.waiting else RUNNING) if not is_over else FAILED if error else STOPPED
    return Status.of(
        gateway.name,
        kind,
        state,
        problem=str(error) if error else progress.problem,
        waiting=progress.waiting if state == WAITING else "",
        source=gateway.source,
        target=gateway.target,
        records=progress.records,
        per_s=per_s,
        bytes=progress.bytes,
        received=progress.received,
        dropped=progress.dropped,
        refused=progress.refused,
        connections=progress.connections,
        lag_records=progress.lag_records,
        **dict(progress.more),
    )


__all__ = [
    "KINDS",
    "KIND_KEY",
    "SECTION",
    "check_section",
    "keys_of",
    "kind_of",
    "report_gateway",
    "run_gateway",
    "status_of",
]
