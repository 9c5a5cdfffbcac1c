"""`make bench-nexmark`: the queries of Nexmark beside Flink SQL, on the same topics, in one alternating run.

Ours are those of `examples/nexmark/queries.py` as they stand there, into nothing; Flink's SQL is in `nexmark_flink.py`,
into its blackhole; plain PySpark has those without state. Before figures are taken each contender's results are held
against DuckDB's. A figure counts all events, also of topics that a query does not read, as the suite does.

Options: `--quick`, `--only QUERY` and `--contender NAME` (both may be given several times), `--events N` (500,000;
5,000,000 take hours), `--rounds N`, `--markdown FILE`, `--json FILE`.
"""

import argparse
import math
import os
import statistics
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import pipelines_report as report
from broker_report import RECORDS_PER_S
from brokers import fresh
from harness import OURS, ROOT, Figure, alternate_all, headline, keep, scratch
from pipelines_process import Failed, Unavailable, Worker
from pipelines_report import LABELS, Figures, Goal, Row

sys.path.insert(0, str(ROOT / "examples" / "nexmark"))

import answers
import events

ALL = ("headrace", "flink", "spark-2")
STATELESS = ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22")
# Flink drops windows by the clock that are open when a bounded topic ends; what it spends on them is the same.
NOT_VERIFIED = {("q12", "flink")}
NOT_IN_FLINK = {"q6": "Flink SQL has no bounded OVER window over a table that changes"}
QUERIES = [f"q{number}" for number in range(23)]
GOALS = (Goal(RECORDS_PER_S, "flink", 0.7),)  # each; the mean of all 1.2
VERIFIED = 5_000
console = Console(highlight=False, width=None if os.isatty(1) else 200)


def contenders_of(query: str) -> list[str]:
    """Who can be asked it."""
    return [
        name
        for name in ALL
        if (name != "spark-2" or query in STATELESS) and (name != "flink" or query not in NOT_IN_FLINK)
    ]


def measured(worker: Worker, query: str, bootstrap: str, prefix: str, count: int) -> Figures:
    os.sync()
    found = worker.measured("query", query=query, bootstrap=bootstrap, prefix=prefix)
    return {**found, "records_per_s": count / found["seconds"], "cpu_s_per_million": found["cpu_s"] / count * 1e6}


def verify(workers: dict[str, Worker], query: str, oracle: answers.Oracle, bootstrap: str, prefix: str) -> None:
    """Each has to find as many rows as DuckDB, and rows that add up to the same."""
    expected = answers.summed(oracle.expected(query))
    asked = [name for name in workers if (query, name) not in NOT_VERIFIED]
    for name in asked:
        with console.status(f"{query}: what comes out of {LABELS[name]}"):
            found = workers[name].order("verify", query=query, bootstrap=bootstrap, prefix=prefix)
        if found != expected:
            raise Failed(f"{query}: {LABELS[name]} found {found}, DuckDB {expected}")
    console.print(f"{query}: {expected['rows']:,} rows, the same from DuckDB, {', '.join(LABELS[n] for n in asked)}")


def mean_of(rows: list[Row]) -> Figure | None:
    """Our rate to Flink's over all queries that both answer, as Nexmark is summed up."""
    found = {row.name: row.ratio("headrace", "flink", RECORDS_PER_S) for row in rows}
    ratios = [each.ratio for each in found.values() if each is not None]
    if not ratios:
        return None
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    worst = min(ratios)
    said = [f"{'met' if found >= goal else 'MISSED'} {goal:g}×" for found, goal in ((mean, 1.2), (worst, 0.7))]
    console.print(
        f"geometric mean over {len(ratios)} queries: {mean:.2f}× Flink SQL ({said[0]}); the lowest is {worst:.2f}× "
        f"({said[1]})"
    )
    return Figure(f"nexmark, geometric mean of {len(ratios)} queries", "×", {OURS: mean})


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=QUERIES, metavar="QUERY")
    parser.add_argument("--contender", action="append", choices=ALL, metavar="NAME")
    parser.add_argument("--events", type=int, metavar="N")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.events = args.events or (20_000 if args.quick else 500_000)
    args.rounds = args.rounds or (1 if args.quick else 3)
    return args


def main() -> None:
    args = parsed()
    title = headline(f"Nexmark, {args.events:,} events on Apache Kafka 4.3.1")
    console.print(f"[bold]{title}[/bold]")
    rows: list[Row] = []
    with scratch() as folder, fresh("kafka", folder) as broker, ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in args.contender or ALL:
            try:
                with console.status(f"starting {LABELS[name]}"):
                    workers[name] = Worker(name, folder / name, script="nexmark_worker.py")
                stack.callback(workers[name].kill)
            except Unavailable as error:
                console.print(f"{LABELS[name]} is left out: {error}")
        few = events.events(VERIFIED)
        oracle = answers.Oracle(few, folder / "results")
        with console.status("writing events"):
            events.write(broker.address, few, prefix="few-")
            events.write(broker.address, events.arriving(args.events), prefix="all-")
        for query in args.only or QUERIES:
            here = {name: workers[name] for name in contenders_of(query) if name in workers}
            if not here:
                continue
            try:
                verify(here, query, oracle, broker.address, "few-")
                run: dict[str, Any] = {
                    name: partial(measured, worker, query, broker.address, "all-", args.events)
                    for name, worker in here.items()
                }
                with console.status(query):
                    if args.rounds > 1:
                        for warm_up in run.values():  # engines compile what runs often
                            warm_up()
                    rounds = alternate_all(run, args.rounds)
            except Failed as error:
                console.print(f"[red]{error}[/red]")
                continue
            goals = GOALS if "flink" in here else ()
            rows.append(
                Row(query, query, report.THROUGHPUT, rounds, goals, base="flink" if "flink" in here else "headrace")
            )
            rows[-1].print(console)
    mean = mean_of(rows)
    if not args.quick:
        named = [
            figure._replace(name=f"{figure.name}, {args.events / 1e6:g} M events") for figure in report.figures(rows)
        ]
        keep("nexmark", [*named, *([mean] if mean else [])], args.rounds)
    if args.markdown:
        args.markdown.write_text(report.markdown(title, rows))
    if args.json:
        report.write_json(args.json, title, rows)


if __name__ == "__main__":
    main()
