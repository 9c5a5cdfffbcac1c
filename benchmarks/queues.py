"""`make bench-queues`: queues beside a real Kafka's share groups and a RabbitMQ of Debian, alternating, in one run.

Rows, each with 1, 8 and 32 consumers that acknowledge every message by itself: `through` (messages/s in at one end and
out at the other, while none wait, and while each of `--waiting` do), `latency` (from when a message was due until a
consumer has it, 500 a second), and with 32 consumers `one` (each has one message at a time: from one to its next).
`flat` holds our own rates with many messages waiting against those with none.

Equal durability: `os` has our broker and Kafka wait for no disk. `fsync` has ours sync what is sent and what is
acknowledged before it answers, beside RabbitMQ with persistent messages in durable queues and confirms: it syncs what
is sent before it confirms, some at a time, and what a classic queue's consumers acknowledge it does not sync.

Where messages wait, as many wait all the time: receivers that are faster than the sender wait for it. Members of a
share group whose partition moves cannot acknowledge what they have of it (Java's client refuses to): such messages come
again, and are not counted; more than one in a hundred of them fail the run.

A whole run takes less than 20 minutes. Each row is kept in `.cache/bench/queues.json` as soon as it is measured, and
`--resume` goes on behind the rows that a run with the same options has kept there. Nothing else may run meanwhile.

Options: `--quick` (one short round, to see that all works), `--resume`, `--only ROW`, `--contender NAME`,
`--durability D`, `--consumers N …`, `--waiting N …` (1,000,000; one with 10,000,000 takes an hour more), `--rounds N`,
`--seconds S`, `--markdown FILE`, `--json FILE`.
"""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from rich.console import Console

import pipelines_report as report
from broker_report import P50, P99, Figures, Metric
from harness import CACHE, alternate_all, headline, keep, scratch
from pipelines_report import OURS, PEAK, Goal, Row
from queue_load import PREFETCH, Contender, QueueLoad, contender

CONTENDERS = {"os": ("headrace", "kafka"), "fsync": ("headrace", "classic", "quorum")}
BASES = {"os": "kafka", "fsync": "classic"}
ROWS = ("through", "latency", "one")
MESSAGES_PER_S = Metric("messages_per_s", "k messages/s", "{:.2f}", 1e-3)
CPU_PER_MESSAGE = Metric("cpu_us_per_message", "CPU µs/message", "{:.1f}")
SERVED = Metric("served", "consumers served", "{:.0f}")
FLAT = 0.9  # of the rate with none waiting
LATENCY_PER_S = 500
console = Console(highlight=False, width=None if os.isatty(1) else 200)


class Spec(NamedTuple):
    """What a row measures: on which queue, and how."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    durability: str
    consumers: int
    waiting: int = 0
    rate: int = 0
    prefetch: int = PREFETCH


def plan(options: argparse.Namespace) -> list[Spec]:
    """All rows, in the order in which they are measured."""
    through = (MESSAGES_PER_S, CPU_PER_MESSAGE, PEAK, SERVED)
    latency = (P99, P50, CPU_PER_MESSAGE)
    specs = []
    for durability in options.durability or CONTENDERS:
        for waiting in (0, *options.waiting):
            for count in options.consumers:
                where = f"{waiting:,} messages waiting" if waiting else "none waiting"
                title = _title(f"through a queue, {where}", count, durability)
                # Of messages that waited nobody knows for how long, and so not who was served either.
                metrics = through[:3] if waiting else through
                specs.append(Spec("through", title, metrics, durability, count, waiting))
        for count in options.consumers:
            title = _title(f"sent to received, {LATENCY_PER_S} messages/s", count, durability)
            specs.append(Spec("latency", title, latency, durability, count, rate=LATENCY_PER_S))
        count = max(options.consumers)
        title = _title("one message at a time", count, durability)
        specs.append(Spec("one", title, (MESSAGES_PER_S, P99, CPU_PER_MESSAGE), durability, count, prefetch=1))
    return [spec for spec in specs if spec.name in (options.only or ROWS)]


def _title(what: str, consumers: int, durability: str) -> str:
    return f"{what}, {'1 consumer' if consumers == 1 else f'{consumers} consumers'}, {durability}"


class Kept:
    """The rounds of rows that were measured, by title: kept in a file, so that a run that was cut off can go on."""

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        self._path = path
        self._how = f"{options.rounds} rounds of {options.seconds} s, {options.contender or 'all'}"
        kept = json.loads(path.read_text()) if options.resume and path.exists() else {}
        self.rounds: dict[str, dict[str, list[Figures]]] = kept["rows"] if kept.get("how") == self._how else {}

    def add(self, spec: Spec, rounds: dict[str, list[Figures]]) -> None:
        self.rounds[spec.title] = rounds
        self._path.write_text(json.dumps({"how": self._how, "rows": self.rounds}))

    def row(self, spec: Spec) -> Row:
        rounds = self.rounds[spec.title]
        goal = Goal(spec.metrics[0], BASES[spec.durability], 1, at_least=spec.metrics[0] is not P99)
        goals = (goal,) if len(rounds) > 1 else ()
        return Row(spec.name, spec.title, spec.metrics, rounds, goals, base=BASES[spec.durability])

    def flat(self, spec: Spec, specs: Sequence[Spec]) -> Row | None:
        """A row of ours with many messages waiting beside the one with none."""
        none_waiting = _title("through a queue, none waiting", spec.consumers, spec.durability)
        short = next((each for each in specs if spec.waiting and each.title == none_waiting), None)
        if short is None or OURS not in self.rounds[spec.title]:
            return None
        title = _title(f"{spec.waiting:,} messages waiting beside none", spec.consumers, spec.durability)
        sides = {OURS: self.rounds[spec.title][OURS], "short": self.rounds[short.title][OURS]}
        return Row("flat", title, spec.metrics[:3], sides, (Goal(MESSAGES_PER_S, "short", FLAT),), base="short")


class Progress:
    """Says before each row what is measured, and about how long the rest takes."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._done = 0
        self._began_s = monotonic()

    def begin(self, spec: Spec) -> None:
        left = self._rows - self._done
        each_s = (monotonic() - self._began_s) / self._done if self._done else 0.0
        rest = f", about {left * each_s / 60:.0f} min left" if each_s else ""
        self._done += 1
        console.print(f"[{self._done}/{self._rows}{rest}] {spec.title}", markup=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    options = _options().parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds, options.waiting, options.consumers = 1, 1.0, [20_000], [8]
    specs = plan(options)
    with scratch() as folder:
        kept = Kept(CACHE / "queues.json", options)
        title = headline("queues beside Apache Kafka 4.3.1 and RabbitMQ 3.10.8")
        console.print(title)
        measure([spec for spec in specs if spec.title not in kept.rounds], kept, options, folder)
    rows = [kept.row(spec) for spec in specs]
    flat = [row for spec in specs if (row := kept.flat(spec, specs))]
    for row in flat:
        row.print(console)
    rows += flat
    if not options.quick and not options.contender:  # one by itself is for finding causes
        keep("queues", report.figures(rows), options.rounds)
    if options.markdown:
        options.markdown.write_text(report.markdown(title, rows))
    if options.json:
        report.write_json(options.json, title, rows)


def measure(specs: Sequence[Spec], kept: Kept, options: argparse.Namespace, folder: Path) -> None:
    """Measure rows, on brokers that run for all of the same durability, and print each."""
    progress = Progress(len(specs))
    for durability, of_one in groupby(specs, lambda spec: spec.durability):
        with ExitStack() as stack:
            load = stack.enter_context(QueueLoad(folder))
            names = [each for each in CONTENDERS[durability] if each in (options.contender or CONTENDERS[durability])]
            running = {each: stack.enter_context(contender(each, durability, folder, load)) for each in names}
            for each in running.values():  # warm it up
                with each.queue(0):
                    each.run(8, 2 * options.seconds)
            for (_, waiting), of_queue in groupby(of_one, lambda spec: (spec.name, spec.waiting)):
                with ExitStack() as queues:
                    for each in running.values():
                        queues.enter_context(each.queue(waiting))
                    for spec in of_queue:
                        progress.begin(spec)
                        kept.add(spec, alternate_all(_runs(spec, running, options.seconds), options.rounds))
                        kept.row(spec).print(console)


def _runs(spec: Spec, contenders: Mapping[str, Contender], seconds: float) -> dict[str, Callable[[], Figures]]:
    how = {"waiting": spec.waiting, "rate": spec.rate, "prefetch": spec.prefetch}
    return {name: partial(each.run, spec.consumers, seconds, **how) for name, each in contenders.items()}


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--only", action="append", choices=ROWS)
    parser.add_argument("--contender", action="append", choices=["headrace", "kafka", "classic", "quorum"])
    parser.add_argument("--durability", action="append", choices=list(CONTENDERS))
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--waiting", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    main()
