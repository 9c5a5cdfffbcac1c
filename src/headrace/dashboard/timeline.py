"""The batches of a job side by side in time, as geometry: how long each took, and how much it carried. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.dashboard.charts import scale_top
from headrace.dashboard.format import clock_time, duration, short
from headrace.dashboard.reports import BatchReport

WIDTH, HEIGHT, TOP, BOTTOM = 640, 100, 4, 1
MOST = 60


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
    """The last batches."""

    bars: tuple[Bar, ...]
    longest: str
    first: str
    last: str
    summary: str
    width: int = WIDTH
    height: int = HEIGHT
    floor: int = HEIGHT - BOTTOM
    top: int = TOP
    is_cut: bool = False


def timeline(reports: Sequence[BatchReport]) -> Timeline | None:
    """The last batches as bars; None if there are none."""
    shown = reports[-MOST:]
    if not shown:
        return None
    longest_ms = max(max(report.batch_ms for report in shown), 1)
    top_ms = max(scale_top([report.batch_ms for report in shown]), 1)
    usual_ms = sorted(report.batch_ms for report in shown)[len(shown) // 2]
    slot = WIDTH / max(len(shown), 12)
    room = HEIGHT - TOP - BOTTOM
    bars = []
    for index, report in enumerate(shown):
        height = round(max(room * min(report.batch_ms / top_ms, 1.0), 2.0), 1)
        bars.append(
            Bar(
                round(index * slot + 1, 1),
                round(HEIGHT - BOTTOM - height, 1),
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
