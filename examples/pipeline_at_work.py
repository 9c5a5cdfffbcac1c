"""A pipeline at work: a topic through Spark to a topic and a table, and a kill -9 in the middle that doubles nothing.

Run it with `make demo`.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console

import headrace
from headrace.cli.output import print_table
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer

DATA, STATE, TABLE = Path("data/demo-pipeline"), Path("data/demo-state"), Path("data/demo-earnings.sqlite")
PIPELINE = Path(__file__).with_name("orders_pipeline.py")
DRINKS = ["espresso", "flat white", "earl grey", "matcha", "cocoa"]
ORDERS = 200_000
console = Console(highlight=False)


def order(number: int) -> dict[str, object]:
    return {"order": number, "customer": f"c{number % 97}", "item": DRINKS[number % 5], "cents": 250 + number % 400}


def write_orders(cluster: Cluster) -> None:
    for name in ("orders", "large-orders"):
        create_topic(cluster, name, partitions=3)
    writer = Writer(cluster, "orders")
    for number in range(ORDERS):
        value = order(number)
        writer.add(
            NewRecord(str(value["customer"]).encode(), json.dumps(value).encode(), timestamp=int(time.time() * 1000))
        )
    writer.flush()


def pipeline(broker: headrace.Broker, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headrace.cli.main", "pipeline", *arguments]
    console.print(f"[dim]$ headrace {' '.join(command[3:])}")
    environment = {
        **os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap_servers, "HEADRACE_STATE_DIR": str(STATE),
    }  # fmt: skip
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)


def run_and_kill(broker: headrace.Broker) -> None:
    """Run until some batches are done, then kill the driver, its JVM and its workers."""
    running = pipeline(broker, "run", str(PIPELINE), "--trigger", "available-now", "--json")
    assert running.stdout is not None
    batches = 0
    for line in running.stdout:
        report = json.loads(line)
        batches += "batch" in report
        if batches == 6:
            break
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    console.print(f"  killed after {batches} batches; what was decided will be finished, what was not is done again")


def large_orders(cluster: Cluster) -> Counter[int]:
    """How often each large order is in the topic, for a reader of committed records."""
    held = bounds(cluster, cluster.partitions("large-orders"), committed=True)
    found: Counter[int] = Counter()
    starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
    for records in read_records(cluster, starts, until=ends, options=FetchOptions(committed=True)):
        found.update(json.loads(record.value or b"")["order"] for _, record in records)
    return found


def main() -> None:
    for folder in (DATA, STATE):
        shutil.rmtree(folder, ignore_errors=True)
    TABLE.unlink(missing_ok=True)
    console.rule("[bold]7 · a pipeline on Spark: a topic in, a topic and a table out", align="left")
    with (
        headrace.Broker(DATA, own_process=True) as broker,
        Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster,
    ):
        write_orders(cluster)
        console.print(f"  {ORDERS:,} orders are in the topic")
        run_and_kill(broker)
        started = time.perf_counter()
        done = pipeline(broker, "run", str(PIPELINE), "--trigger", "available-now", "--json")
        done.communicate()
        console.print(f"  ran to the end in {time.perf_counter() - started:.1f} s, with the start of Spark")
        shown = pipeline(broker, "status", str(PIPELINE))
        print(shown.communicate()[0], end="")
        found = large_orders(cluster)
    expected = Counter(number for number in range(ORDERS) if 250 + number % 400 > 600)
    earned = Counter({drink: sum(250 + n % 400 for n in range(i, ORDERS, 5)) for i, drink in enumerate(DRINKS)})
    rows = sqlite3.connect(TABLE).execute("SELECT item, cents, orders FROM earnings ORDER BY cents DESC").fetchall()
    print_table(
        ["drink", ">earned", ">orders"], [(item, f"{cents / 100:,.2f}", orders) for item, cents, orders in rows]
    )
    good = found == expected and {item: cents for item, cents, _ in rows} == earned and done.returncode == 0
    said = "[green]each result once, nothing lost" if good else "[red]results differ from what they should be"
    console.print(f"  {len(found):,} large orders in the topic, {len(rows)} drinks in the table: {said}")
    if not good:
        sys.exit(1)


if __name__ == "__main__":
    main()
