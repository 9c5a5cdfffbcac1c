"""One job: how fast it goes, its watermark, what it keeps, and its last batches."""

from headrace.dashboard.charts import chart
from headrace.dashboard.desk import Desk
from headrace.dashboard.errors import NotThere
from headrace.dashboard.feeds import Jobs
from headrace.dashboard.page import Asked, Model, Page
from headrace.dashboard.pages.pipelines import row, series
from headrace.dashboard.snapshot import Snapshot
from headrace.dashboard.timeline import timeline
from headrace.dashboard.watch import JobAges

SHOWN_BATCHES = 20


def model(snapshot: Snapshot, jobs: Jobs, ages: JobAges, name: str, now_ms: int) -> Model:
    """What the page shows."""
    outputs = [
        {
            **row(reports, snapshot, ages, now_ms),
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
        for (job, _), reports in sorted(jobs.items())
        if job == name
    ]
    if not outputs:
        raise NotThere(f"No job {name!r} has reported yet: start it with headrace pipeline run, or check the name.")
    return {"name": name, "outputs": outputs}


async def view(desk: Desk, asked: Asked) -> Model:
    """What the page shows now."""
    state = desk.state
    assert state.snapshot is not None
    return model(state.snapshot, state.jobs, state.job_ages_ms, asked.path["name"], state.at_ms)


PAGE = Page("/pipelines/{name}", "Pipeline", "pipeline.html", view, parent="/pipelines")
