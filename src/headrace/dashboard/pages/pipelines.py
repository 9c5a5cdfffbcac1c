"""Pipelines: every job that reported its progress, and whether it keeps up."""

from collections.abc import Sequence
from typing import Any

from headrace.dashboard.alerts import SILENT_MS
from headrace.dashboard.charts import sparkline
from headrace.dashboard.desk import Desk
from headrace.dashboard.feeds import Jobs
from headrace.dashboard.history import Point, Series
from headrace.dashboard.page import Asked, Menu, Model, Page
from headrace.dashboard.reports import BatchReport, instant
from headrace.dashboard.snapshot import Snapshot
from headrace.dashboard.watch import JobAges


def series(reports: Sequence[BatchReport], fact: str) -> Series:
    """One number of each report, over time; a report that does not tell it is left out."""
    return tuple(
        Point(report.at_ms, float(getattr(report, fact))) for report in reports if getattr(report, fact) is not None
    )


def state_of(last: BatchReport, waiting: int | None, now_ms: int) -> str:
    """Whether a job runs, as far as its reports tell: Spark reports every ten seconds even when idle."""
    if now_ms - last.at_ms <= SILENT_MS:
        return "running"
    return "silent" if waiting else "ended"


def row(reports: Sequence[BatchReport], snapshot: Snapshot, ages: JobAges, now_ms: int) -> dict[str, Any]:
    """One output of a job."""
    last = reports[-1]
    waiting = snapshot.waiting(last.places)
    return {
        "job": last.job,
        "name": last.name,
        "last": last,
        "watermark_ms": instant(last.watermark),
        "state": state_of(last, waiting, now_ms),
        "lag_ms": max(ages.get((last.job, last.output), {}).values(), default=last.lag_ms),
        "waiting": last.lag_records if waiting is None else waiting,
        "ago_ms": max(now_ms - last.at_ms, 0),
        "spark": sparkline(series(reports, "processing_rate")),
    }


def model(snapshot: Snapshot, jobs: Jobs, ages: JobAges, now_ms: int) -> Model:
    """What the page shows."""
    rows = [row(reports, snapshot, ages, now_ms) for reports in jobs.values()]
    return {"rows": sorted(rows, key=lambda found: found["name"])}


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    state = desk.state
    assert state.snapshot is not None
    return model(state.snapshot, state.jobs, state.job_ages_ms, state.at_ms)


PAGE = Page("/pipelines", "Pipelines", "pipelines.html", view, Menu("Processing", "Pipelines", "p", "pipelines"))
