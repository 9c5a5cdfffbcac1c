"""What `live` knows of a stream so far: batches folded into a view that never grows beyond what is shown. Pure.

What always holds: a view holds at most `Choice.kept` rows and `POINTS` points of each of `LINES` lines, however much
went through; and a batch that comes a second time changes nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from headrace.client.html_tables import is_number, shown

KEPT: Final = 1000  # rows that are remembered beyond those that are shown: a key that falls behind makes room for them
POINTS: Final = 120
FIRST_MS: Final = 1000  # how long the first batch is taken to have come in
LINES: Final = 6
APPEND, UPDATE, COMPLETE = "append", "update", "complete"
MODES: Final = (APPEND, UPDATE, COMPLETE)
ARRIVED: Final = "rows"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a user wants to see: by which columns a row is the same one, how many rows, what is drawn."""

    keys: tuple[str, ...] = ()
    rows: int = 20
    plot: str | None = None  # a column of numbers; without one, how many rows came is drawn
    order_by: str | None = None  # the rows with its greatest values are shown; without it, the latest
    mode: str = APPEND

    @property
    def kept(self) -> int:
        return max(self.rows, KEPT) if self.keys or self.order_by else self.rows


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch, of which no more rows are here than are kept."""

    number: int
    at_ms: int
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    count: int  # of all its rows


@dataclass(frozen=True, slots=True)
class Point:
    at_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class View:
    """What is to be seen now; the first row is the latest one, or the greatest."""

    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    fresh: frozenset[int] = frozenset()  # places of rows that came with the last batch
    lines: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    total: int = 0
    batch: int = -1
    at_ms: int = 0
    state: str = "waiting for rows"
    most: int = 20

    @property
    def visible(self) -> tuple[Row, ...]:
        return self.rows[: self.most]

    @property
    def summary(self) -> str:
        if self.batch < 0:
            return self.state
        rows, batches = self.total, self.batch + 1
        return f"{rows:,} row{'s' * (rows != 1)} in {batches:,} batch{'es' * (batches != 1)}, {self.state}"


def fold_batch(view: View, batch: Batch, choice: Choice) -> View:
    if batch.number <= view.batch:
        return view
    rows, fresh = _rows(view, batch, choice)
    return View(
        batch.columns,
        rows,
        fresh,
        _lines(view, batch, choice),
        view.total + batch.count,
        batch.number,
        batch.at_ms,
        "running",
        choice.rows,
    )


def end_view(view: View, state: str) -> View:
    """The view as it stays: nothing is fresh any more."""
    return replace(view, fresh=frozenset(), state=state)


def _rows(view: View, batch: Batch, choice: Choice) -> tuple[tuple[Row, ...], frozenset[int]]:
    if choice.mode == COMPLETE:  # each batch is the whole result
        before: list[Row] = []
        new = list(batch.rows)
    else:
        new = list(reversed(batch.rows))
        before = list(view.rows)
    if choice.keys:
        places = [batch.columns.index(name) for name in choice.keys]
        latest: dict[Row, Row] = {}
        for row in new:  # the latest first
            latest.setdefault(tuple(map(_hashable, (row[at] for at in places))), row)
        new = list(latest.values())
        before = [row for row in before if tuple(map(_hashable, (row[at] for at in places))) not in latest]
    tagged = [(row, True) for row in new] + [(row, False) for row in before]
    if choice.order_by is not None:
        at = batch.columns.index(choice.order_by)
        tagged.sort(key=lambda pair: _rank(pair[0][at]), reverse=True)
    tagged = tagged[: choice.kept]
    fresh = frozenset(place for place, (_, is_new) in enumerate(tagged) if is_new and choice.mode != COMPLETE)
    return tuple(row for row, _ in tagged), fresh


def _hashable(value: Any) -> Any:
    return repr(value) if isinstance(value, list | dict | set | bytearray) else value


def _rank(value: Any) -> tuple[bool, Any]:
    """What can be compared comes before what is null or no number."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return (False, 0)
    return (True, value)


def _lines(view: View, batch: Batch, choice: Choice) -> dict[str, tuple[Point, ...]]:
    lines = dict(view.lines)
    came: dict[str, list[float]] = {}
    for name, value in _values(batch, choice):
        if name in lines or len(lines.keys() | came.keys()) < LINES or name in came:
            came.setdefault(name, []).append(value)
    before_ms = view.at_ms if view.batch >= 0 else batch.at_ms - FIRST_MS
    for name, values in came.items():
        # Several values of one line came one after the other since the batch before; when exactly, nobody knows.
        step = (batch.at_ms - before_ms) / len(values)
        points = [Point(round(before_ms + step * (place + 1)), value) for place, value in enumerate(values)]
        lines[name] = (*lines.get(name, ()), *points)[-POINTS:]
    return lines


def _values(batch: Batch, choice: Choice) -> list[tuple[str, float]]:
    if choice.plot is None:
        return [(ARRIVED, float(batch.count))]
    at = batch.columns.index(choice.plot)
    keys = [batch.columns.index(name) for name in choice.keys]
    named = [(" ".join(shown(row[key]) for key in keys) if keys else choice.plot, row[at]) for row in batch.rows]
    if keys:  # one value of a key a batch: its last
        named = list({name: (name, value) for name, value in named}.values())
    return [(name, float(value)) for name, value in named if _is_finite(value)]


def _is_finite(value: Any) -> bool:
    return (is_number(value) or isinstance(value, Decimal)) and math.isfinite(value)
