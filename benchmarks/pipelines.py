"""`make bench-pipelines`: pipelines beside plain PySpark and Flink SQL, on the same topics, in one alternating run.

Rows: `filter` (JSON, filter and project), `tumbling` (JSON, count by user and 10 s of event time), `raw` (read all,
keep nothing), `copy` (topic to topic), at each of `--sizes`; `latency` (from when a record is due until it is read from
the sink's topic, 200 a second), `trigger` (how long a small micro-batch takes).

Options: `--quick` (one round, small, to see that all works), `--only ROW` and `--contender NAME` (may be given several
times), `--sizes N …`, `--rounds N`, `--mode batch` (bounded queries instead of streams run to the end of what there
is), `--broker ours` (on our broker instead of a real Kafka 4.3.1), `--markdown FILE`, `--json FILE` (every figure).

Each contender is a process of its own, which stays for the whole row: its start is reported apart, and at each size the
first run is not counted but its result compared with what must come out, in content and not only in number.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

import pipelines_report as report
from brokers import Contender as Broker
from brokers import fresh
from harness import alternate_all, headline, keep, scratch
from pipelines_data import PARTITIONS, Expected, fill, read_back
from pipelines_latency import PARTITIONS as FED_PARTITIONS
from pipelines_latency import RATE_PER_S, Feed, arrivals
from pipelines_process import Failed, Unavailable, Worker
from pipelines_report import LABELS, Figures, Row

BROKERS = {"kafka": ("kafka", "Apache Kafka 4.3.1"), "ours": ("ours-os", "our broker")}
ROWS = {
    "filter": ("headrace", "spark", "flink"),
    "tumbling": ("headrace", "spark", "spark-2", "flink"),
    "raw": ("headrace", "spark", "flink"),
    "copy": ("headrace", "spark", "flink", "flink-once"),
    "latency": ("headrace", "spark", "real-time"),
    "trigger": ("headrace", "spark"),
}
TITLES = {
    "filter": "JSON filter and project",
    "tumbling": "JSON tumbling count by user",
    "raw": "raw pass-through",
    "copy": "topic to topic",
    "latency": f"produce to sink topic, {RATE_PER_S} records/s",
    "trigger": "a stateless micro-batch",
}
GOALS = {
    "filter": report.FAST_GOALS,
    "tumbling": report.TUMBLING_GOALS,
    "copy": report.SINK_GOALS,
    "trigger": report.TRIGGER_GOALS,
}
console = Console(highlight=False, width=None if os.isatty(1) else 200)


class Plan(NamedTuple):
    """How much is done."""

    sizes: tuple[int, ...]
    rounds: int
    mode: str
    latency_s: float
    warm_up_s: float
    batches: int
    rows: tuple[str, ...]
    contenders: tuple[str, ...]


class Topic(NamedTuple):
    name: str
    expected: Expected


class Bench:
    """The rows, each a generator over its sizes."""

    def __init__(self, plan: Plan, broker: Broker, folder: Path, stack: ExitStack) -> None:
        self.plan = plan
        self._broker = broker
        self._folder = folder
        self._stack = stack
        self._topics: dict[int, Topic] = {}
        self._missing: dict[str, str] = {}
        self._worker_numbers = 0
        self.starts: dict[str, list[Figures]] = {}

    def rows(self) -> Iterator[Row]:
        for name in self.plan.rows:
            with self._workers(name) as workers:
                if not workers:
                    continue
                if name == "latency":
                    yield self._row(name, TITLES[name], report.LATENCY, workers, self._latency)
                elif name == "trigger":
                    yield self._trigger(workers)
                else:
                    for size in self.plan.sizes:
                        yield self._sized(name, size, workers)

    def _sized(self, name: str, size: int, workers: dict[str, Worker]) -> Row:
        topic = self._topic(size)
        run = self._copied if name == "copy" else partial(self._queried, name)
        for worker in workers.values():
            with console.status(f"{name}, {size:,} records: checking what comes out of {LABELS[worker.name]}"):
                if name != "copy":
                    self._verify(worker, name, topic)
                if name == "copy" or size == self.plan.sizes[0]:
                    run(topic, worker)
        title = f"{TITLES[name]}, {size / 1e6:g} M records"
        return self._row(name, title, report.THROUGHPUT, workers, partial(run, topic))

    def _row(
        self,
        name: str,
        title: str,
        metrics: tuple[report.Metric, ...],
        workers: dict[str, Worker],
        run: Callable[[Worker], Figures],
    ) -> Row:
        with console.status(title):
            rounds = alternate_all({each: partial(run, workers[each]) for each in workers}, self.plan.rounds)
        return Row(name, title, metrics, rounds, GOALS.get(name, ()))

    # --- one run

    def _queried(self, name: str, topic: Topic, worker: Worker) -> Figures:
        os.sync()
        where = {"bootstrap": self._broker.address, "topic": topic.name}
        found = worker.measured("query", row=name, mode=self.plan.mode, **where)
        # What a stream's progress says of Spark's sink costs nothing, so every such run is checked again.
        if "rows" in found:
            expected = topic.expected
            wanted = {"filter": expected.passing, "tumbling": expected.windows, "raw": expected.records}[name]
            _check(worker, name, {"rows": found["rows"]}, {"rows": wanted})
        return _throughput(found, topic.expected.records)

    def _verify(self, worker: Worker, name: str, topic: Topic) -> None:
        where = {"bootstrap": self._broker.address, "topic": topic.name}
        found = worker.order("verify", row=name, mode=self.plan.mode, **where)
        _check(worker, name, found, topic.expected._asdict())

    def _copied(self, topic: Topic, worker: Worker) -> Figures:
        with self._broker.topic(PARTITIONS) as sink:
            os.sync()
            where = {"bootstrap": self._broker.address, "topic": topic.name, "sink": sink}
            found = worker.measured("copy", mode=self.plan.mode, **where)
            records, checksum = read_back(self._broker.address, sink)
        wanted = {"records": topic.expected.records, "checksum": topic.expected.checksum}
        _check(worker, "copy", {"records": records, "checksum": checksum}, wanted)
        return _throughput(found, records)

    def _latency(self, worker: Worker) -> Figures:
        address = self._broker.address
        new_topic = partial(self._broker.topic, FED_PARTITIONS)
        with new_topic() as topic, new_topic() as sink, Feed(address, topic):
            worker.order("start_copy", bootstrap=address, topic=topic, sink=sink)
            try:
                return arrivals(address, sink, self.plan.latency_s, self.plan.warm_up_s)
            finally:
                worker.order("stop")

    def _trigger(self, workers: dict[str, Worker]) -> Row:
        details: dict[str, list[dict[str, float]]] = {each: [] for each in workers}

        def run(worker: Worker) -> Figures:
            with self._broker.topic(FED_PARTITIONS) as topic, Feed(self._broker.address, topic):
                worker.order("start_filter", bootstrap=self._broker.address, topic=topic)
                try:
                    found = worker.order("batches", least=self.plan.batches, skipped=10)["durations"]
                finally:
                    worker.order("stop")
            medians = {each: statistics.median(batch.get(each, 0) for batch in found) for each in found[0]}
            details[worker.name].append(medians)
            return {"trigger_ms": medians["triggerExecution"]}

        if self.plan.rounds > 1:
            for worker in workers.values():
                with console.status(f"warming up {LABELS[worker.name]}"):
                    run(worker)
                details[worker.name].clear()
        title = f"{TITLES['trigger']}, median of {self.plan.batches}"
        row = self._row("trigger", title, (report.TRIGGER,), workers, run)
        row.details = details
        return row

    # --- what is needed

    def _topic(self, size: int) -> Topic:
        if size not in self._topics:
            name = self._stack.enter_context(self._broker.topic(PARTITIONS))
            with console.status(f"writing {size:,} records"):
                expected = fill(self._broker.address, name, size)
            each = expected.value_bytes / expected.records
            console.print(
                f"{size:,} records of {each:.0f} bytes, {expected.passing:,} pass, {expected.windows:,} windows"
            )
            self._topics[size] = Topic(name, expected)
        return self._topics[size]

    @contextmanager
    def _workers(self, row: str) -> Iterator[dict[str, Worker]]:
        """The row's contenders, started one after another; those that are not here are named once and left out."""
        workers: dict[str, Worker] = {}
        try:
            for name in ROWS[row]:
                if name in self._missing or (self.plan.contenders and name not in self.plan.contenders):
                    continue
                self._worker_numbers += 1
                try:
                    with console.status(f"starting {LABELS[name]}"):
                        worker = Worker(name, self._folder / f"{self._worker_numbers:02d}-{name}")
                except Unavailable as error:
                    self._missing[name] = str(error)
                    console.print(f"{LABELS[name]} is left out: {error}")
                    continue
                workers[name] = worker
                self.starts.setdefault(name, []).append({"start_s": worker.start_s})
            yield workers
            for worker in workers.values():
                worker.close()
        finally:
            for worker in workers.values():
                worker.kill()


def _throughput(found: dict[str, Any], records: int) -> Figures:
    return {
        **found,
        "records_per_s": records / found["seconds"],
        "cpu_s_per_million": found["cpu_s"] / records * 1e6,
    }


def _check(worker: Worker, row: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in found.items():
        if value != wanted[name]:
            raise Failed(f"{row}: {LABELS[worker.name]} found {name} = {value}, and it is {wanted[name]}")


def _parsed() -> tuple[Plan, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=ROWS, metavar="ROW")
    parser.add_argument("--contender", action="append", choices=LABELS, metavar="NAME")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--mode", choices=("stream", "batch"), default="stream")
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    plan = Plan(
        sizes=tuple(sorted(args.sizes or ([50_000] if args.quick else [500_000, 2_000_000, 5_000_000]))),
        rounds=args.rounds or (1 if args.quick else 5),
        mode=args.mode,
        latency_s=5 if args.quick else 30,
        warm_up_s=3 if args.quick else 15,
        batches=20 if args.quick else 60,
        rows=tuple(args.only or ROWS),
        contenders=tuple(args.contender or ()),
    )
    return plan, args


def main() -> None:
    plan, args = _parsed()
    process, label = BROKERS[args.broker]
    title = headline(f"pipelines on {label}, {plan.mode}")
    console.print(f"[bold]{title}[/bold]")
    if args.quick:
        console.print("quick: the engines are still cold, and their figures say little")
    rows: list[Row] = []
    with scratch() as folder, fresh(process, folder) as broker, ExitStack() as stack:
        bench = Bench(plan, broker, folder, stack)
        for row in bench.rows():
            row.print(console)
            rows.append(row)
        least = min(map(len, bench.starts.values()), default=0)
        if least:
            starts = {name: found[:least] for name, found in bench.starts.items()}
            rows.append(Row("start", "process, JVM and session", (report.START,), starts))
            rows[-1].print(console)
    if not args.quick:
        keep("pipelines", report.figures(rows), plan.rounds)
    if args.markdown:
        args.markdown.write_text(report.markdown(title, rows))
    if args.json:
        report.write_json(args.json, title, rows)


if __name__ == "__main__":
    main()
