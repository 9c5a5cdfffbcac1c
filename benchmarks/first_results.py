"""`make bench-first`: how long somebody waits for the first result, from the command on.

*A job without state*: JSON from a topic, a filter, and the rows to another topic. Ours is `headrace pipeline run`, with
all its checks, exactly once; beside it a script of plain PySpark with Spark's own connector, at least once. What counts
is the first record that a reader of committed records sees. *A stack*: `headrace up` on the shop of `make demo`, with a
minute of orders in its database, until every job and view has its first row; there is nothing to hold it against.

Before anything is measured each side has run once, to its end: ours makes its archive of classes then, as it does after
an installation.

Options: `--quick` (one round), `--only job` or `--only stack`, `--rounds N`, `--keep`.
"""

import argparse
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

import pipelines_data
from brokers import HEADRACE, OurBroker
from harness import OURS, ROOT, Figure, alternate_all, headline, keep, scratch
from headrace.testing.postgres import Postgres
from peers.process import Guarded
from pipelines_events import FIELDS, LEAST_AMOUNT, WANTED_EVENT
from pipelines_process import cpu_seconds

sys.path.insert(0, str(ROOT / "examples" / "shop"))
from database import prepare

PLAIN = "plain PySpark"
JOB, STACK = "a job without state, to the first record", "a stack, to the first row of every job and view"
GOALS_S = {JOB: 6, STACK: 15}
PATIENCE_S = 180
SHOP = ROOT / "examples" / "shop"
RECORDS = 10_000
JOBS = f"""\
from headrace.pipelines import job, topic

SCHEMA = "{", ".join(f"`{name}` {kind}" for name, kind in FIELDS)}"


@job(inputs={{"events": topic("events", format="json", schema=SCHEMA)}}, outputs=topic("large"))
def large(events):
    wanted = events.where("event = '{WANTED_EVENT}' AND amount > {LEAST_AMOUNT}")
    return wanted.selectExpr("user AS key", "to_json(struct(*)) AS value")
"""
# A minute of orders, one a second: windows are over before the stack starts.
ORDERS = """
INSERT INTO orders (customer_id, product_id, quantity, cents, ordered_at)
SELECT n % 60 + 1, p.id, 1, p.cents, now() - make_interval(secs => 60 - n)
FROM generate_series(1, 60) n JOIN products p ON p.id = n % 6 + 1
"""
Waited = tuple[float, float]  # seconds, and CPU seconds of all that was started
console = Console(highlight=False, width=None if os.isatty(1) else 160)


@contextmanager
def _running(command: list[str], output: Path, *, ends: bool) -> Iterator[Guarded]:
    """A command; killed at the end, or asked to end and waited for."""
    process = Guarded(command, output=output)
    try:
        yield process
    except BaseException:
        console.print(output.read_text(errors="replace")[-3000:])
        raise
    finally:
        if ends:
            process.terminate()
            process.wait(60)
        process.kill()


def _wait(process: Guarded, began: float, has_come: Callable[[], bool]) -> Waited:
    while not has_come():
        if process.wait(0.001) is not None or time.monotonic() > began + PATIENCE_S:
            raise RuntimeError("it ended, or nothing came")
        time.sleep(0.01)
    return time.monotonic() - began, cpu_seconds(process.pid)


class JobRuns:
    """The job without state, each time on topics of its own on a broker of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs = 0

    def run(self, *, is_ours: bool, ends: bool = False) -> Waited:
        self._runs += 1
        place = self._folder / str(self._runs)
        place.mkdir()
        broker = OurBroker(place / "data", "os")
        broker.start()
        try:
            self._fill(broker.bootstrap_servers)
            os.sync()
            if is_ours:
                (place / "jobs.py").write_text(JOBS)
                command = [
                    str(HEADRACE),
                    "pipeline",
                    "run",
                    str(place / "jobs.py"),
                    "--state-dir",
                    str(place / "state"),
                ]
                command += ["--bootstrap", broker.bootstrap_servers, "--master", "local[2]"]
            else:
                script = Path(__file__).with_name("first_results_spark.py")
                command = [str(ROOT / ".venv/bin/python"), str(script), broker.bootstrap_servers, str(place)]
            with closing(self._reader(broker.bootstrap_servers)) as reader:
                began = time.monotonic()
                with _running(command, place / "output.log", ends=ends) as process:
                    return _wait(process, began, lambda: reader.poll(0) is not None)
        finally:
            broker.kill()
            shutil.rmtree(place)

    def _fill(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic("events", pipelines_data.PARTITIONS), NewTopic("large", 1)]
        for future in admin.create_topics(topics).values():
            future.result()
        pipelines_data.fill(bootstrap, "events", RECORDS)

    def _reader(self, bootstrap: str) -> Consumer:
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "first", "isolation.level": "read_committed"})
        reader.assign([TopicPartition("large", 0, 0)])
        return reader


class StackRuns:
    """The shop, each time in a new folder with a new database."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs = 0

    def run(self, *, ends: bool = False) -> dict[str, float]:
        self._runs += 1
        place = self._folder / str(self._runs)
        shutil.copytree(SHOP, place, ignore=shutil.ignore_patterns("__pycache__", "page"))
        with Postgres(place / "postgres") as database:
            self._fill(database.url)
            os.environ["SHOP_DATABASE"] = database.url
            waiting = {"revenue": place / "revenue.sqlite", "cities": place / "views.sqlite"}
            found: dict[str, float] = {}

            def has_come() -> bool:
                for name in [each for each, path in waiting.items() if _has_rows(path, each)]:
                    found[name] = time.monotonic() - began
                    del waiting[name]
                return not waiting

            began = time.monotonic()
            command = [str(HEADRACE), "up", "--config", str(place / "headrace.toml")]
            with _running(command, place / "output.log", ends=ends) as process:
                seconds, cpu = _wait(process, began, has_come)
        shutil.rmtree(place)
        return {**found, "all": seconds, "cpu": cpu}

    def _fill(self, url: str) -> None:
        prepare(url)
        with psycopg.connect(url) as db:
            db.execute(ORDERS)


def _has_rows(path: Path, table: str) -> bool:
    """Whether a table has rows; a view's has its version in its name."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE ?", (f"{table}%",))
        return any(db.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() for (name,) in names.fetchall())
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("job", "stack"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 3)
    console.print(f"[bold]{headline('The first result, from the command on')}[/bold]")
    figures: list[Figure] = []
    with scratch() as folder:
        if args.only != "stack":
            jobs = JobRuns(folder)
            for is_ours in (True, False):
                jobs.run(is_ours=is_ours, ends=True)
            runs = alternate_all(
                {OURS: partial(jobs.run, is_ours=True), PLAIN: partial(jobs.run, is_ours=False)}, rounds
            )
            for place, unit in enumerate(("s", "CPU s")):
                each = {name: [one[place] for one in found] for name, found in runs.items()}
                figures.append(Figure.of(JOB, unit, each))
        if args.only != "job":
            stacks = StackRuns(folder / "stacks")
            (folder / "stacks").mkdir()
            stacks.run(ends=True)
            found = [stacks.run() for _ in range(rounds)]
            for key, name, unit in (
                ("cities", "a stack, to the first row of its view", "s"),
                ("revenue", "a stack, to the first row of the second of two jobs in line", "s"),
                ("all", STACK, "s"),
                ("cpu", STACK, "CPU s"),
            ):
                figures.append(Figure.of(name, unit, {OURS: [each[key] for each in found]}))
    for figure in figures:
        line = ", ".join(f"{name} {value:.1f}" for name, value in figure.values.items())
        ratio = "".join(f" ({value:.2f}×)" for value in figure.ratios.values())
        console.print(f"{figure.name}, {figure.unit}: {line}{ratio}")
        if figure.unit == "s" and (goal := GOALS_S.get(figure.name)):
            taken = figure.values[OURS]
            console.print(f"{figure.name}: {taken:.1f} s, {'met' if taken <= goal else 'MISSED'} (goal ≤ {goal} s)")
    if args.keep:
        keep("first", figures, rounds)


if __name__ == "__main__":
    main()
