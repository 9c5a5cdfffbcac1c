"""What a benchmark with several contenders found: a line for each contender, the goals beside ours."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from broker_report import P50, P99, RECORDS_PER_S, Figures, Metric
from harness import KAFKA, Comparison, Figure, compare

OURS = "headrace"
BASE = "spark"
LABELS = {
    "headrace": "Headrace",
    "spark": "plain PySpark",
    "spark-2": "PySpark, 2 shuffle partitions",
    "native": "Spark's own, our source",
    "real-time": "PySpark, real-time mode",
    "flink": "Flink SQL",
    "flink-once": "Flink SQL, exactly once",
    "debezium": "Debezium",
    "kafka": KAFKA,
    "classic": "RabbitMQ 3.10.8, classic queue",
    "quorum": "RabbitMQ 3.10.8, quorum queue",
    "short": "Headrace, short queue",
}

WALL = Metric("seconds", "s")
CPU_PER_MILLION = Metric("cpu_s_per_million", "CPU s/M records")
PEAK = Metric("peak_mb", "peak MB", "{:.0f}")
TRIGGER = Metric("trigger_ms", "trigger ms", "{:.0f}")
START = Metric("start_s", "start s", "{:.1f}")


class Goal(NamedTuple):
    """A bound on the ratio of our figure to another contender's."""

    metric: Metric
    against: str
    bound: float
    at_least: bool = True

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}× {LABELS[self.against]}"


FAST_GOALS = (Goal(RECORDS_PER_S, "spark", 3), Goal(RECORDS_PER_S, "flink", 1.2))
# With 200 shuffle partitions, each a state store, plain PySpark is too easily beaten: the goal holds for two as well.
TUMBLING_GOALS = (*FAST_GOALS, Goal(RECORDS_PER_S, "spark-2", 3))
SINK_GOALS = (Goal(RECORDS_PER_S, "spark", 0.8),)
TRIGGER_GOALS = (Goal(TRIGGER, "spark", 0.5, at_least=False),)

THROUGHPUT = (RECORDS_PER_S, WALL, CPU_PER_MILLION, PEAK)
LATENCY = (P50, P99)


@dataclass
class Row:
    """One thing measured on every contender."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    rounds: dict[str, list[Figures]]
    goals: tuple[Goal, ...] = ()
    base: str = BASE  # whom the others are compared with
    details: dict[str, Any] = field(default_factory=dict)

    def median(self, contender: str, metric: Metric) -> float:
        return statistics.median(figures[metric.key] for figures in self.rounds[contender])

    def ratio(self, one: str, other: str, metric: Metric) -> Comparison | None:
        """The rounds' ratios of one contender to another, if both ran."""
        if one not in self.rounds or other not in self.rounds:
            return None
        return compare({each: [figures[metric.key] for figures in self.rounds[each]] for each in (one, other)})

    def verdicts(self, contender: str) -> list[str]:
        if contender != OURS:
            return []
        said = []
        for goal in self.goals:
            found = self.ratio(OURS, goal.against, goal.metric)
            if found is None:
                said.append(f"not known ({goal})")
                continue
            is_met = found.ratio >= goal.bound if goal.at_least else found.ratio <= goal.bound
            said.append(f"{found.ratio:.2f}× {'met' if is_met else 'MISSED'} ({goal})")
        return said

    def cells(self, contender: str) -> list[str]:
        """The figures, then the first one's ratio to the base and its spread over the rounds."""
        cells = [metric.form.format(self.median(contender, metric) * metric.scale) for metric in self.metrics]
        found = self.ratio(contender, self.base, self.metrics[0])
        if found is None or contender == self.base:
            return [*cells, "", ""]
        return [*cells, f"{found.ratio:.2f}×", "{:.2f}–{:.2f}".format(*found.spread)]

    def print(self, console: Console) -> None:
        headings = [metric.heading for metric in self.metrics]
        base = f"to {LABELS[self.base]}"
        table = Table(self.title, *headings, base, "from – to", "goals", box=None, padding=(0, 1))
        for contender in self.rounds:
            table.add_row(LABELS[contender], *self.cells(contender), "; ".join(self.verdicts(contender)))
        console.print(table)
        console.print()


def markdown(headline: str, rows: Sequence[Row]) -> str:
    """Each row's first metrics as lines of one table."""
    bases = " / ".join(dict.fromkeys(LABELS[row.base] for row in rows))
    lines = [headline, "", f"| | | | to {bases} | goals |", "|---|---|--:|--:|---|"]
    for row in rows:
        for contender in row.rounds:
            cells = row.cells(contender)
            figures = ", ".join(f"{cell} {m.heading}" for cell, m in zip(cells[:2], row.metrics, strict=False))
            verdicts = "; ".join(row.verdicts(contender))
            lines.append(f"| {row.title} | {LABELS[contender]} | {figures} | {cells[-2]} | {verdicts} |")
    return "\n".join(lines) + "\n"


def figures(rows: Sequence[Row]) -> list[Figure]:
    """What is kept: every metric of every row, ours first."""
    found = []
    for row in rows:
        names = sorted(row.rounds, key=lambda name: name != OURS)
        for metric in row.metrics:
            rounds = {LABELS[name]: [each[metric.key] * metric.scale for each in row.rounds[name]] for name in names}
            found.append(Figure.of(row.title, metric.heading, rounds))
    return found


def write_json(path: Path, headline: str, rows: Sequence[Row]) -> None:
    """Every figure of every round."""
    content = [
        {
            "name": row.name,
            "title": row.title,
            "rounds": row.rounds,
            "medians": {each: {m.key: row.median(each, m) for m in row.metrics} for each in row.rounds},
            "goals": row.verdicts(OURS) if OURS in row.rounds else [],
            "details": row.details,
        }
        for row in rows
    ]
    path.write_text(json.dumps({"headline": headline, "rows": content}, indent=1))
