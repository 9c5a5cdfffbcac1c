"""`make bench-cores`: how each part grows from one core to two.

Everything of a part — the broker, its load, Spark with its workers, the database — is confined to one core, as by
`taskset -c 0`, or may use two; both run side by side and take turns. A ratio of two is a part that a second core makes
twice as fast; where it is less, the processor seconds say whether the second core had nothing to do, or more.

Options: `--quick` (less of everything, to see that it runs), `--only PART` (may be given several times), `--rounds N`.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

import broker_load as load
import joins_data
import pipelines_data
from broker_wire import make_batch
from brokers import Contender as Broker
from brokers import fresh
from cdc import Bench as CaptureBench
from cdc_contenders import CAPTURES
from cdc_database import database
from harness import OURS, Figure, alternate_all, headline, keep, scratch
from pipelines_process import Worker

KIB = 1024
TWO, ONE = OURS, "on one core"
Figures = dict[str, float]
Run = Callable[[], Figures]
console = Console(highlight=False, width=None if os.isatty(1) else 160)


@contextmanager
def confined(cores: set[int]) -> Iterator[None]:
    """What this process and those that it starts meanwhile may run on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Machine:
    """One part with all that it needs, on so many cores."""

    def __init__(self, folder: Path, cores: set[int], stack: ExitStack, *, is_quick: bool) -> None:
        self._folder = folder
        self._cores = cores
        self._stack = stack
        self._is_quick = is_quick

    def prepared(self, part: str) -> Run:
        """Start what a part needs, and hand over what measures it."""
        with confined(self._cores):
            self._folder.mkdir(parents=True)
            run: Run = getattr(self, PARTS[part])(self._stack.enter_context(fresh("ours-os", self._folder)), part)
        return partial(self._run, run)

    def _run(self, run: Run) -> Figures:
        os.sync()
        with confined(self._cores):
            return run()

    def produce(self, broker: Broker, _: str) -> Run:
        batch = make_batch(64 * KIB, KIB)
        seconds = 0.5 if self._is_quick else 4.0
        return lambda: _megabytes(load.produce(broker, batch, 1, seconds))

    def fetch(self, broker: Broker, _: str) -> Run:
        batch = make_batch(64 * KIB, KIB)
        seconds = 0.5 if self._is_quick else 4.0
        topic = self._stack.enter_context(load.filled_topic(broker, batch, 300_000_000))
        return lambda: _megabytes(load.fetch(broker, topic, batch, 1, seconds))

    def pipeline(self, broker: Broker, part: str) -> Run:
        row = {"filter": "filter", "tumbling": "tumbling", "copy": "copy"}[part]
        topic = self._stack.enter_context(broker.topic(pipelines_data.PARTITIONS))
        records = pipelines_data.fill(broker.address, topic, 50_000 if self._is_quick else 2_000_000).records
        worker = self._worker("pipelines_worker.py")
        where = {"bootstrap": broker.address, "topic": topic}
        if row == "copy":
            return partial(self._copied, worker, broker, where, records)
        return lambda: _records(worker.measured("query", row=row, mode="stream", **where), records)

    def windows(self, broker: Broker, _: str) -> Run:
        topic = self._stack.enter_context(broker.topic(pipelines_data.PARTITIONS))
        records = pipelines_data.fill(broker.address, topic, 50_000 if self._is_quick else 1_000_000).records
        worker = self._worker("windows_worker.py")
        where = {"bootstrap": broker.address, "topic": topic}
        return lambda: _records(worker.measured("query", row="hopping", **where), records)

    def joins(self, broker: Broker, _: str) -> Run:
        topics = {
            name: self._stack.enter_context(broker.topic(joins_data.PARTITIONS))
            for name in ("sales", "customers", "orders")
        }
        made = joins_data.fill(broker.address, topics, 20_000 if self._is_quick else 500_000)
        worker = self._worker("joins_worker.py")
        where = {"bootstrap": broker.address, "topics": topics}
        return lambda: _records(worker.measured("query", row="tables", **where), made.records("tables"))

    def capture(self, broker: Broker, _: str) -> Run:
        bench = CaptureBench(broker, self._stack.enter_context(database(self._folder)), self._folder)
        size = 20_000 if self._is_quick else 300_000
        return lambda: {"k changes/s": bench.streaming(CAPTURES["headrace"], size)["changes_per_s"] / 1e3}

    def _worker(self, script: str) -> Worker:
        worker = Worker("headrace", self._folder / "worker", script=script)
        self._stack.callback(worker.kill)
        return worker

    @staticmethod
    def _copied(worker: Worker, broker: Broker, where: dict[str, str], records: int) -> Figures:
        with broker.topic(pipelines_data.PARTITIONS) as sink:
            return _records(worker.measured("copy", mode="stream", **where, sink=sink), records)


PARTS = {
    "produce": "produce",
    "fetch": "fetch",
    "filter": "pipeline",
    "tumbling": "pipeline",
    "copy": "pipeline",
    "hopping": "windows",
    "tables": "joins",
    "capture": "capture",
}
TITLES = {
    "produce": "produce 64 KiB batches, acks=1, os, with its load",
    "fetch": "fetch 64 KiB at a time, with its load",
    "filter": "JSON filter and project",
    "tumbling": "JSON tumbling count by user",
    "copy": "topic to topic, exactly once",
    "hopping": "hopping windows, 60 s every 1 s",
    "tables": "two tables joined, with retractions",
    "capture": "a backlog of changes of PostgreSQL, with the database",
}


def _megabytes(run: load.Run) -> Figures:
    gigabytes = run.size_bytes / 1e9
    return {"MB/s": gigabytes * 1e3 / run.seconds, "CPU s/GB": run.broker_cpu_seconds / gigabytes}


def _records(found: dict[str, float], records: int) -> Figures:
    return {
        "k records/s": records / found["seconds"] / 1e3,
        "CPU s/M records, without the broker": found["cpu_s"] / records * 1e6,
    }


def measured(part: str, rounds: int, *, is_quick: bool) -> Iterator[Figure]:
    """A part on two cores and on one, in turn, after one uncounted run of each."""
    with scratch() as folder, ExitStack() as stack:
        runs = {}
        for name, cores in ((TWO, {0, 1}), (ONE, {0})):
            with console.status(f"{TITLES[part]}: {name}"):
                machine = Machine(folder / str(len(cores)), cores, stack, is_quick=is_quick)
                runs[name] = machine.prepared(part)
                runs[name]()
        with console.status(TITLES[part]):
            found = alternate_all(runs, rounds)
    for unit in found[TWO][0]:
        yield Figure.of(TITLES[part], unit, {name: [each[unit] for each in all_] for name, all_ in found.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 3)
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("this machine has one core, and there is nothing to compare")
    console.print(f"[bold]{headline('one core and two')}[/bold]")
    figures: list[Figure] = []
    for part in args.only or PARTS:
        for figure in measured(part, rounds, is_quick=args.quick):
            figures.append(figure)
            two, one = figure.values[TWO], figure.values[ONE]
            console.print(
                f"{figure.name}, {figure.unit}: {two:.4g} on two, {one:.4g} on one: {figure.ratios[ONE]:.2f}×"
            )
        if not args.quick:
            keep("cores", figures, rounds)


if __name__ == "__main__":
    main()
