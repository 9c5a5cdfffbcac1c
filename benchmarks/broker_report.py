"""What was measured, with the goals it is held to: as tables, as Markdown for the README, and as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from harness import KAFKA, OURS, Comparison, Figure, alternate_all, compare

Figures = dict[str, float]
_LABELS = {"ours": OURS, "kafka": KAFKA, "alone": f"{OURS} alone"}


class Metric(NamedTuple):
    """A figure that is shown, and how."""

    key: str
    heading: str
    form: str = "{:.2f}"
    scale: float = 1
    has_ratio: bool = True  # a difference may be about 0, and a ratio of two of them says nothing


MB_PER_S = Metric("mb_per_s", "MB/s", "{:.0f}")
RECORDS_PER_S = Metric("records_per_s", "k records/s", "{:.1f}", 1e-3)
CPU_PER_GB = Metric("cpu_s_per_gb", "CPU s/GB")
LOAD_CPU = Metric("load_cpu_share", "load's cores")
REQUESTS_PER_S = Metric("requests_per_s", "requests/s", "{:.0f}")
CPU_PER_REQUEST = Metric("cpu_us_per_request", "CPU µs/request", "{:.0f}")
P50 = Metric("p50_ms", "p50 ms", "{:.3f}")
P99 = Metric("p99_ms", "p99 ms", "{:.3f}")
SECONDS = Metric("seconds", "s")
IDLE_MB = Metric("idle_mb", "MB idle", "{:.0f}")
AFTER_MB = Metric("after_mb", "MB after", "{:.0f}")
GROWTH = Metric("growth", "after/idle")
SLOW_DOWN = Metric("slow_down_percent", "slow-down %", "{:.1f}", has_ratio=False)
MORE_CPU = Metric("more_cpu_percent", "more CPU %", "{:.1f}", has_ratio=False)
BESIDE_MB_PER_S = Metric("beside_mb_per_s", "MB/s beside", "{:.0f}")
OTHERS_PER_S = Metric("others_per_s", "beside it/s", "{:.0f}", has_ratio=False)
CPU_PER_OTHER = Metric("cpu_us_per_other", "CPU µs each", "{:.0f}")
TRANSACTIONS_PER_S = Metric("transactions_per_s", "transactions/s", "{:.0f}")
CPU_PER_TRANSACTION = Metric("cpu_us_per_transaction", "CPU µs each", "{:.0f}")
REBALANCE_MS = Metric("rebalance_ms", "ms", "{:.1f}")
OWN_MB = Metric("own_mb", "RssAnon MB", "{:.0f}")


class Goal(NamedTuple):
    """A bound, on the ratio to the other or on our own figure."""

    metric: Metric
    bound: float
    at_least: bool = False
    of_ratio: bool = True

    def is_met(self, found: Comparison) -> bool:
        value = found.ratio if self.of_ratio else found.medians["ours"]
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        unit = "×" if self.of_ratio else f" {self.metric.heading}"
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{unit}"


PRODUCE_GOALS = (Goal(MB_PER_S, 1.5, at_least=True), Goal(CPU_PER_GB, 0.6))
FETCH_GOALS = (Goal(MB_PER_S, 1.0, at_least=True), Goal(CPU_PER_GB, 0.6))
TLS_GOALS = (Goal(MB_PER_S, 1.0, at_least=True),)
AUTHORIZATION_GOALS = (Goal(MORE_CPU, 3, of_ratio=False),)
CLIENT_GOALS = (Goal(CPU_PER_GB, 0.6),)
LATENCY_GOALS = (Goal(P99, 1.0),)
START_GOALS = (Goal(SECONDS, 0.5, of_ratio=False),)
LOOP_GOALS = (Goal(TRANSACTIONS_PER_S, 1.5, at_least=True),)
BESIDE_GOALS = (Goal(SLOW_DOWN, 10, of_ratio=False),)
MEMORY_GOALS = (Goal(IDLE_MB, 60, of_ratio=False), Goal(GROWTH, 1.2, of_ratio=False))


@dataclass
class Row:
    """One thing measured on both: `ours`, and the other that it is held against."""

    name: str
    rounds: dict[str, list[Figures]]
    goals: tuple[Goal, ...]
    found: dict[str, Comparison] = field(init=False)

    def __post_init__(self) -> None:
        keys = self.rounds["ours"][0]
        self.found = {
            key: compare({name: [figures[key] for figures in rounds] for name, rounds in self.rounds.items()})
            for key in keys
        }


@dataclass
class Section:
    """Rows with the same metrics, one table."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    other: str = "Kafka"
    rows: list[Row] = field(default_factory=list)

    def print(self, console: Console) -> None:
        headings = []
        for metric in self.metrics:
            headings += [f"ours {metric.heading}", self.other, "ratio", "from – to"]
        table = Table(self.title, *headings, "", box=None, padding=(0, 1))
        for row in self.rows:
            cells = [row.name]
            for metric in self.metrics:
                found = row.found[metric.key]
                low, high = found.spread
                cells += _medians(metric, found)
                if metric.has_ratio:
                    cells += [f"{found.ratio:.2f}×", f"{low:.2f}–{high:.2f}"]
                else:
                    cells += ["", _ours(row, metric)]
            table.add_row(*cells, "; ".join(verdicts(row)))
        console.print(table)
        console.print()


def _medians(metric: Metric, found: Comparison) -> list[str]:
    return [metric.form.format(value * metric.scale) for value in found.medians.values()]


def _ours(row: Row, metric: Metric) -> str:
    """From where to where our own rounds went."""
    values = [figures[metric.key] * metric.scale for figures in row.rounds["ours"]]
    return f"{metric.form.format(min(values))}–{metric.form.format(max(values))}"


def verdicts(row: Row) -> list[str]:
    return [
        f"{goal.metric.heading} {'met' if goal.is_met(row.found[goal.metric.key]) else 'MISSED'} ({goal})"
        for goal in row.goals
    ]


def measure(
    name: str, contenders: Mapping[str, Callable[[], Figures]], goals: tuple[Goal, ...], rounds: int, console: Console
) -> Row:
    """Run one row's rounds."""
    with console.status(name):
        return Row(name, alternate_all(contenders, rounds), goals)


def markdown(headline: str, sections: Sequence[Section]) -> str:
    """A line for each row and metric that has a goal, and for each first metric."""
    lines = [headline, "", "| | Headrace | Kafka 4.3.1 | ratio | goal |", "|---|--:|--:|--:|---|"]
    for section in sections:
        for row in section.rows:
            goals = {goal.metric.key: goal for goal in row.goals}
            for metric in section.metrics:
                if metric is not section.metrics[0] and metric.key not in goals:
                    continue
                found = row.found[metric.key]
                ours, other = _medians(metric, found)
                if section.other != "Kafka":
                    other += f" ({section.other})"
                goal = goals.get(metric.key)
                verdict = f"{goal}: {'met' if goal.is_met(found) else 'missed'}" if goal else ""
                ratio = f"{found.ratio:.2f}×" if metric.has_ratio else ""
                lines.append(f"| {row.name}, {metric.heading} | {ours} | {other} | {ratio} | {verdict} |")
    return "\n".join(lines) + "\n"


def figures(sections: Sequence[Section]) -> list[Figure]:
    """What is kept: every metric of every row."""
    found = []
    for section in sections:
        for row in section.rows:
            for metric in section.metrics:
                rounds = {
                    _LABELS[name]: [each[metric.key] * metric.scale for each in each_round]
                    for name, each_round in row.rounds.items()
                }
                figure = Figure.of(row.name, metric.heading, rounds)
                found.append(figure if metric.has_ratio else figure._replace(ratios={}, spreads={}))
    return found


def write_json(path: Path, headline: str, sections: Sequence[Section]) -> None:
    """Every figure of every round."""
    content = {
        "headline": headline,
        "sections": {
            section.name: [
                {
                    "name": row.name,
                    "rounds": row.rounds,
                    "medians": {key: found.medians for key, found in row.found.items()},
                    "ratios": {key: found.ratio for key, found in row.found.items()},
                    "goals": {
                        goal.metric.key: {"goal": str(goal), "met": goal.is_met(row.found[goal.metric.key])}
                        for goal in row.goals
                    },
                }
                for row in section.rows
            ]
            for section in sections
        },
    }
    path.write_text(json.dumps(content, indent=1))
