"""Pipelines: every job that reported its progress, whether it keeps up, and each by itself."""

from collections.abc import Sequence
from typing import Any

from headrace.dashboard.charts import chart, sparkline, timeline
from headrace.dashboard.errors import NotThere
from headrace.dashboard.history import Point, Series
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page
from headrace.dashboard.reports import BatchReport, instant
from headrace.dashboard.snapshot import Snapshot
from headrace.dashboard.statuses import job_state
from headrace.dashboard.watch import State

SHOWN_BATCHES = 20


def series(reports: Sequence[BatchReport], fact: str) -> Series:
    """One number of each report, over time; a report that does not tell it is left out."""
    return tuple(
        Point(report.at_ms, float(getattr(report, fact))) for report in reports if getattr(report, fact) is not None
    )


def row(reports: Sequence[BatchReport], snapshot: Snapshot, state: State) -> dict[str, Any]:
    last = reports[-1]
    waiting = snapshot.waiting(last.places)
    return {
        "job": last.job,
        "name": last.name,
        "last": last,
        "watermark_ms": instant(last.watermark),
        "state": job_state(last, waiting, state),
        "lag_ms": max(state.job_ages_ms.get((last.job, last.output), {}).values(), default=last.lag_ms),
        "waiting": last.lag_records if waiting is None else waiting,
        "ago_ms": max(state.at_ms - last.at_ms, 0),
        "spark": sparkline(series(reports, "processing_rate")),
    }


async def view_pipelines(desk: Desk, _: Asked) -> Model:
    """Every job that reported its progress, and whether it keeps up."""
    state = desk.state
    rows = [row(reports, desk.snapshot, state) for reports in state.jobs.values()]
    return {"rows": sorted(rows, key=lambda found: found["name"])}


async def view_pipeline(desk: Desk, asked: Asked) -> Model:
    """One job: how fast it goes, its watermark, what it keeps, and its last batches."""
    state, name = desk.state, asked.path["name"]
    snapshot = desk.snapshot
    outputs = [
        {
            **row(reports, snapshot, state),
            "rates": chart(
                "Rows",
                "rows/s",
                [("in", series(reports, "input_rate")), ("processed", series(reports, "processing_rate"))],
            ),
            "state_chart": chart("State", "rows", [("rows", series(reports, "state_rows"))]),
            "has_state": any(report.state_rows for report in reports),
            "timeline": timeline(reports),
            "letters": [topic for topic in reports[-1].dead_letter_topics if topic in snapshot.topics],
            "batches": list(reversed(reports[-SHOWN_BATCHES:])),
        }
        for (job, _), reports in sorted(state.jobs.items())
        if job == name
    ]
    if not outputs:
        raise NotThere(f"No job {name!r} has reported yet: start it with headrace pipeline run, or check the name.")
    return {"name": name, "outputs": outputs}


PIPELINES = Page(
    "/pipelines", "Pipelines", "pipelines.html", view_pipelines, Menu("Processing", "Pipelines", "p", "pipelines")
)
PIPELINE = Page("/pipelines/{name}", "Pipeline", "pipeline.html", view_pipeline, parent="/pipelines")
