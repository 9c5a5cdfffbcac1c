"""`make bench-cdc`: changes of a PostgreSQL into a Kafka topic, beside Debezium's embedded engine, alternating.

Rows: `snapshot` (what is in a table already, rows/s), `streaming` (a backlog of inserts, updates and deletes in
transactions of a hundred, changes/s) at each of `--sizes`; `latency` (from just before the commit until the record is
read from the topic, 200 commits a second). Memory is the most that the process and its children had resident.

Options: `--quick` (one round, small, to see that all works), `--only ROW` (several times), `--sizes N …`, `--rounds N`,
`--broker ours` (on our broker instead of a real Kafka 4.3.1), `--markdown FILE`, `--json FILE`.

A rate counts from the first record in the topic until the last, so that neither the start of a JVM nor that of Python
is in it. After each run the table that the topic describes is compared with the table in the database.
"""

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import pipelines_report as report
from broker_latency import percentiles
from broker_report import P50, P99, Figures, Metric
from broker_wire import Wire
from brokers import Contender as Broker
from brokers import fresh
from cdc_contenders import CAPTURES, PREFIX, Capture
from cdc_database import SENTINEL, TABLE, change, database, drop_slot, make_tables, table_now, trickle, wait_for_slot
from harness import alternate_all, headline, keep, scratch
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from peers.process import Guarded
from pipelines_process import Failed, Peak
from pipelines_report import Goal, Row

ORDERS, DONE = f"{PREFIX}.public.{TABLE}", f"{PREFIX}.public.{SENTINEL}"
CHANGES_PER_S = Metric("changes_per_s", "k changes/s", "{:.1f}", 1e-3)
ROWS_PER_S = Metric("changes_per_s", "k rows/s", "{:.1f}", 1e-3)
PEAK = report.PEAK
TITLES = {"snapshot": "initial snapshot", "streaming": "streaming", "latency": "commit to topic, 200 commits/s"}
GOALS = {
    "snapshot": (Goal(ROWS_PER_S, "debezium", 2), Goal(PEAK, "debezium", 1 / 3, at_least=False)),
    "streaming": (Goal(CHANGES_PER_S, "debezium", 2), Goal(PEAK, "debezium", 1 / 3, at_least=False)),
    "latency": (),
}
LATENCY_PER_S, WARM_UP_S = 200, 10.0
_POLL_S = 0.02
_PATIENCE_S = 120.0
_COMMITTED = FetchOptions(committed=True)
console = Console(highlight=False, width=None if os.isatty(1) else 200)


class Bench:
    """Two servers, and the runs between them."""

    def __init__(self, broker: Broker, url: str, folder: Path) -> None:
        self._broker = broker
        self._url = url
        self._folder = folder

    def snapshot(self, capture: Capture, size: int) -> Figures:
        """All rows of a table."""
        make_tables(self._url, size)
        with self._topics() as cluster, self._running(capture, snapshot=True) as (process, peak):
            begin = self._wait(process, cluster, ORDERS, 1)
            end = self._wait(process, cluster, ORDERS, size)
            self._compare(cluster)
        return {"changes_per_s": size / (end - begin), "peak_mb": peak.bytes / 1e6}

    def streaming(self, capture: Capture, size: int) -> Figures:
        """A backlog: the capture is stopped while the changes are made."""
        make_tables(self._url, 0)
        with self._topics() as cluster:
            with self._running(capture, snapshot=False) as (process, _):
                wait_for_slot(self._url, capture.slot)
                change(self._url, 1000, first=10_000_000)
                self._wait(process, cluster, DONE, 1)
            change(self._url, size, first=1)
            before = self._held(cluster, ORDERS)
            with self._running(capture, snapshot=False, again=True) as (process, peak):
                begin = self._wait(process, cluster, ORDERS, before + 1)
                end = self._wait(process, cluster, DONE, 2)
                self._compare(cluster)
        return {"changes_per_s": size / (end - begin), "peak_mb": peak.bytes / 1e6}

    def latency(self, capture: Capture, seconds: float) -> Figures:
        """Single commits at an even pace."""
        make_tables(self._url, 0)
        with self._topics() as cluster, self._running(capture, snapshot=False) as (process, peak):
            wait_for_slot(self._url, capture.slot)
            change(self._url, 1000, first=10_000_000)
            self._wait(process, cluster, DONE, 1)
            starts = self._ends(cluster, ORDERS)
            total = int((WARM_UP_S + seconds) * LATENCY_PER_S)
            feed = threading.Thread(target=trickle, args=(self._url, LATENCY_PER_S, WARM_UP_S + seconds, 1))
            feed.start()
            found: list[tuple[int, float]] = []
            options = FetchOptions(committed=True, max_wait_ms=100)
            for records in read_records(cluster, starts, options=options):
                now = time.time()
                for _, record in records:
                    after = json.loads(record.value or b"{}").get("after")
                    found.append((after["id"], now - int(after["note"]) / 1e6))
                if len(found) >= total:
                    break
            feed.join()
        taken = [wait for key, wait in found if key > WARM_UP_S * LATENCY_PER_S]
        return percentiles(taken) | {"peak_mb": peak.bytes / 1e6}

    # --- what is needed

    @contextmanager
    def _topics(self) -> Iterator[Cluster]:
        with Cluster(parse_bootstrap(self._broker.address)) as cluster:
            held = {topic.name for topic in cluster.topics()}
            for topic in (ORDERS, DONE):
                if topic in held:
                    raise RuntimeError(f"{topic} is left from an earlier run")
                create_topic(cluster, topic, partitions=1)
            yield cluster
            with Wire(self._broker.address) as wire:
                for topic in cluster.topics():
                    if topic.name.startswith((PREFIX, "__headrace")):
                        wire.delete_topic(topic.name)
        time.sleep(1.0)

    @contextmanager
    def _running(self, capture: Capture, *, snapshot: bool, again: bool = False) -> Iterator[tuple[Guarded, Peak]]:
        folder = self._folder / "capture"
        if not again:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for each in CAPTURES.values():
                drop_slot(self._url, each.slot)
        process = capture.start(self._url, self._broker.address, folder, snapshot=snapshot)
        try:
            with Peak(process.pid) as peak:
                yield process, peak
        except BaseException:
            for log in folder.glob("*.log"):
                console.print(log.read_text()[-3000:])
            raise
        finally:
            process.terminate()
            if process.wait(20) is None:
                process.kill()

    def _held(self, cluster: Cluster, topic: str) -> int:
        """How many records a topic has; markers of transactions are not among them."""
        starts, ends = self._bounds(cluster, topic)
        if not any(ends.values()):
            return 0
        return sum(len(records) for records in read_records(cluster, starts, until=ends, options=_COMMITTED))

    def _bounds(self, cluster: Cluster, topic: str) -> tuple[Any, Any]:
        held = bounds(cluster, cluster.partitions(topic), committed=True)
        return tuple({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))  # type: ignore[return-value]

    def _ends(self, cluster: Cluster, topic: str) -> Any:
        return self._bounds(cluster, topic)[1]

    def _wait(self, process: Guarded, cluster: Cluster, topic: str, records: int) -> float:
        """When a topic came to have so many records; the offsets tell, and near the end the records do."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            now = time.monotonic()
            if sum(self._ends(cluster, topic).values()) >= records and (
                records == 1 or self._held(cluster, topic) >= records
            ):
                return now
            if process.wait(0) is not None:
                raise Failed("the capture ended")
            if now > deadline:
                raise Failed(f"{topic} did not come to have {records} records")
            time.sleep(_POLL_S)

    def _compare(self, cluster: Cluster) -> None:
        """The table that the topic describes is the one in the database."""
        starts, ends = self._bounds(cluster, ORDERS)
        found: dict[int, tuple[int, str, str]] = {}
        for records in read_records(cluster, starts, until=ends, options=_COMMITTED):
            for _, record in records:
                key = json.loads(record.key or b"{}")["id"]
                after = json.loads(record.value)["after"] if record.value is not None else None
                if after is None:
                    found.pop(key, None)
                else:
                    found[key] = (after["customer"], after["amount"], after["note"])
        expected = table_now(self._url)
        if found != expected:
            raise Failed(f"the topic describes {len(found)} orders, the table has {len(expected)}, and they differ")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    options = _options().parse_args(arguments)
    sizes, rounds, seconds = options.sizes, options.rounds, 20.0
    if options.quick:
        sizes, rounds, seconds = [20_000], 1, 5.0
    rows: list[Row] = []
    with scratch() as folder, ExitStack() as stack:
        title = headline(f"change capture on {'Apache Kafka 4.3.1' if options.broker == 'kafka' else 'our broker'}")
        console.print(title)
        broker = stack.enter_context(fresh("kafka" if options.broker == "kafka" else "ours-os", folder))
        bench = Bench(broker, stack.enter_context(database(folder)), folder)
        names = [name for name in CAPTURES if name in (options.contender or CAPTURES)]
        for name in options.only or TITLES:
            for size in sizes if name != "latency" else [0]:
                run = partial(getattr(bench, name), **({"seconds": seconds} if name == "latency" else {"size": size}))
                found = alternate_all({each: partial(run, CAPTURES[each]) for each in names}, rounds)
                metrics = (P50, P99, PEAK) if name == "latency" else (CHANGES_PER_S, PEAK)
                shown = TITLES[name] + (f", {size:,}" if size else "")
                row = Row(name, shown, metrics, found, GOALS[name] if len(names) > 1 else (), base="debezium")
                row.print(console)
                rows.append(row)
    if not options.quick:
        keep("cdc", report.figures(rows), rounds)
    if options.markdown:
        options.markdown.write_text(report.markdown(title, rows))
    if options.json:
        report.write_json(options.json, title, rows)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=list(TITLES))
    parser.add_argument("--contender", action="append", choices=list(CAPTURES))
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--broker", choices=("kafka", "ours"), default="kafka")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    main()
