"""`make bench-queues`: queues beside a real Kafka's share groups and a RabbitMQ of Debian, alternating, in one run.

Rows, each with 1, 8 and 32 consumers that acknowledge every message by itself: `through` (messages/s in at one end and
out at the other, while none wait, and while each of `--waiting` do), `latency` (from when a message was due until a
consumer has it, 500 a second), and with 32 consumers `one` (each has one message at a time: from one to its next).
`flat` holds our own rates with many messages waiting against those with none.

Equal durability: `os` has our broker and Kafka wait for no disk. `fsync` has ours sync what is sent and what is
acknowledged before it answers, beside RabbitMQ with persistent messages in durable queues and confirms: it syncs what
is sent before it confirms, some at a time, and what a classic queue's consumers acknowledge it does not sync.

Options: `--quick` (one short round, to see that all works), `--only ROW`, `--contender NAME`, `--durability D`,
`--consumers N …`, `--waiting N …` (1,000,000; a run with 10,000,000 takes an hour), `--rounds N`, `--seconds S`,
`--markdown FILE`, `--json FILE`.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console

import pipelines_report as report
from broker_report import P50, P99, Figures, Metric
from harness import alternate_all, headline, keep, scratch
from pipelines_report import OURS, PEAK, Goal, Row
from queue_load import Contender, QueueLoad, contender

CONTENDERS = {"os": ("headrace", "kafka"), "fsync": ("headrace", "classic", "quorum")}
BASES = {"os": "kafka", "fsync": "classic"}
ROWS = ("through", "latency", "one")
MESSAGES_PER_S = Metric("messages_per_s", "k messages/s", "{:.2f}", 1e-3)
CPU_PER_MESSAGE = Metric("cpu_us_per_message", "CPU µs/message", "{:.1f}")
SERVED = Metric("served", "consumers served", "{:.0f}")
FLAT = 0.9  # of the rate with none waiting
LATENCY_PER_S = 500
console = Console(highlight=False, width=None if os.isatty(1) else 200)


class Bench:
    """The rows of one durability, on brokers that run."""

    def __init__(self, options: argparse.Namespace, durability: str, contenders: Mapping[str, Contender]) -> None:
        self._options = options
        self._durability = durability
        self._contenders = contenders
        self._base = BASES[durability]

    def through(self) -> Iterator[Row]:
        metrics = (MESSAGES_PER_S, CPU_PER_MESSAGE, PEAK, SERVED)
        found: dict[tuple[int, int], list[Figures]] = {}
        for waiting in (0, *self._options.waiting):
            with ExitStack() as stack:
                for each in self._contenders.values():
                    stack.enter_context(each.queue(waiting))
                for consumers in self._options.consumers:
                    where = f"{waiting:,} messages waiting" if waiting else "none waiting"
                    row = self._row("through", f"through a queue, {where}", metrics, consumers, waiting=waiting)
                    found[waiting, consumers] = row.rounds.get(OURS, [])
                    yield row
        for (waiting, consumers), rounds in found.items():
            if waiting and rounds:
                title = f"{waiting:,} messages waiting beside none, {_consumers(consumers)}, {self._durability}"
                sides = {OURS: rounds, "short": found[0, consumers]}
                goals = (Goal(MESSAGES_PER_S, "short", FLAT),)
                yield Row("flat", title, metrics[:3], sides, goals, base="short")

    def latency(self) -> Iterator[Row]:
        with self._queues():
            for consumers in self._options.consumers:
                title = f"sent to received, {LATENCY_PER_S} messages/s"
                yield self._row("latency", title, (P99, P50, CPU_PER_MESSAGE), consumers, rate=LATENCY_PER_S)

    def one(self) -> Iterator[Row]:
        with self._queues():
            consumers = max(self._options.consumers)
            yield self._row(
                "one", "one message at a time", (MESSAGES_PER_S, P99, CPU_PER_MESSAGE), consumers, prefetch=1
            )

    def _queues(self) -> ExitStack:
        stack = ExitStack()
        for each in self._contenders.values():
            stack.enter_context(each.queue(0))
        return stack

    def _row(self, name: str, title: str, metrics: tuple[Metric, ...], consumers: int, **how: int) -> Row:
        runs = {
            each: partial(one.run, consumers, self._options.seconds, **how) for each, one in self._contenders.items()
        }
        title = f"{title}, {_consumers(consumers)}, {self._durability}"
        with console.status(title):
            rounds = alternate_all(runs, self._options.rounds)
        goal = Goal(metrics[0], self._base, 1, at_least=metrics[0] is not P99)
        return Row(name, title, metrics, rounds, (goal,) if len(rounds) > 1 else (), base=self._base)


def _consumers(count: int) -> str:
    return "1 consumer" if count == 1 else f"{count} consumers"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    options = _options().parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds, options.waiting, options.consumers = 1, 1.0, [20_000], [8]
    rows: list[Row] = []
    with scratch() as folder, QueueLoad(folder) as load:
        title = headline("queues beside Apache Kafka 4.3.1 and RabbitMQ 3.10.8")
        console.print(title)
        for durability in options.durability or CONTENDERS:
            with ExitStack() as stack:
                names = [
                    each for each in CONTENDERS[durability] if each in (options.contender or CONTENDERS[durability])
                ]
                running = {each: stack.enter_context(contender(each, durability, folder, load)) for each in names}
                with console.status("warming up"):
                    _warm_up(running, options.seconds)
                bench = Bench(options, durability, running)
                for name in options.only or ROWS:
                    for row in getattr(bench, name)():
                        row.print(console)
                        rows.append(row)
    if not options.quick:
        keep("queues", report.figures(rows), options.rounds)
    if options.markdown:
        options.markdown.write_text(report.markdown(title, rows))
    if options.json:
        report.write_json(options.json, title, rows)


def _warm_up(contenders: Mapping[str, Contender], seconds: float) -> None:
    for each in contenders.values():
        with each.queue(0):
            each.run(8, 2 * seconds)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=ROWS)
    parser.add_argument("--contender", action="append", choices=["headrace", "kafka", "classic", "quorum"])
    parser.add_argument("--durability", action="append", choices=list(CONTENDERS))
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--waiting", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    main()
