"""A section `[gateways.NAME]` of `headrace.toml`, and the gateway that it describes at work, with a status.

    [gateways.access]
    kind = "file"
    paths = ["/var/log/nginx/access.log"]
    topic = "access"

A further kind is a line in `_KINDS`: what makes it of a section, what it says of itself, and what runs it.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headrace.client.address import Address
from headrace.errors import HeadraceError
from headrace.gateways.errors import GatewayError
from headrace.gateways.files.follower import Follower, FollowSettings
from headrace.gateways.files.following import LINE_BYTES
from headrace.model import check_topic_name
from headrace.records import Codec
from headrace.reporting import Show, run_reported
from headrace.status import FAILED, GATEWAYS, RUNNING, STOPPED, WAITING, Status

SECTION: Final = "gateways"
FILE: Final = "file"
KINDS: Final = (FILE,)


def from_section(name: str, section: Mapping[str, Any]) -> FollowSettings:
    """What a section says; raises the first thing that is wrong with a value."""
    topic = section.get("topic") or name
    check_topic_name(topic)
    paths = tuple(section.get("paths") or ())
    if not paths:
        raise GatewayError(f'[{SECTION}.{name}] follows no file: write paths = ["/var/log/nginx/access.log"]')
    if not all(isinstance(path, str) and path for path in paths):
        raise GatewayError(
            f"[{SECTION}.{name}] has a path in paths that is no text or empty: name a file, or a pattern"
        )
    return FollowSettings(
        name,
        paths,
        topic,
        from_end=section.get("from") == "end",
        with_path=section.get("key") == "path",
        header=section.get("header"),
        line_bytes=section.get("max_line") or LINE_BYTES,
        codec=Codec.named(section.get("compression") or "none"),
    )


def run_gateway(
    settings: FollowSettings, bootstrap: Sequence[Address], stop: threading.Event, show: Show, *, once: bool = False
) -> dict[str, HeadraceError]:
    """Run one until it is told to stop; how it is doing is shown every second, and kept for others to read."""
    part = _Gateway(Follower(settings, bootstrap, stopping=stop))
    return run_reported(part, partial(part.follower.run, until_idle=once), GATEWAYS, bootstrap, show)


@dataclass(frozen=True, slots=True)
class _Gateway:
    follower: Follower

    @property
    def name(self) -> str:
        return self.follower.settings.name

    @property
    def records(self) -> int:
        return self.follower.progress.records

    def status(self, per_s: float, error: HeadraceError | None, *, is_over: bool) -> Status:
        return status_of(self.follower, per_s, error, is_over=is_over)


def status_of(follower: Follower, per_s: float, error: HeadraceError | None, *, is_over: bool) -> Status:
    """How a follower is doing."""
    settings, progress = follower.settings, follower.progress
    state = (WAITING if progress.waiting else RUNNING) if not is_over else FAILED if error else STOPPED
    return Status.of(
        settings.name,
        FILE,
        state,
        problem=str(error) if error else progress.problem,
        waiting=progress.waiting if state == WAITING else "",
        source=", ".join(settings.patterns),
        target=settings.topic,
        records=progress.records,
        per_s=per_s,
        bytes=progress.bytes,
        files=progress.files,
        lag_bytes=progress.lag_bytes,
        too_long=progress.too_long,
    )


__all__ = ["FILE", "KINDS", "SECTION", "from_section", "run_gateway", "status_of"]
