"""What the joins over so many keys found: rates by keys, how flat the cost is, and the ratio to a call for each key."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from harness import OURS, Figure, alternate_all, scratch
from joins_keys import Keys

PER_KEY_SIZE = 100_000
PER_KEY_GOAL = 50
FLAT_GOAL = 1.3


@dataclass(frozen=True)
class Found:
    """Changes a second by keys, all rounds; and those of a call for each key, if they were measured."""

    name: str
    rates: Mapping[int, list[float]]
    per_key: float | None

    @property
    def costs(self) -> dict[int, float]:
        """Microseconds a change."""
        return {keys: 1e6 / statistics.median(rates) for keys, rates in self.rates.items()}

    @property
    def flat(self) -> float:
        """The dearest to the cheapest."""
        return max(self.costs.values()) / min(self.costs.values())

    @property
    def ratio(self) -> float | None:
        """Our rate to that of a call for each key."""
        return statistics.median(self.rates[PER_KEY_SIZE]) / self.per_key if self.per_key else None

    @property
    def figures(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {"name": self.name, "changes_per_s": self.rates, "per_key_per_s": self.per_key, "flat": self.flat}

    @property
    def lines(self) -> list[tuple[str, str, str]]:
        """What was measured, the figure, the goal."""
        told = [
            (f"{self.name}, {keys:,} keys", f"{statistics.median(rates) / 1000:.0f} k changes/s", "")
            for keys, rates in self.rates.items()
        ]
        if len(self.rates) > 1:
            costs = " / ".join(f"{cost:.1f}" for cost in self.costs.values())
            goal = f"{'met' if self.flat <= FLAT_GOAL else 'MISSED'} (goal ≤ {FLAT_GOAL}×)"
            told.append((f"{self.name}, µs a change by keys", f"{costs}, {self.flat:.2f}×", goal))
        if self.per_key and self.ratio:
            goal = f"{'met' if self.ratio >= PER_KEY_GOAL else 'MISSED'} (goal ≥ {PER_KEY_GOAL}×)"
            slow = f"{self.ratio:.0f}× its {self.per_key:.0f} changes/s"
            told.append((f"{self.name}, {PER_KEY_SIZE:,} keys, to a call a key", slow, goal))
        return told


def over_keys(rows: Mapping[str, str], sizes: Sequence[int], rounds: int, console: Console) -> list[Found]:
    """All sizes in turn, round after round, in one session."""
    from headrace.pipelines import session

    found = []
    with scratch() as folder:
        spark = session(
            "bench-joins", master="local[2]", conf={"spark.driver.memory": "1g"}, state_dir=folder / "spark"
        )
        try:
            bench = Keys(spark, folder)
            for name, row in rows.items():
                bench.ours(row, 1000)  # the engine is warm, and loops are compiled
                rates = alternate_all({str(keys): partial(bench.ours, row, keys) for keys in sizes}, rounds)
                slow = bench.per_key(row, PER_KEY_SIZE) if PER_KEY_SIZE in sizes else None
                found.append(Found(name, {int(keys): each for keys, each in rates.items()}, slow))
                for line in found[-1].lines:
                    console.print("  ".join(line))
        finally:
            spark.stop()
    return found


def figures(found: Sequence[Found]) -> list[Figure]:
    """What is kept: the rate at each number of keys, and that of a call for each key."""
    kept = [
        Figure.of(f"{each.name}, {keys:,} keys", "k changes/s", {OURS: [rate / 1000 for rate in rates]})
        for each in found
        for keys, rates in each.rates.items()
    ]
    for each in found:
        if each.per_key:
            rates = {OURS: each.rates[PER_KEY_SIZE], "a call a key": [each.per_key] * len(each.rates[PER_KEY_SIZE])}
            kept.append(Figure.of(f"{each.name}, {PER_KEY_SIZE:,} keys, beside a call a key", "changes/s", rates))
    return kept


def markdown(found: Sequence[Found]) -> str:
    """All lines as one table."""
    if not found:
        return ""
    lines = ["| | | goal |", "|---|--:|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(line)} |" for each in found for line in each.lines)]) + "\n"
