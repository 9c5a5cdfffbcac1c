"""Keyed state by the bucket against Spark's own ways: counting rows per key, in micro-batches of one size.

    python benchmarks/keyed.py --sizes 10000 100000 1000000 --rounds 3

Contenders: the engine (`keyed`), Spark's native `groupBy().count()` on the same session, and one call a key with
`transformWithStateInPandas`, which gets fewer rows, for it does some hundred a second. All count the same keys and emit
each key's new count into a sink that throws it away. Before anything is measured each key has been there once, so the
state is full; a figure is the median over the measured micro-batches of a run.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HEADRACE_SPARK_ARCHIVE", "0")

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from rich.console import Console

from harness import OURS, Figure, alternate_all, compare, headline, keep, scratch
from headrace.pipelines import session
from headrace.pipelines.keyed.apply import keyed
from headrace.pipelines.keyed.operator import NOTHING, Batch, Changes, Due, Keyed, Plan, State, Times, Values
from pipelines_process import Peak

BATCH_ROWS = 200_000
PER_KEY_ROWS = 2_000
PER_KEY_SIZE = 100_000
NATIVE_GOAL = 0.7
PER_KEY_GOAL = 50
FLAT_GOAL = 1.3
NATIVE = "Spark's own aggregation"
console = Console()


COUNT = pa.schema([("n", pa.int64())])


@dataclass(frozen=True)
class Counting:
    """Counts the rows of each key, and emits the new count."""

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:  # noqa: ARG002
        """One number a key."""
        return Plan(COUNT, (Values("counts", COUNT),))

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:  # noqa: ARG002
        """Add what is there to what came."""
        count = np.bincount(batch.key, minlength=batch.keys.num_rows).astype(np.int64)
        old = state.read("counts")
        count[old.key] += old.rows["n"].to_numpy()
        now = Keyed(np.arange(len(count)), pa.record_batch([pa.array(count)], schema=COUNT))
        return Changes(emit=now, put={"counts": now})

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:  # noqa: ARG002
        """There are no timers."""
        return NOTHING


class OneKey(StatefulProcessor):
    """Counts as Spark's guide shows it: a call for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One value a key."""
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803
        """Add, keep, emit."""
        held = self._count.get()
        count = (held[0] if held else 0) + sum(len(frame) for frame in rows)
        self._count.update((count,))
        yield pd.DataFrame({"k": [key[0]], "n": [count]})

    def close(self) -> None:
        """Nothing to close."""


@dataclass
class Bench:
    """A session, and a folder for the checkpoints of each run."""

    spark: SparkSession
    folder: Path
    measured: int
    runs: int = 0
    peaks_mb: dict[int, list[float]] = field(default_factory=dict)

    def ours(self, keys: int) -> float:
        """Rows a second of the engine."""
        with Peak(os.getpid()) as peak:
            found = self._run(self._rows(keys).transform(keyed(Counting(), by=["k"])), keys, "append")
        self.peaks_mb.setdefault(keys, []).append(peak.bytes / 1e6)
        return found

    def native(self, keys: int) -> float:
        """Rows a second of `groupBy().count()`."""
        return self._run(self._rows(keys).groupBy("k").count(), keys, "update")

    def per_key(self, keys: int) -> float:
        """Rows a second of a call for each key; its state is not filled before, which does it no harm."""
        rows = self._rows(keys, PER_KEY_ROWS)
        told = rows.groupBy("k").transformWithStateInPandas(OneKey(), "k long, n long", "update", "none")
        return self._run(told, 0, "update", rows=PER_KEY_ROWS, measured=2)

    def _rows(self, keys: int, rows: int = BATCH_ROWS) -> DataFrame:
        reader = self.spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
        value = F.col("value")
        key = F.when(value < keys, value).otherwise(F.pmod(F.xxhash64(value), F.lit(keys)))
        return reader.option("rowsPerBatch", rows).load().select(key.alias("k"))

    def _run(
        self, frame: DataFrame, keys: int, mode: str, *, rows: int = BATCH_ROWS, measured: int | None = None
    ) -> float:
        self.runs += 1
        filling = -(-keys // rows) + 2
        last = filling + (measured or self.measured)
        writer = frame.writeStream.format("noop").outputMode(mode)
        query = writer.option("checkpointLocation", str(self.folder / str(self.runs))).start()
        try:
            while (query.lastProgress or {"batchId": -1})["batchId"] < last - 1:
                if not query.isActive:
                    raise RuntimeError(query.exception())
                time.sleep(0.05)
            done = [each for each in query.recentProgress if filling <= each["batchId"] < last]
        finally:
            query.stop()
        return statistics.median(rows / each["durationMs"]["triggerExecution"] * 1000 for each in done)


def main() -> None:
    """Run all sizes, and say how each stands to its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="KEYS", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=10, help="measured micro-batches of a run")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    title = headline(f"keyed state, count per key, micro-batches of {BATCH_ROWS:,} rows")
    console.print(f"[bold]{title}[/bold]")
    lines: list[tuple[str, ...]] = []
    figures: dict[str, Any] = {"headline": title, "rows_per_s": {}, "ratios": {}}
    with scratch() as folder:
        spark = session(
            "bench-keyed", master="local[2]", conf={"spark.driver.memory": "1g"}, state_dir=folder / "spark"
        )
        bench = Bench(spark, folder, args.batches)
        bench.ours(1000), bench.native(1000)  # the engines are warm, and loops compiled
        try:
            _measure(bench, args.sizes, args.rounds, lines, figures)
        finally:
            spark.stop()
    kept = [
        Figure.of(
            f"count per key, {keys:,} keys", "k rows/s",
            {OURS: [rate / 1000 for rate in found["ours"]], NATIVE: [rate / 1000 for rate in found["native"]]},
        )
        for keys, found in figures["rows_per_s"].items()
    ]  # fmt: skip
    if "per key" in figures["ratios"]:
        times = {OURS: figures["ratios"]["per key"]}
        kept.append(Figure(f"count per key, {PER_KEY_SIZE:,} keys, as fast as one call a key", "×", times))
    keep("keyed", kept, args.rounds)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    if args.markdown:
        table = ["| | ours | other | ratio | goal |", "|---|--:|--:|--:|---|"]
        table += [f"| {' | '.join(line)} |" for line in lines]
        args.markdown.write_text("\n".join([title, "", *table]) + "\n")


def _measure(
    bench: Bench, sizes: Sequence[int], rounds: int, lines: list[tuple[str, ...]], figures: dict[str, Any]
) -> None:
    costs: dict[int, float] = {}

    def line(*cells: str) -> None:
        lines.append(cells)
        console.print("  ".join(cells))

    for keys in sizes:
        contenders = {"ours": lambda: bench.ours(keys), "native": lambda: bench.native(keys)}  # noqa: B023
        found = alternate_all(contenders, rounds)
        figures["rows_per_s"][keys] = found
        against = compare(found)
        costs[keys] = 1e6 / against.medians["ours"]
        figures["ratios"][f"native {keys}"] = against.ratio
        figures.setdefault("peak_mb", {})[keys] = bench.peaks_mb[keys]
        ours, native = (f"{against.medians[name] / 1000:.0f} k rows/s" for name in ("ours", "native"))
        low, high = against.spread
        peak = f"peak {max(bench.peaks_mb[keys]):.0f} MB with the JVM"
        line(
            f"{keys:,} keys, native",
            ours,
            native,
            f"{against.ratio:.2f}× ({low:.2f}–{high:.2f})",
            _said(against.ratio, NATIVE_GOAL),
        )
        console.print(f"  {peak}")
    if PER_KEY_SIZE in sizes:
        slow = bench.per_key(PER_KEY_SIZE)
        ours = statistics.median(figures["rows_per_s"][PER_KEY_SIZE]["ours"])
        figures["ratios"]["per key"] = ours / slow
        line(
            f"{PER_KEY_SIZE:,} keys, a call a key",
            f"{ours / 1000:.0f} k rows/s",
            f"{slow:.0f} rows/s",
            f"{ours / slow:.0f}×",
            _said(ours / slow, PER_KEY_GOAL),
        )
    if len(sizes) > 1:
        flat = max(costs.values()) / min(costs.values())
        figures["ratios"]["flat"] = flat
        told = " / ".join(f"{cost:.1f}" for cost in costs.values())
        line(
            "µs a row, by keys",
            told,
            "",
            f"{flat:.2f}×",
            f"{'met' if flat <= FLAT_GOAL else 'MISSED'} (goal ≤ {FLAT_GOAL}×)",
        )


def _said(ratio: float, goal: float) -> str:
    return f"{'met' if ratio >= goal else 'MISSED'} (goal ≥ {goal}×)"


if __name__ == "__main__":
    main()
