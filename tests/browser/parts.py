"""Parts of a stack that really run, in threads of this process: a captured database, and derived systems of its topics.

What the pages show of captures and derived systems in these tests is what the parts themselves report.
"""

import itertools
import json
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.cep import Pattern
from headrace.cep.pictures.diagram import as_json
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.connect.capture.running import run_captures
from headrace.connect.capture.settings import from_section as capture_of
from headrace.connect.sync.runner import run_all
from headrace.connect.sync.settings import from_section as sync_of
from headrace.model import TopicPartition
from headrace.pipelines.jobs.patterns import KeyPartial, PatternProgress
from headrace.pipelines.jobs.progress import Progress, SourceProgress, Written
from headrace.pipelines.jobs.publish import ProgressTopic
from headrace.status import PROGRESS

CITIES = ("Ghent", "Porto", "Graz", "Turku", "Brno")


class ShopDatabase:
    """A SQLite file with orders, customers and a table without a key."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        with self._open() as db:
            db.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
            db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER, state TEXT)")
            for number in range(40):
                db.execute("INSERT INTO customers VALUES (?, ?, ?)", (number, f"c{number}", CITIES[number % 5]))
        self.add_orders(range(60))

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)

    def add_orders(self, numbers: range) -> None:
        with self._open() as db:
            for number in numbers:
                db.execute("INSERT INTO orders VALUES (?, ?, ?, 'open')", (number, number % 40, 100 + number))

    def pay(self, number: int) -> None:
        with self._open() as db:
            db.execute("UPDATE orders SET state = 'paid' WHERE id = ?", (number,))


@contextmanager
def running(bootstrap: str, folder: Path, database: ShopDatabase) -> Iterator[None]:
    """A capture of the database, and two derived systems of its topics."""
    stop = threading.Event()
    capture = capture_of("shop", {"url": f"sqlite:///{database.path}", "tables": ["orders", "customers"]})
    syncs = [
        sync_of(
            "orders-table",
            {"topic": "shop.main.orders", "sink": "sqlite", "path": str(folder / "copy.sqlite"), "table": "orders"},
        ),
        sync_of("later", {"topic": "not-there-yet", "sink": "sqlite", "path": str(folder / "x.sqlite"), "table": "x"}),
        sync_of("customers-index", {"topic": "shop.main.customers", "sink": "tantivy", "path": str(folder / "index")}),
    ]
    threads = [
        threading.Thread(
            target=run_captures, args=([capture], parse_bootstrap(bootstrap), stop, lambda _: None), name="captures"
        ),
        threading.Thread(target=run_all, args=(syncs, bootstrap, stop), name="syncs"),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def report(job: str, batch: int, rows: int, topic: str, offset: int, writes: Written, **facts: object) -> Progress:
    """How a batch of a job went, as the job's own reporter writes it."""
    told: dict[str, object] = {
        "time": "2026-05-01T12:00:00.000Z",
        "input_rate": rows * 1.0,
        "processing_rate": rows * 2.5,
        "batch_ms": 240 + rows // 4 + (900 if batch % 23 == 22 else 0),
        "watermark": "2026-05-01T11:59:30.000Z",
        "state_rows": 1200 + batch * 15,
        "state_bytes": 400_000 + batch * 2000,
        "late_rows": batch // 10,
        "late_rows_total": batch // 10,
        "lag_ms": 120,
        "dead_letter_topics": (f"{topic}.dead-letters",),
    }
    place = {TopicPartition(topic, partition): offset for partition in range(4)}
    source = SourceProgress(topic, rows * 1.0, rows * 2.5, place, 0)
    return Progress(job, "out", batch, rows=rows, sources=(source,), writes=writes, **(told | facts))  # type: ignore[arg-type]


def refunds(batch: int) -> PatternProgress:
    """A pattern that a job looks for."""
    pattern = Pattern.begin("order", "cents > 2000").followed_by("refund", "cents < 0").within("1 hour")
    keys = (KeyPartial("c7", 4), KeyPartial("c12", 2))
    diagram = as_json(pattern.compile())
    return PatternProgress("refunds", None, "running", None, batch // 5, 3 * batch, 0, 40 + batch % 7, 1, keys, diagram)


def write_reports(cluster: Cluster, batches: range = range(60)) -> None:
    """Two jobs that read the orders: one keeps state and writes a topic, one writes a table."""
    rng = random.Random(7)
    sums, table = Written("topic", "revenue", "topic revenue"), Written("store", "table enriched", "table enriched")
    broken = {"dead_letters": 1, "dead_letter_reasons": {"not JSON: line 1, column 1": 1}}
    bare = {"state_rows": 0, "state_bytes": 0, "watermark": None}
    ProgressTopic(cluster).write([])  # makes the topic
    writer = Writer(cluster, PROGRESS)
    for batch in batches:
        at_ms = int(time.time() * 1000) - (batches[-1] - batch) * 2000
        for told in (
            report(
                "revenue",
                batch,
                700 + rng.randrange(600),
                "orders",
                4_000,
                sums,
                patterns=(refunds(batch),),
                events_matched=900 * batch,
                **broken,
            ),
            report("enrich", batch, 300 + rng.randrange(200), "orders", 4_900, table, **bare),
        ):
            writer.add(NewRecord(told.job.encode(), json.dumps(told.as_json()).encode(), at_ms))
    writer.flush()


@contextmanager
def reporting(bootstrap: str) -> Iterator[None]:
    """The jobs go on: they report every few seconds, as Spark does even when idle, or they would count as silent."""
    stop = threading.Event()
    # One for all reports: tests that run meanwhile set how new clients reach their brokers.
    cluster = Cluster(parse_bootstrap(bootstrap))

    def report_on() -> None:
        for batch in itertools.count(60):
            if stop.wait(5):
                return
            write_reports(cluster, range(batch, batch + 1))

    with cluster:
        write_reports(cluster)
        thread = threading.Thread(target=report_on, daemon=True)
        thread.start()
        yield
        stop.set()
        thread.join()
