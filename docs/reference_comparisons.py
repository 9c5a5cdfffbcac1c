"""The tables of `explanation/comparisons.md`, each row made from what a benchmark keeps."""

from typing import Any, Final, NamedTuple

from reference_figures import OURS, number, read_results


class Row(NamedTuple):
    """What is compared: a benchmark's figures of one unit or of several, shown with a stroke between them."""

    shown: str
    benchmark: str
    name: str
    units: tuple[str, ...]


class Table(NamedTuple):
    other: str  # as the benchmarks call it
    heading: str
    rows: tuple[Row, ...]


_LAST: Final = "<!-- compared end -->"
_RATE: Final = ("k records/s",)
_KAFKA: Final = (
    Row(
        "produce 64 KiB batches, acks=1, MB/s", "broker", "produce 1 KiB records, 64 KiB batches, acks=1, os", ("MB/s",)
    ),
    Row(
        "produce 64 KiB batches, acks=all, synced, MB/s",
        "broker",
        "produce 1 KiB records, 64 KiB batches, acks=all, fsync",
        ("MB/s",),
    ),
    Row("fetch 64 KiB at a time, MB/s", "broker", "fetch 64 KiB at a time, 64 KiB batches", ("MB/s",)),
    Row("fetch 1 MiB at a time, MB/s", "broker", "fetch 1024 KiB at a time, 64 KiB batches", ("MB/s",)),
    Row("fetch 8 MiB at a time, MB/s", "broker", "fetch 8192 KiB at a time, 64 KiB batches", ("MB/s",)),
    Row(
        "transactions of one record, 1 producer, no sync, per s",
        "broker",
        "transactions of one 100 B record, 1 producer, os",
        ("transactions/s",),
    ),
    Row(
        "transactions of one record, 8 producers, no sync, per s",
        "broker",
        "transactions of one 100 B record, 8 producers, os",
        ("transactions/s",),
    ),
    Row(
        "what producing loses beside 5,000 offset commits a second of one client, %",
        "broker",
        "produce 16 KiB batches, acks=1, os, beside 5000 offset commits/s on 1 connection",
        ("slow-down %",),
    ),
    Row(
        "what it loses beside as many of 200 clients, %",
        "broker",
        "produce 16 KiB batches, acks=1, os, beside 5000 offset commits/s on 200 connections",
        ("slow-down %",),
    ),
    Row(
        "end to end at 500 records/s, p50 / p99 ms",
        "broker",
        "end to end, 500 records/s, acks=1, os",
        ("p50 ms", "p99 ms"),
    ),
    Row(
        "end to end at 100 records/s, synced, p50 / p99 ms",
        "broker",
        "end to end, 100 records/s, acks=all, fsync",
        ("p50 ms", "p99 ms"),
    ),
)
_FLINK: Final = (
    Row(
        "filter and project, 0.5 M records of 98 bytes, k records/s",
        "pipelines",
        "JSON filter and project, 0.5 M records",
        _RATE,
    ),
    Row("filter and project, 5 M", "pipelines", "JSON filter and project, 5 M records", _RATE),
    Row(
        "CPU seconds per million records, filter, 5 M",
        "pipelines",
        "JSON filter and project, 5 M records",
        ("CPU s/M records",),
    ),
    Row("tumbling count by user, 0.5 M", "pipelines", "JSON tumbling count by user, 0.5 M records", _RATE),
    Row("tumbling count by user, 5 M", "pipelines", "JSON tumbling count by user, 5 M records", _RATE),
    Row("hopping windows, 60 s every second, 2 M", "windows", "hopping, 60 s every 1 s, 2 M", _RATE),
    Row("events joined as of event time, 2.6 M", "joins", "as of event time, 2.6 M, 100,000 keys", _RATE),
    Row(
        "two tables joined, with retractions, 2.6 M",
        "joins",
        "two tables, with retractions, 2.6 M, 100,000 keys",
        _RATE,
    ),
    Row("start of process, JVM and session, s", "pipelines", "process, JVM and session", ("start s",)),
)
_DEBEZIUM: Final = (
    Row("a snapshot of 100,000 rows, k changes/s", "cdc", "initial snapshot, 100,000", ("k changes/s",)),
    Row("a snapshot of a million rows", "cdc", "initial snapshot, 1,000,000", ("k changes/s",)),
    Row("a backlog of a million changes", "cdc", "streaming, 1,000,000", ("k changes/s",)),
    Row("from commit to topic, p50 / p99 ms", "cdc", "commit to topic, 200 commits/s", ("p50 ms", "p99 ms")),
    Row("memory at its peak, MB", "cdc", "initial snapshot, 1,000,000", ("peak MB",)),
)
_SPARK: Final = (
    Row(
        "filter and project, 0.5 M records of 98 bytes, k records/s",
        "pipelines",
        "JSON filter and project, 0.5 M records",
        _RATE,
    ),
    Row("filter and project, 5 M", "pipelines", "JSON filter and project, 5 M records", _RATE),
    Row(
        "topic to topic, 2 M (exactly once; PySpark's: at least once)",
        "pipelines",
        "topic to topic, 2 M records",
        _RATE,
    ),
    Row(
        "CPU seconds per million records, filter, 5 M",
        "pipelines",
        "JSON filter and project, 5 M records",
        ("CPU s/M records",),
    ),
    Row("tumbling count by user, 5 M", "pipelines", "JSON tumbling count by user, 5 M records", _RATE),
    Row(
        "produce to sink topic at 200 records/s, p50 / p99 ms",
        "pipelines",
        "produce to sink topic, 200 records/s",
        ("p50 ms", "p99 ms"),
    ),
    Row("a small micro-batch, ms", "pipelines", "a stateless micro-batch", ("trigger ms",)),
)
TABLES: Final = {
    "kafka": Table("Kafka 4.3.1", "Kafka 4.3.1", _KAFKA),
    "flink": Table("Flink SQL", "Flink SQL 2.2", _FLINK),
    "debezium": Table("Debezium", "Debezium", _DEBEZIUM),
    "spark": Table("plain PySpark", "plain PySpark", _SPARK),
    "spark-2": Table(
        "PySpark, 2 shuffle partitions",
        "PySpark, 2 shuffle partitions",
        (Row("tumbling count by user, 5 M", "pipelines", "JSON tumbling count by user, 5 M records", _RATE),),
    ),
}


def page(text: str) -> str:
    """The page with each table between its marks."""
    for name, table in TABLES.items():
        first = f"<!-- compared with {name}: made by docs/generate.py from benchmarks/results -->"
        before, found, behind = text.partition(first)
        _, ended, after = behind.partition(_LAST)
        if not found or not ended:
            raise ValueError(f"explanation/comparisons.md has no place for {name!r}, from {first} to {_LAST}")
        text = "\n".join([before + first, "", *_lines(table), "", _LAST + after])
    return text


def _lines(table: Table) -> list[str]:
    kept = {(name, each["name"], each["unit"]): each for name, found in read_results().items() for each in found}
    lines = [f"| | Headrace | {table.heading} | ratio | measured |", "|---|--:|--:|--:|---|"]
    for row in table.rows:
        figures = [kept[row.benchmark, row.name, unit] for unit in row.units]
        if any(table.other not in each["values"] for each in figures):
            continue  # the last run was without them
        cells = [
            _joined(number(each["values"][OURS]) for each in figures),
            _joined(number(each["values"][table.other]) for each in figures),
            _joined(_ratio(each, table.other) for each in figures),
            figures[0]["date"],
        ]
        lines.append(f"| {row.shown} | {' | '.join(cells)} |")
    return lines


def _ratio(figure: dict[str, Any], other: str) -> str:
    ratio = figure["ratios"].get(other)
    return "" if ratio is None else f"{ratio:.2f}×"


def _joined(cells: Any) -> str:
    return " / ".join(each for each in cells if each)
