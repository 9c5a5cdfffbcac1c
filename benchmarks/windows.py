"""`make bench-windows`: windows beside Spark's own and Flink SQL's, on the same topic, in one alternating run.

Rows: `tumbling` (10 s), `hopping` (60 s every second: 60 panes), `session` (gap 1 s), `session-corrected` (the same
with late rows corrected, which is what runs on keyed state; the others have plain sessions), `sliding` (for every
record those of its user in the 10 s before it; beside Flink) and `sliding-joined` (the same on 50,000 records beside
plain PySpark, which has to join the stream with itself); each a count and a sum by one of 1,000 users, as a stream in
batches of 500,000 records. Contenders: our operators; `native`, Spark's own functions on our session and source, so
that only the operators differ; PySpark with its own connector and two shuffle partitions; Flink SQL.

Options: `--quick`, `--only ROW`, `--contender NAME` (both may be given several times), `--sizes N …`, `--rounds N`,
`--broker ours`, `--markdown FILE`, `--json FILE`. Before figures are taken, results are compared in content.
"""

import argparse
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import pipelines_report as report
from broker_report import RECORDS_PER_S
from brokers import fresh
from harness import alternate_all, headline, keep, scratch
from pipelines_data import PARTITIONS, fill
from pipelines_process import Failed, Unavailable, Worker
from pipelines_report import LABELS, Figures, Goal, Row

BROKERS = {"kafka": ("kafka", "Apache Kafka 4.3.1"), "ours": ("ours-os", "our broker")}
ALL = ("headrace", "native", "spark-2", "flink")
TITLES = {
    "tumbling": "tumbling, 10 s",
    "hopping": "hopping, 60 s every 1 s",
    "session": "sessions, gap 1 s",
    "session-corrected": "sessions with corrections, gap 1 s",
    "sliding": "sliding, 10 s before each",
    "sliding-joined": "sliding, beside a join of the stream with itself",
}
# Spark's join compares each record with all that are kept of its user, so it gets few, and Flink has its own row.
CONTENDERS = {"sliding": ("headrace", "flink"), "sliding-joined": ("headrace", "native", "spark-2")}
LARGEST = {"sliding-joined": 50_000}
GOALS = {"hopping": (Goal(RECORDS_PER_S, "native", 5), Goal(RECORDS_PER_S, "spark-2", 5))}
VERIFIED = 20_000  # records in the topic on which results are compared
# A record is in sixty windows, and Flink hands its results over one by one: a thousand a second.
VERIFIED_FEW = {"hopping": 1_000}
console = Console(highlight=False, width=None if os.isatty(1) else 200)


def measured(worker: Worker, row: str, where: dict[str, str], records: int) -> Figures:
    os.sync()
    found = worker.measured("query", row=row, **where)
    return {
        **found,
        "records_per_s": records / found["seconds"],
        "cpu_s_per_million": found["cpu_s"] / records * 1e6,
    }


def verify(workers: dict[str, Worker], row: str, where: dict[str, str]) -> None:
    """All have to agree on every result."""
    answers: dict[str, dict[str, Any]] = {}
    for name, worker in workers.items():
        with console.status(f"{row}: what comes out of {LABELS[name]}"):
            answers[name] = worker.order("verify", row=row, **where)
    first, *others = answers
    for name in others:
        if answers[name] != answers[first]:
            raise Failed(f"{row}: {LABELS[first]} found {answers[first]}, {LABELS[name]} found {answers[name]}")
    console.print(
        f"{row}: {answers[first]['results']:,} results, the same from {', '.join(LABELS[n] for n in answers)}"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=TITLES, metavar="ROW")
    parser.add_argument("--contender", action="append", choices=ALL, metavar="NAME")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.sizes = sorted(args.sizes or ([50_000] if args.quick else [500_000, 2_000_000]))
    args.rounds = args.rounds or (1 if args.quick else 3)
    return args


def main() -> None:
    args = parsed()
    process, label = BROKERS[args.broker]
    title = headline(f"windows on {label}")
    console.print(f"[bold]{title}[/bold]")
    rows: list[Row] = []
    with scratch() as folder, fresh(process, folder) as broker, ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in args.contender or ALL:
            try:
                with console.status(f"starting {LABELS[name]}"):
                    workers[name] = Worker(name, folder / name, script="windows_worker.py")
                stack.callback(workers[name].kill)
            except Unavailable as error:
                console.print(f"{LABELS[name]} is left out: {error}")
        topics = {}
        wanted = {min(size, most) for size in args.sizes for most in (size, *LARGEST.values())}
        for size in sorted({VERIFIED, *VERIFIED_FEW.values(), *wanted}):
            topic = stack.enter_context(broker.topic(PARTITIONS))
            with console.status(f"writing {size:,} records"):
                topics[size] = (
                    {"bootstrap": broker.address, "topic": topic},
                    fill(broker.address, topic, size).records,
                )
        for name in args.only or TITLES:
            here = {each: worker for each, worker in workers.items() if each in CONTENDERS.get(name, ALL)}
            if not here:
                continue
            verify(here, name, topics[VERIFIED_FEW.get(name, VERIFIED)][0])
            for size in sorted({min(size, LARGEST.get(name, size)) for size in args.sizes}):
                where, records = topics[size]
                run = {each: partial(measured, worker, name, where, records) for each, worker in here.items()}
                with console.status(f"{TITLES[name]}, {size:,} records"):
                    if args.rounds > 1 and size == args.sizes[0]:
                        for warm_up in run.values():  # engines compile what runs often
                            warm_up()
                    rounds = alternate_all(run, args.rounds)
                base = next(each for each in ("native", "flink", *here) if each in here)
                made = Row(
                    name, f"{TITLES[name]}, {size / 1e6:g} M", report.THROUGHPUT, rounds, GOALS.get(name, ()), base=base
                )
                made.print(console)
                rows.append(made)
    if not args.quick:
        keep("windows", report.figures(rows), args.rounds)
    if args.markdown:
        args.markdown.write_text(report.markdown(title, rows))
    if args.json:
        report.write_json(args.json, title, rows)


if __name__ == "__main__":
    main()
