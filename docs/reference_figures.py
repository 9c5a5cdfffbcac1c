"""The page of figures, and the ten in README: made from what the benchmarks keep in `benchmarks/results/`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
OURS = "Headrace"
MARKS = ("<!-- figures: made by docs/generate.py from benchmarks/results -->", "<!-- figures end -->")


class Benchmark(NamedTuple):
    """What is said about the figures of one file."""

    title: str
    about: str


BENCHMARKS = {
    "broker": Benchmark(
        "The broker beside Apache Kafka 4.3.1",
        """\
`make bench-broker`. Side by side in one alternating run, Kafka warmed up until its cost per GB stopped falling; load
from prebuilt frames over two connections. `os` is without a sync, `fsync` with one before each answer.

Large fetches are slower than Kafka's, and cost more ([what was tried](decisions/0004-raw-sockets.md)). One thread reads
requests, appends and writes what groups commit, so commits at such a rate take their share of a produce load that would
use all of it.

The good client produces 200 records of 1 KiB a second and reads each back, counted from when it was due; beside hostile
clients it is held against itself alone. They are one process with nice 19 and the rate that is named. The goal is a p99
of at most twice that of the client alone. It is missed where a ratio is above 2: beside three of the five kinds of
*legal requests*, which take the broker's time (only a quota bounds that, and here there is none), and beside large
frames that come half. `RssAnon` is the memory of the broker's own, which [its limits](reference/limits.md) bound.""",
    ),
    "log": Benchmark(
        "The log against the disk",
        """\
`make bench-log`. The log itself beside plain `pwritev` and `pread` loops over the same bytes.""",
    ),
    "pipelines": Benchmark(
        "Pipelines beside plain PySpark and Flink SQL 2.2",
        """\
`make bench-pipelines`. On the same topics of a real Kafka 4.3.1: Spark's own connector with `from_json`, and Flink
SQL. JSON records of 98 bytes; the start of the query is included, which is a second and more of each. Plain PySpark
shuffles into 200 partitions; told to take 2, as everybody does on a small machine, it is faster, and stands in a
column of its own. Real-time mode is for queries without state, through Spark's own connector.""",
    ),
    "first": Benchmark(
        "The first result",
        """\
`make bench-first`. Seconds from the command to the first result, on two cores that have nothing else to do: one job
without state, beside a script of plain PySpark that does the same at least once; and `headrace up` on the shop of `make
demo`, with its database, change capture, derived systems and dashboard, until every job and view has its first row. The
goals are 6 and 15 seconds.""",
    ),
    "keyed": Benchmark(
        "Keyed state",
        """\
`make bench-keyed`. Counting per key in micro-batches of 200,000 rows.""",
    ),
    "windows": Benchmark(
        "Windows beside PySpark and Flink SQL",
        """\
`make bench-windows`. On topics of a real Kafka 4.3.1. Spark's own windows over our source are a column of their own:
plain tumbling windows and sessions are Spark's own plan.""",
    ),
    "groups": Benchmark(
        "Groups of a table",
        """\
`make bench-groups`. The same question asked of a table's groups and of a window.""",
    ),
    "nexmark": Benchmark(
        "Nexmark beside Flink SQL",
        """\
`make bench-nexmark`. The queries of `examples/nexmark/` as they stand there and Flink SQL's, into nothing, over topics
of a real Kafka 4.3.1; plain PySpark has those without state. Results are held against DuckDB's before figures are
taken. A figure counts all events, and the start of the query with them. Flink SQL has no q6.""",
    ),
    "joins": Benchmark(
        "Joins beside Flink SQL",
        """\
`make bench-joins`. On topics of a real Kafka 4.3.1; a join's records are those of both topics. The goal for two tables
joined is 1.2×: it is met over 0.7 M records and missed over 2.6 M, where Flink SQL is faster than
over few, and ours is not.""",
    ),
    "cep": Benchmark(
        "Patterns beside Flink CEP 2.2 and Esper 9.0",
        """\
`make bench-cep`. Three patterns over 10, 10⁴ and 10⁶ keys, whose events come once a second each, on topics of our own
broker: `match_pattern` on Spark, Flink CEP two tasks wide with its state on the heap, Esper on one thread. The matches
of all are compared in every run. `events/CPU s` is what is per core. Flink reads with one reader, in small pieces and
with frequent watermarks, which over ten keys makes it ten times faster than as it comes. *In memory* are the plain
matcher and Esper, each on one core.""",
    ),
    "cdc": Benchmark(
        "Change capture beside Debezium's embedded engine",
        """\
`make bench-cdc`. One PostgreSQL into topics of a real Kafka 4.3.1. Debezium writes at least once, Headrace exactly
once, both JSON and lz4. A rate counts from the first record to the last, so the start of a JVM is not in it, but its
warming up is, and so the ratio falls with the size.""",
    ),
    "eventsourcing": Benchmark(
        "Event stores beside the eventsourcing library",
        """\
`make bench-eventsourcing`. Beside `eventsourcing` 9.5.6 of PyPI, on the same SQLite and the same PostgreSQL, one
process and an empty database for each measurement; both write JSON, check versions and wait for the disk. The goal is
three times its rate. It is missed with one writer, where the disk is most of the cost, with sixteen in SQLite, by a
reader that catches up, and for snapshots in PostgreSQL, where the way there and back is.""",
    ),
    "search": Benchmark(
        "Stored queries beside Lucene Monitor",
        """\
`make bench-search`. The same queries over the same documents of 100 to 200 words, drawn by Zipf's law, each side one
process on one core; documents a second of its processor time, a warm JVM's compiler and collector included. Of Lucene
Monitor 9.11.1 the faster of its presearchers counts, told how often each word occurs; its batches are of a hundred
documents, ours Arrow batches of a thousand. The *realistic* mix asks for words, two or three together, phrases, words
with a range, some alternatives, prefixes, wildcards and fuzzy words; the *adversarial* one for the fifty commonest
words. Both sides have to find the same pairs. Memory is what the process, or the heap, holds more than without
queries.""",
    ),
    "polling": Benchmark(
        "Polling and notification",
        """\
`make bench-polling`. One event is written, durable, and each worker sees it; a latency counts from just before the
write. [What it means](explanation/polling.md#measured).""",
    ),
    "statsd": Benchmark(
        "StatsD beside the reference daemon",
        """\
`make bench-statsd`. Beside the `statsd` of npm on one core, while the sender has the other: `headrace gateway statsd`
into a topic of a broker of its own, the reference daemon into a file. Both are sent the same packets and have to come
to the same sums before anything is measured.""",
    ),
    "sockets": Benchmark(
        "Messages over ZeroMQ and nng",
        """\
`make bench-sockets`. Our sockets, whose messages have a key, headers and a number, beside the libraries that they stand
on, which send bare bytes; and gateways of the same sockets into topics and out of them.""",
    ),
    "cores": Benchmark(
        "One core and two",
        """\
`make bench-cores`. Everything of a part is confined to one core, or may use two. [What limits each
part](explanation/sizing.md).""",
    ),
    "queues": Benchmark(
        "Queues beside Kafka's share groups and RabbitMQ",
        """\
`make bench-queues`. Messages of 100 bytes from one sender to consumers that acknowledge each by itself, as many in as
out while the others wait; Kafka's own Java client for Headrace and Kafka 4.3.1, on topics of 4 partitions, and
RabbitMQ's for RabbitMQ 3.10.8 of Debian, with confirms. `os` waits for no disk; with `fsync` Headrace syncs what is
sent and what is acknowledged before it answers, RabbitMQ only what is sent. *One message at a time* is a prefetch of
one, and its p99 the time from one message of a consumer to its next. The clients run on the same two cores: with 32
consumers they take most of them, and a rate says as much about the clients as about the broker.""",
    ),
}
# The ten of README: the file, the figure's name and unit, what it is called there, and whom it stands beside.
CHOSEN = (
    ("broker", "produce 1 KiB records, 64 KiB batches, acks=1, os", "MB/s", "produce, acks=1, MB/s", "Kafka 4.3.1"),
    ("broker", "produce 1 KiB records, 64 KiB batches, acks=all, fsync", "MB/s",
     "produce, acks=all, synced, MB/s", "Kafka 4.3.1"),
    ("broker", "fetch 1024 KiB at a time, 64 KiB batches", "MB/s", "fetch 1 MiB at a time, MB/s", "Kafka 4.3.1"),
    ("broker", "transactions of one 100 B record, 8 producers, fsync", "transactions/s",
     "transactions of one record, 8 producers, synced, per s", "Kafka 4.3.1"),
    ("broker", "end to end, 500 records/s, acks=1, os", "p99 ms", "end to end at 500 records/s, p99 ms", "Kafka 4.3.1"),
    ("pipelines", "JSON filter and project, 5 M records", "k records/s",
     "filter and project 5 M JSON records, k records/s", "plain PySpark"),
    ("pipelines", "JSON tumbling count by user, 5 M records", "k records/s",
     "tumbling count over 5 M records, k records/s", "Flink SQL"),
    ("windows", "hopping, 60 s every 1 s, 2 M", "k records/s",
     "hopping windows over 2 M records, k records/s", "Flink SQL"),
    ("joins", "two tables, with retractions, 2.6 M, 100,000 keys", "k records/s",
     "two tables joined, with retractions, k records/s", "Flink SQL"),
    ("cdc", "streaming, 1,000,000", "k changes/s", "a backlog of 1 M changes of PostgreSQL, k changes/s", "Debezium"),
)  # fmt: skip


def read_results() -> dict[str, list[dict[str, Any]]]:
    """The figures by benchmark, in the order of the page."""
    return {
        name: json.loads((RESULTS / f"{name}.json").read_text())
        for name in BENCHMARKS
        if (RESULTS / f"{name}.json").exists()
    }


def page(note: str) -> str:
    """All figures."""
    lines = [
        "# Figures",
        "",
        note,
        "Every figure was printed by a run of `make bench-…`, and is kept with its date, machine and rounds. A value",
        "is the median of the rounds, a ratio (×) the median of the rounds' ratios of ours to theirs, with its range",
        "where that is known. On two noisy cores a speed is worth little by itself: what counts is the ratio, measured",
        "in turn in one run. Figures marked *carried* were printed before rounds were kept: their range is not known.",
    ]
    for name, figures in read_results().items():
        benchmark = BENCHMARKS[name]
        others = list(
            dict.fromkeys(one for each in figures for one in (*each["values"], *each["ratios"]) if one != OURS)
        )
        lines += ["", f"## {benchmark.title}", "", benchmark.about, ""]
        ours = [OURS] if any(OURS in each["values"] for each in figures) else []
        shown = [*ours, *others]
        lines += [f"| | | {' | '.join(shown)} | measured |", f"|---|---|{'--:|' * len(shown)}---|"]
        for each in figures:
            mine = [number(each["values"][OURS]) if OURS in each["values"] else ""] if ours else []
            cells = [each["name"], each["unit"], *mine, *(_beside(each, other) for other in others), _measured(each)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def readme(text: str) -> str:
    """README with the ten figures as they are now."""
    found = {(name, each["name"], each["unit"]): each for name, figures in read_results().items() for each in figures}
    lines = ["| | Headrace | beside | ratio | measured |", "|---|--:|--:|--:|---|"]
    for benchmark, name, unit, shown, other in CHOSEN:
        each = found[benchmark, name, unit]
        beside = f"{number(each['values'][other])} ({other})"
        cells = [shown, number(each["values"][OURS]), beside, f"{each['ratios'][other]:.2f}×", each["date"]]
        lines.append(f"| {' | '.join(cells)} |")
    block = "\n".join([MARKS[0], "", *lines, "", MARKS[1]])
    return re.sub(f"{re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", lambda _: block, text, flags=re.DOTALL)


def number(value: float) -> str:
    """A figure as it is shown: four digits say more than enough."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _beside(each: Mapping[str, Any], other: str) -> str:
    value, ratio, spread = (each[part].get(other) for part in ("values", "ratios", "spreads"))
    said = [] if ratio is None else [f"{ratio:.2f}×" if ratio < 100 else f"{ratio:.0f}×"]
    said += [] if spread is None else ["{:.2f}–{:.2f}".format(*spread)]
    if value is None:
        return ", ".join(said)
    return f"{number(value)} ({', '.join(said)})" if said else number(value)


def _measured(each: Mapping[str, Any]) -> str:
    rounds = each["rounds"]
    said = [each["date"], each["machine"]]
    said += [] if rounds is None else [f"{rounds} round{'s' * (rounds != 1)}"]
    said += ["*carried*"] if each.get("carried") else []
    return ", ".join(said) + (f"; {each['note']}" if each.get("note") else "")
