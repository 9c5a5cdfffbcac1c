"""A job as a notebook shows it: what it reads, what it writes, how often, where it stands. Pure."""

from typing import TYPE_CHECKING

from headrace.client.html_tables import facts, table
from headrace.pipelines.jobs.status import described

if TYPE_CHECKING:
    from headrace.pipelines.jobs.declare import Job


def job_html(job: "Job") -> str:
    """Options are left out: they may hold passwords."""
    said = facts(f"job {job.name}", [("trigger", job.trigger), ("mode", job.mode), ("declared", job.place)])
    rows: list[tuple[object, ...]] = [
        ("reads", word, str(item), f"{item.watermark[0]}, {item.watermark[1]} late" if item.watermark else None)
        for word, item in job.inputs.items()
    ]
    rows += [("writes", word, described(output), None) for word, output in job.outputs.items()]
    return f"<div>{said}{table(('', 'name', 'what', 'watermark'), rows)}</div>"
