"""`make bench-joins`: joins of a stream with a table and of two tables, beside Flink SQL and beside a call a key.

Rows on the topics of a real Kafka, in one alternating run with Flink SQL: `as-of` (each sale with its customer as of
the sale's own time: `enrich`, FOR SYSTEM_TIME AS OF) and `tables` (orders with their customers, both changing, with
what was told before taken back: `join_tables`, a regular join). A figure counts the records of both topics. Before
figures are taken, results are compared in content.

Rows made in memory: `as-of-keys` and `tables-keys`, the same operators over 10,000 to 1,000,000 keys, where a change
must cost the same, and beside a call for each key at 100,000.

Options: `--quick`, `--only ROW` (may be given several times), `--sizes N …` (sales and order changes), `--keys N …`,
`--rounds N`, `--markdown FILE`, `--json FILE`.
"""

import argparse
import json
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HEADRACE_SPARK_ARCHIVE", "0")

from rich.console import Console

import joins_report
import pipelines_report as report
from broker_report import RECORDS_PER_S
from brokers import fresh
from harness import alternate_all, headline, keep, scratch
from joins_data import PARTITIONS, Sizes, fill
from pipelines_process import Failed, Unavailable, Worker
from pipelines_report import LABELS, Figures, Goal, Row

TITLES = {"as-of": "as of event time", "tables": "two tables, with retractions"}
KEYED = {"as-of-keys": "as-of", "tables-keys": "tables"}
GOALS = (Goal(RECORDS_PER_S, "flink", 1),)
TOPICS = ("sales", "customers", "orders")
VERIFIED = 20_000  # sales in the topics on which results are compared
Where = dict[str, Any]
console = Console(highlight=False, width=None if os.isatty(1) else 200)


def measured(worker: Worker, row: str, where: Where, records: int) -> Figures:
    os.sync()
    found = worker.measured("query", row=row, **where)
    return {
        **found,
        "records_per_s": records / found["seconds"],
        "cpu_s_per_million": found["cpu_s"] / records * 1e6,
    }


def verify(workers: dict[str, Worker], row: str, where: Where) -> None:
    """All have to agree on the whole result."""
    answers = {}
    for name, worker in workers.items():
        with console.status(f"{row}: what comes out of {LABELS[name]}"):
            answers[name] = worker.order("verify", row=row, **where)
    first, *others = answers
    for name in others:
        if answers[name] != answers[first]:
            raise Failed(f"{row}: {LABELS[first]} found {answers[first]}, {LABELS[name]} found {answers[name]}")
    told = ", ".join(LABELS[name] for name in answers)
    console.print(f"{row}: {answers[first]['results']:,} rows in the end, the same from {told}")


def on_topics(args: argparse.Namespace, wanted: list[str]) -> list[Row]:
    """The rows beside Flink."""
    rows: list[Row] = []
    with scratch() as folder, fresh("kafka", folder) as broker, ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in ("headrace", "flink"):
            try:
                with console.status(f"starting {LABELS[name]}"):
                    workers[name] = Worker(name, folder / name, script="joins_worker.py")
                stack.callback(workers[name].kill)
            except Unavailable as error:
                console.print(f"{LABELS[name]} is left out: {error}")
        filled: dict[int, tuple[Where, Sizes]] = {}
        for size in sorted({VERIFIED, *args.sizes}):
            topics = {name: stack.enter_context(broker.topic(PARTITIONS)) for name in TOPICS}
            with console.status(f"writing {size:,} sales, and the tables"):
                filled[size] = {"bootstrap": broker.address, "topics": topics}, fill(broker.address, topics, size)
        for name in wanted:
            verify(workers, name, filled[VERIFIED][0])
            for size in args.sizes:
                where, made = filled[size]
                records = made.records(name)
                run = {each: partial(measured, worker, name, where, records) for each, worker in workers.items()}
                with console.status(f"{TITLES[name]}, {records:,} records"):
                    if args.rounds > 1 and size == args.sizes[0]:
                        for warm_up in run.values():  # engines compile what runs often
                            warm_up()
                    rounds = alternate_all(run, args.rounds)
                title = f"{TITLES[name]}, {records / 1e6:g} M, {made.customers:,} keys"
                rows.append(Row(name, title, report.THROUGHPUT, rounds, GOALS, base=next(reversed(workers))))
                rows[-1].print(console)
    return rows


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=[*TITLES, *KEYED], metavar="ROW")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N")
    parser.add_argument("--keys", type=int, nargs="+", metavar="N")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.sizes = sorted(args.sizes or ([50_000] if args.quick else [500_000, 2_000_000]))
    args.keys = sorted(args.keys or ([10_000, 100_000] if args.quick else [10_000, 100_000, 1_000_000]))
    args.rounds = args.rounds or (1 if args.quick else 3)
    return args


def main() -> None:
    args = parsed()
    title = headline("joins on Apache Kafka 4.3.1 and in memory")
    console.print(f"[bold]{title}[/bold]")
    wanted = args.only or [*TITLES, *KEYED]
    topics = [name for name in wanted if name in TITLES]
    rows = on_topics(args, topics) if topics else []
    keyed = {name: KEYED[name] for name in wanted if name in KEYED}
    found = joins_report.over_keys(keyed, args.keys, args.rounds, console) if keyed else []
    if not args.quick:
        keep("joins", [*report.figures(rows), *joins_report.figures(found)], args.rounds)
    if args.markdown:
        args.markdown.write_text(
            "\n".join(
                filter(None, [report.markdown(title, rows) if rows else f"{title}\n", joins_report.markdown(found)])
            )
        )
    if args.json:
        report.write_json(args.json, title, rows)
        args.json.write_text(json.dumps(json.loads(args.json.read_text()) | {"keys": [each.figures for each in found]}))


if __name__ == "__main__":
    main()
