"""What every store of views can do: take a batch whole, let a new version take over, and be read. Pure.

A view's freshness is written by the very transaction that writes the batch's rows, so it never says more than the rows
do.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from headrace.stores.errors import BadView, NoSuchView
from headrace.stores.views.question import Question
from headrace.stores.views.shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.stores.batch import OnNewQuery
    from headrace.stores.frames import Spool


Row = dict[str, Any]
# What goes with each row of a batch.
COUNT = "headrace_count"  # how many rows the key is left with by this batch: more than one cannot be kept
KNOWN = "headrace_known"  # whether a row of the key was taken back, so that it was there before
DELETED = "headrace_deleted"
COMPLETE = "headrace_complete"  # whether every column of the key has a value
KEY = "headrace_key"  # the key as JSON
ROW = "headrace_row"  # the row as JSON, for stores of texts
FLAGS = (COUNT, KNOWN, DELETED, COMPLETE, KEY)
KEPT_REVISIONS = 128  # of so many batches the changed keys are remembered, for readers that come back
MOST_LOGGED = 2_000  # changed keys of one batch; after a larger one readers get the whole view


@dataclass(frozen=True)
class Standing:
    """Up to where a batch has read: the next offset of each partition, and the watermark that was in force."""

    offsets: Mapping[str, int] = field(default_factory=dict)  # "topic-0" and the like
    watermark_ms: int | None = None


@dataclass(frozen=True)
class Freshness:
    """What a view says of itself. The revision grows with each batch and each switch, and never goes back."""

    revision: int
    batch: int
    rows: int
    written_ms: int
    standing: Standing = Standing()

    def to_json(self) -> str:
        return json.dumps(
            {
                "revision": self.revision,
                "batch": self.batch,
                "rows": self.rows,
                "written_ms": self.written_ms,
                "offsets": dict(self.standing.offsets),
                "watermark_ms": self.standing.watermark_ms,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "Freshness":
        found = json.loads(text)
        standing = Standing(found["offsets"], found["watermark_ms"])
        return cls(found["revision"], found["batch"], found["rows"], found["written_ms"], standing)

    def shown(self, now_ms: int) -> dict[str, Any]:
        watermark = self.standing.watermark_ms
        return {
            "revision": self.revision,
            "batch": self.batch,
            "rows": self.rows,
            "offsets": dict(self.standing.offsets),
            "watermark": None if watermark is None else instant(watermark),
            "written": instant(self.written_ms),
            "age_ms": max(now_ms - self.written_ms, 0),
        }


@dataclass(frozen=True)
class Origin:
    """The brokers that a query reads from, how they are reached, and where the batch stands."""

    standing: Standing = field(default_factory=Standing)
    bootstrap: str | None = None
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold passwords
    is_running: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)


def instant(ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Label:
    """A view, or a version of it that is built beside the one in use."""

    view: str
    version: int | None = None

    def __str__(self) -> str:
        return self.view if self.version is None else f"{self.view}@v{self.version}"


@dataclass(frozen=True)
class ViewBatch:
    """What a batch does to a view, ready to be written."""

    label: Label
    shape: Shape
    spool: "Spool"
    schema: "StructType"  # of what is spooled
    query_id: str
    batch_id: int
    origin: "Origin"
    now_ms: int
    upserts: bool  # whether a row may replace another that nothing took back
    on_new_query: "OnNewQuery"


@dataclass(frozen=True)
class Kept:
    """What a store knows of a view besides its rows; changes after `logged_from` are remembered."""

    shape: Shape
    freshness: Freshness
    logged_from: int


@dataclass(frozen=True)
class Change:
    """A key that changed, and its row now; None if it is gone."""

    key: Row
    row: Row | None


@dataclass(frozen=True)
class Answer:
    """Rows as of one moment, and that moment."""

    kept: Kept
    rows: Sequence[Row]


@dataclass(frozen=True)
class Changes:
    """What changed since a revision, as of `kept`; `changes` is None where that is no longer remembered."""

    kept: Kept
    changes: Sequence[Change] | None


class Reader(Protocol):
    """Reads one view, from several threads; every answer is of whole batches. Raises `NoSuchView`, `StoreAway`."""

    def kept(self) -> Kept: ...

    def row(self, values: Sequence[Any]) -> Answer: ...

    def page(self, question: Question) -> Answer: ...

    def changes(self, since: int) -> Changes: ...

    def wait(self, revision: int, timeout_s: float) -> None:
        """Come back when the view may be past this revision, or when the time is over."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """Keeps views."""

    @property
    def kind(self) -> str: ...

    def prepare(self, found: "DataFrame") -> "DataFrame": ...

    def write(self, batch: ViewBatch) -> Freshness | None:
        """Write a batch and its freshness as one; None if it is there already."""
        ...

    def switch(self, view: str, version: int) -> None: ...

    def reader(self, view: str, bootstrap: str | None = None) -> Reader:
        """A reader of one view; `bootstrap` is where a topic is that says nothing else."""
        ...


@dataclass(frozen=True)
class Tally:
    """How a batch meets the rows that are there."""

    changed: int
    added: int
    removed: int
    clashing: str | None  # the key of a row that is put where another is, which nothing took back
    strange: str | None  # the key of a row that is taken back and is not there


def check_tally(label: Label, key: Sequence[str], tally: Tally, *, upserts: bool) -> None:
    """Refuse a batch that does not fit the rows that are there."""
    if upserts:
        return
    if tally.clashing is not None:
        raise doubled(label, key, tally.clashing)
    if tally.strange is not None:
        raise BadView(
            f"view {str(label)!r}: the row with the key {tally.strange} is taken back and is not there: its inputs do "
            "not begin at the start of their tables, or the view was changed by others; build it anew (headrace "
            "pipeline rebuild)"
        )


def doubled(label: Label, key: Sequence[str], found: str) -> BadView:
    """Two rows of one key."""
    return BadView(
        f"view {str(label)!r}: there are two rows with the key {found}: the key ({', '.join(key)}) does not identify "
        "rows; name more columns in key=[…], or make rows unique before with distinct_changes"
    )


def next_kept(before: Kept | None, batch: ViewBatch, tally: Tally, *, logged: bool, fresh_start: bool) -> Kept:
    """What is known after a batch; `fresh_start` if the rows before it were removed."""
    revision = before.freshness.revision + 1 if before else 1
    counted = before.freshness.rows if before and not fresh_start else 0
    freshness = Freshness(
        revision, batch.batch_id, counted + tally.added - tally.removed, batch.now_ms, batch.origin.standing
    )
    floor = before.logged_from if before and logged and not fresh_start else revision
    return Kept(batch.shape, freshness, max(floor, revision - KEPT_REVISIONS))


def changes_of(keys: Mapping[str, Row], rows: Mapping[str, Row]) -> list[Change]:
    """Changed keys with the rows that are there now, both by the key's text."""
    return [Change(key, rows.get(text)) for text, key in keys.items()]


def take_over(built: Kept, before: Kept | None) -> Kept:
    """What is known of a view once a version that was built beside takes its place: readers begin anew."""
    revision = max(built.freshness.revision, before.freshness.revision if before else 0) + 1
    return Kept(built.shape, replace(built.freshness, revision=revision), revision)


def not_built(view: str, version: int) -> BadView:
    """There is nothing to switch to."""
    return BadView(f"version {version} of view {view!r} is not there: build it before switching to it")


def never_written(view: str) -> NoSuchView:
    """There is no such view in the store."""
    return NoSuchView(f"view {view!r} has never been written: run the file that declares it (headrace pipeline run)")
