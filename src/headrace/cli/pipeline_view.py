"""How a running pipeline looks: a table that stays in place in a terminal, lines in a pipe, JSON for programs."""

import json
import sys
from collections.abc import Sequence

import click
from rich.console import Console, Group
from rich.markup import escape
from rich.text import Text

from headrace.cli.output import LiveView, human_bytes, human_count, human_duration, make_table
from headrace.pipelines.jobs.progress import Progress
from headrace.pipelines.spark.session import StepLine

_COLUMNS = ("job", ">batch", ">rows", ">in/s", ">done/s", ">took", ">lag", ">waits", "watermark", ">state", ">late")


class View(LiveView):
    def __init__(self, *, as_json: bool, console: Console) -> None:
        super().__init__(as_json=as_json, refreshes_per_s=8, console=console)
        self._reports: Sequence[Progress] = ()
        self._steps: dict[str, StepLine] = {}
        self._shown: dict[tuple[str, str], int] = {}

    def say(self, job: str, sentence: str, **facts: str) -> None:
        if self._as_json:
            click.echo(json.dumps({"event": sentence, "job": job, **facts}))
        else:
            self._console.print(f"[cyan]{job}[/cyan] {escape(sentence)}")

    def step(self, job: str, step: str) -> None:
        """What it is doing until its first batch: a spinner in a terminal, elsewhere a line on standard error."""
        line = f"{job}: {step}" if step else ""
        known = self._steps.pop(job, None)
        if line:
            self._steps[job] = known if known and known.step == line else StepLine(line)
        if line == (known.step if known else ""):
            return
        if self._live:
            self._live.update(self._picture())
        elif line:
            self._console.print(Text(line))

    def show(self, reports: Sequence[Progress]) -> None:
        new = [report for report in reports if self._shown.get((report.job, report.output)) != report.batch]
        self._shown |= {(report.job, report.output): report.batch for report in new}
        if self._as_json:
            for report in new:
                click.echo(json.dumps(report.as_json()))
            sys.stdout.flush()
        elif self._live:
            self._reports = reports
            self._live.update(self._picture())
        else:
            for report in new:
                cells = zip(_COLUMNS, _row(report), strict=True)
                self._console.print("  ".join(f"{name.lstrip('>')} {cell}" for name, cell in cells))

    def _picture(self) -> Group:
        rows = [_row(report) for report in sorted(self._reports, key=lambda report: (report.job, report.output))]
        return Group(*([make_table(_COLUMNS, rows)] if rows else []), *self._steps.values())


def _row(report: Progress) -> list[str]:
    return [
        report.job if report.output == "out" else f"{report.job}.{report.output}",
        str(report.batch),
        f"{report.rows:,}",
        f"{report.input_rate:,.0f}",
        f"{report.processing_rate:,.0f}",
        human_duration(report.batch_ms),
        human_count(report.lag_records),
        human_duration(report.lag_ms),
        report.watermark or "–",
        f"{report.state_rows:,} / {human_bytes(report.state_bytes)}" if report.state_rows else "–",
        f"{report.late_rows_total:,}",
    ]
