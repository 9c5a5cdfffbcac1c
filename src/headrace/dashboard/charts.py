"""Lines over time, and the batches of a job as bars, as geometry: the templates draw it as SVG, and set the same
numbers beside it as a table. Pure.

What always holds: every coordinate is inside the drawing, whatever the numbers; the scale begins at zero and ends at a
round number; a few numbers far above all others do not set the scale: they are cut off and marked with their value; and
a table has few enough rows to be read.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.dashboard.format import clock_time, duration, short
from headrace.dashboard.history import Point, Series
from headrace.dashboard.reports import BatchReport

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 12, 28
TABLE_ROWS, MOMENTS = 12, 60
_STEPS = (1, 2, 2.5, 5, 10)
_FEWEST = 8  # numbers, before some can be called unusual
_USUAL = 0.9  # of the numbers
_FAR = 3  # times as high as the usual ones


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    path: str
    area: str
    last: str
    last_x: float
    last_y: float


@dataclass(frozen=True, slots=True)
class Spike:
    """A number above the scale, at the top edge."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    time: str
    values: tuple[str, ...]
    x: float


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing and its numbers; `is_empty` while there is nothing to draw a line through."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]
    is_empty: bool
    summary: str
    moments: tuple[Row, ...] = ()  # more of them than in the table: what the pointer finds
    spikes: tuple[Spike, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def round_up(value: float) -> float:
    """The next round number: 1, 2, 2.5 or 5 times a power of ten; never less than 1."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))


def scale_top(values: Sequence[float]) -> float:
    """The number that a scale has to reach: the highest, unless a few stand far above all others."""
    highest = max(values, default=0.0)
    usual = sorted(values)[int((len(values) - 1) * _USUAL)] if len(values) >= _FEWEST else highest
    return usual * 1.2 if 0 < usual * _FAR < highest else highest


def chart(title: str, unit: str, named: Sequence[tuple[str, Series]]) -> Chart:
    # Reports may come out of order, from a job that was started again; time goes only one way.
    drawn = [(name, tuple(sorted(series))) for name, series in named if series]
    times = sorted({point.at_ms for _, series in drawn for point in series})
    if len(times) < 2:
        return Chart(title, unit, (), (), (), (), is_empty=True, summary=f"{title}: no numbers yet")
    first, last = times[0], times[-1]
    top = round_up(scale_top([point.value for _, series in drawn for point in series]))
    parts = 4 if f"{top:e}".startswith("2.0") else 5  # so that every mark is a round number too

    def x_of(at_ms: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (at_ms - first) / (last - first), 1)

    def y_of(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(max(value, 0), top) / top, 1)

    def moments(most: int) -> tuple[Row, ...]:
        found = [{point.at_ms: point.value for point in series} for _, series in drawn]
        return tuple(
            Row(clock_time(at), tuple(short(values.get(at)) for values in found), x_of(at))
            for at in _spread(times, most)
        )

    lines = []
    for name, series in drawn:
        points = [f"{x_of(point.at_ms)} {y_of(point.value)}" for point in series]
        path = "M" + " L".join(points)
        floor = HEIGHT - BOTTOM
        area = f"{path} L{x_of(series[-1].at_ms)} {floor} L{x_of(series[0].at_ms)} {floor} Z"
        ends = series[-1]
        lines.append(Line(name, path, area, short(ends.value), x_of(ends.at_ms), y_of(ends.value)))
    spikes = tuple(Spike(x_of(point.at_ms), short(point.value)) for _, series in drawn for point in _above(series, top))
    now = ", ".join(f"{line.name} {line.last}" for line in lines)
    return Chart(
        title,
        unit,
        tuple(lines),
        tuple(Tick(x_of(at), clock_time(at)) for at in (first + (last - first) * part // 3 for part in range(4))),
        tuple(Tick(y_of(top * part / parts), short(top * part / parts)) for part in range(parts + 1)),
        tuple(reversed(moments(TABLE_ROWS))),
        is_empty=False,
        summary=f"{title} in {unit} from {clock_time(first)} to {clock_time(last)} UTC; now {now}"
        + "".join(f"; above the scale: {spike.label}" for spike in spikes[:1]),
        moments=moments(MOMENTS),
        spikes=spikes,
    )


def _above(series: Series, top: float) -> list[Point]:
    """The highest number of each stretch that is above the scale."""
    found: list[Point] = []
    was_above = False
    for point in series:
        if point.value > top:
            if was_above and point.value > found[-1].value:
                found[-1] = point
            elif not was_above:
                found.append(point)
        was_above = point.value > top
    return found


def _spread(times: Sequence[int], most: int) -> list[int]:
    if len(times) <= most:
        return list(times)
    return [times[round(place * (len(times) - 1) / (most - 1))] for place in range(most)]


def sparkline(series: Series, width: int = 96, height: int = 24) -> str:
    """A small line without axes: the path of it, empty if there is none."""
    points = series[-60:]
    if len(points) < 2:
        return ""
    top = max(scale_top([point.value for point in points]), 1e-9)
    step = (width - 2) / (len(points) - 1)
    return "M" + " L".join(
        f"{round(1 + index * step, 1)} {round(height - 2 - (height - 4) * min(max(point.value, 0), top) / top, 1)}"
        for index, point in enumerate(points)
    )


BARS_WIDTH, BARS_HEIGHT, BARS_TOP, BARS_BOTTOM = 640, 100, 4, 1
MOST_BARS = 60


@dataclass(frozen=True, slots=True)
class Bar:
    """One batch: as high as it took long; it is `slow` if it took twice as long as most."""

    x: float
    y: float
    width: float
    height: float
    label: str
    is_slow: bool
    is_idle: bool
    is_cut: bool = False  # it took far longer than can be drawn beside the others


@dataclass(frozen=True, slots=True)
class Timeline:
    bars: tuple[Bar, ...]
    longest: str
    first: str
    last: str
    summary: str
    width: int = BARS_WIDTH
    height: int = BARS_HEIGHT
    floor: int = BARS_HEIGHT - BARS_BOTTOM
    top: int = BARS_TOP
    is_cut: bool = False


def timeline(reports: Sequence[BatchReport]) -> Timeline | None:
    """The last batches as bars; None if there are none."""
    shown = reports[-MOST_BARS:]
    if not shown:
        return None
    longest_ms = max(max(report.batch_ms for report in shown), 1)
    top_ms = max(scale_top([report.batch_ms for report in shown]), 1)
    usual_ms = sorted(report.batch_ms for report in shown)[len(shown) // 2]
    slot = BARS_WIDTH / max(len(shown), 12)
    room = BARS_HEIGHT - BARS_TOP - BARS_BOTTOM
    bars = []
    for index, report in enumerate(shown):
        height = round(max(room * min(report.batch_ms / top_ms, 1.0), 2.0), 1)
        bars.append(
            Bar(
                round(index * slot + 1, 1),
                round(BARS_HEIGHT - BARS_BOTTOM - height, 1),
                round(slot - 2, 1),
                height,
                f"batch {report.batch}: {short(report.rows)} rows in {duration(report.batch_ms)}",
                is_slow=report.batch_ms > 2 * usual_ms and report.rows > 0,
                is_idle=report.rows == 0,
                is_cut=report.batch_ms > top_ms,
            )
        )
    return Timeline(
        tuple(bars),
        duration(longest_ms),
        clock_time(shown[0].at_ms),
        clock_time(shown[-1].at_ms),
        f"{len(shown)} batches; the longest took {duration(longest_ms)}, half of them less than {duration(usual_ms)}",
        is_cut=longest_ms > top_ms,
    )
