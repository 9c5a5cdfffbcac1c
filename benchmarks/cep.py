"""`make bench-cep`: patterns beside Flink CEP and Esper, on the same topic, in one alternating run.

Rows: `relaxed` (two steps within 5 s), `rising` (three rises or more and then a fall, past the last row), `absence`
(one and not the other for 5 s), each over 10, 10⁴ and 10⁶ keys whose events come once a second. Contenders on a topic
of our broker: `match_pattern` on Spark, Flink CEP two tasks wide with its state on the heap and objects used again,
Esper on one thread, its events merged by time. Events are JSON, and may come as late as a hundred others take. And in
memory, in one process, on one core: the plain matcher beside Esper.

The matches of all contenders are counted and compared in content in every run: a figure is of equal results only.
What is per core is the CPU time for a million events. Options: `--quick`, `--only ROW`, `--contender NAME` (both may be
given several times), `--keys N …`, `--rounds N`, `--broker kafka`, `--no-plain`, `--keep`, `--markdown FILE`, `--json
FILE`. Figures are kept only with `--keep`: on a quiet machine.
"""

import argparse
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import pipelines_report as report
from broker_report import Figures, Metric
from brokers import fresh
from cep_events import PARTITIONS, QUESTIONS, Events
from harness import alternate_all, compare, headline, keep, scratch
from pipelines_process import Failed, Unavailable, Worker
from pipelines_report import CPU_PER_MILLION, LABELS, PEAK, WALL, Goal, Row

BROKERS = {"ours": ("ours-os", "our broker"), "kafka": ("kafka", "Apache Kafka 4.3.1")}
ON_A_TOPIC, IN_MEMORY = ("headrace", "flink-cep", "esper"), ("matcher", "esper-one-core")
EVENTS_PER_S = Metric("events_per_s", "events/s", "{:,.0f}")
EVENTS_PER_CPU_S = Metric("events_per_cpu_s", "events/CPU s", "{:,.0f}")
ALL_CORES = (EVENTS_PER_S, EVENTS_PER_CPU_S, CPU_PER_MILLION, WALL, PEAK)
ONE_CORE = (EVENTS_PER_S, WALL, PEAK)
KEYS = (10, 10_000, 1_000_000)
MANY_KEYS = KEYS[-1]
FIRST = Events(100, 10_000)  # run before anything is measured: what is compiled when it is first used, is then
LABELS |= {"flink-cep": "Flink CEP 2.2", "esper": "Esper 9.0", "esper-one-core": "Esper 9.0", "matcher": "Headrace"}
console = Console(highlight=False, width=None if os.isatty(1) else 200)


def events_of(keys: int, *, is_quick: bool, is_plain: bool) -> Events:
    """Each key has two events at least, so that there is something to find in all of them."""
    if is_quick:
        keys = min(keys, 20_000)
        return Events(keys, max(40_000, 2 * keys) if is_plain else max(100_000, 2 * keys))
    if is_plain:
        keys = min(keys, 100_000)
    return Events(keys, max(200_000 if is_plain else 1_000_000, 2 * keys))


def measured(worker: Worker, do: str, events: Events, seen: dict[str, Any], **asked: Any) -> Figures:
    os.sync()
    found = worker.measured(do, keys=events.keys, count=events.count, **asked)
    answer = {name: found[name] for name in ("matches", "checksum")}
    if seen.setdefault("answer", answer) != answer:
        raise Failed(f"{asked}: {worker.name} found {answer}, and another {seen['answer']}")
    return {
        **found,
        "events_per_s": events.count / found["seconds"],
        "events_per_cpu_s": events.count / found["cpu_s"],
        "cpu_s_per_million": found["cpu_s"] / events.count * 1e6,
    }


def run_first(workers: dict[str, Worker], do: str, questions: list[str], **asked: Any) -> None:
    """Each question once on few events."""
    for question in questions:
        seen: dict[str, Any] = {}
        for worker in workers.values():
            with console.status(f"{LABELS[worker.name]}: {QUESTIONS[question].title}"):
                measured(worker, do, FIRST, seen, question=question, **asked)


def row_of(
    name: str,
    title: str,
    metrics: tuple[Metric, ...],
    runs: dict[str, partial[Figures]],
    args: argparse.Namespace,
    *,
    base: str,
    goals: tuple[Goal, ...] = (),
) -> Row:
    """Engines compile what runs often, so the first row of each question warms up."""
    with console.status(title):
        if name.endswith(f" {args.keys[0]}") and not args.quick:
            for warm_up in runs.values():
                warm_up()
        rounds = alternate_all(runs, args.rounds)
    made = Row(name, title, metrics, rounds, goals, base=base if base in runs else next(iter(runs)))
    made.print(console)
    return made


def goals_of(keys: int) -> tuple[Goal, ...]:
    return (Goal(EVENTS_PER_CPU_S, "flink-cep", 2 if keys >= MANY_KEYS else 1),)


def flatness(rows: list[Row]) -> None:
    """What an event costs with the most keys, in relation to the fewest."""
    for question, asked in QUESTIONS.items():
        mine = [row for row in rows if row.name.startswith(f"{question} ")]
        if len(mine) < 2:
            continue
        first, last = mine[0], mine[-1]
        costs = []
        for contender in first.rounds:
            pair = {
                side: [figures["cpu_s_per_million"] for figures in row.rounds[contender]]
                for side, row in (("last", last), ("first", first))
            }
            costs.append(f"{LABELS[contender]} {compare(pair).ratio:.2f}×")
        console.print(
            f"{asked.title}: an event's CPU time in {last.title.split(', ')[-1]} to the fewest: {'; '.join(costs)}"
        )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=QUESTIONS, metavar="ROW")
    parser.add_argument("--contender", action="append", choices={*ON_A_TOPIC, *IN_MEMORY}, metavar="NAME")
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS, metavar="N")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--broker", choices=BROKERS, default="ours")
    parser.add_argument("--no-plain", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.only = args.only or list(QUESTIONS)
    return args


def started(names: tuple[str, ...], args: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Worker]:
    workers: dict[str, Worker] = {}
    for name in names:
        if args.contender and name not in args.contender:
            continue
        try:
            with console.status(f"starting {LABELS[name]}"):
                workers[name] = Worker(name, folder / name, script="cep_worker.py")
            stack.callback(workers[name].kill)
        except Unavailable as error:
            console.print(f"{LABELS[name]} is left out: {error}")
    return workers


def on_a_topic(args: argparse.Namespace, folder: Path) -> list[Row]:
    process, _ = BROKERS[args.broker]
    rows: list[Row] = []
    with fresh(process, folder) as broker, ExitStack() as stack:
        workers = started(ON_A_TOPIC, args, folder, stack)
        topic = stack.enter_context(broker.topic(PARTITIONS))
        FIRST.fill(broker.address, topic)
        run_first(workers, "query", args.only, bootstrap=broker.address, topic=topic)
        for keys in args.keys if workers else ():
            events = events_of(keys, is_quick=args.quick, is_plain=False)
            topic = stack.enter_context(broker.topic(PARTITIONS))
            with console.status(f"writing {events.count:,} events of {events.keys:,} keys"):
                events.fill(broker.address, topic)
            for name in args.only:
                title = f"{QUESTIONS[name].title}, {events.keys:,} keys"
                asked = {"question": name, "bootstrap": broker.address, "topic": topic}
                seen: dict[str, Any] = {}
                runs = {
                    each: partial(measured, worker, "query", events, seen, **asked) for each, worker in workers.items()
                }
                goals = goals_of(keys)
                rows.append(row_of(f"{name} {keys}", title, ALL_CORES, runs, args, base="flink-cep", goals=goals))
    flatness(rows)
    return rows


def in_memory(args: argparse.Namespace, folder: Path) -> list[Row]:
    rows: list[Row] = []
    with ExitStack() as stack:
        workers = started(IN_MEMORY, args, folder, stack)
        FIRST.write(folder / "first")
        run_first(workers, "plain", args.only, file=str(folder / "first"))
        for keys in args.keys if workers else ():
            events = events_of(keys, is_quick=args.quick, is_plain=True)
            file = folder / f"events-{keys}"
            events.write(file)
            for name in args.only:
                title = f"{QUESTIONS[name].title}, in memory, {events.keys:,} keys"
                seen: dict[str, Any] = {}
                runs = {
                    each: partial(measured, worker, "plain", events, seen, question=name, file=str(file))
                    for each, worker in workers.items()
                }
                rows.append(row_of(f"in memory, {name} {keys}", title, ONE_CORE, runs, args, base="esper-one-core"))
    return rows


def main() -> None:
    args = parsed()
    title = headline(f"patterns on {BROKERS[args.broker][1]}")
    console.print(f"[bold]{title}[/bold]")
    with scratch() as folder:
        rows = on_a_topic(args, folder)
        plain = [] if args.no_plain else in_memory(args, folder)
    if args.keep:
        keep("cep", report.figures([*rows, *plain]), args.rounds)
    if args.markdown:
        args.markdown.write_text(report.markdown(title, [*rows, *plain]))
    if args.json:
        report.write_json(args.json, title, [*rows, *plain])


if __name__ == "__main__":
    main()
