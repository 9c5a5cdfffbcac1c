"""What a bucket consists of: the small record that is read and written with every micro-batch.

It is JSON, so that a checkpoint can be looked into with Spark's state reader alone.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from headrace.pipelines.keyed.levels import Extent
from headrace.pipelines.keyed.operator import NO_WATERMARK, BadState, Clock

VERSION: Final = 2


@dataclass(frozen=True)
class Woken:
    """How far a clock's timers have been looked through."""

    upto_us: int = NO_WATERMARK
    overdue: bool = False
    """Whether a timer was set since then for a time not after `upto_us`."""


@dataclass(frozen=True)
class Manifest:
    """The runs of each table from the oldest to the newest, and the small things beside them."""

    buckets: int
    tables: Mapping[str, tuple[Extent, ...]] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    woken: Mapping[Clock, Woken] = field(default_factory=lambda: {Clock.EVENT: Woken(), Clock.WALL: Woken()})
    alarm_ms: int | None = None
    """The one timer that Spark has for the bucket."""

    def with_table(self, name: str, extents: tuple[Extent, ...]) -> "Manifest":
        """The same with other runs of a table."""
        return replace(self, tables={**self.tables, name: extents})

    def bound(self, table: str) -> int:
        """The time before which a table's rows are gone."""
        return self.bounds.get(table, NO_WATERMARK)


def to_text(manifest: Manifest) -> str:
    """The manifest as JSON, in the newest layout."""
    tables = {name: [list(asdict(each).values()) for each in runs] for name, runs in manifest.tables.items()}
    woken = {clock.value: [each.upto_us, each.overdue] for clock, each in manifest.woken.items()}
    small = {"bounds": dict(manifest.bounds), "counts": dict(manifest.counts), "woken": woken}
    head = {"layout": VERSION, "buckets": manifest.buckets, "alarm_ms": manifest.alarm_ms}
    return json.dumps({**head, **small, "tables": tables}, separators=(",", ":"))


def from_text(text: str) -> Manifest:
    """The way back; reads the layout before as well, which had no counters."""
    stored: dict[str, Any] = json.loads(text)
    if stored.get("layout") not in (1, VERSION):
        raise BadState(
            f"stored state has layout {stored.get('layout')}, and this version of headrace reads 1 to {VERSION}: "
            "run it with the version that wrote it, or rebuild the job from its topics"
        )
    return Manifest(
        buckets=stored["buckets"],
        tables={name: tuple(Extent(*each) for each in runs) for name, runs in stored["tables"].items()},
        bounds=stored["bounds"],
        counts=stored.get("counts", {}),
        woken={Clock(clock): Woken(*each) for clock, each in stored["woken"].items()},
        alarm_ms=stored["alarm_ms"],
    )
