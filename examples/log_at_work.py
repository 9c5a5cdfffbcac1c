"""The log at work: write orders, follow them, and watch segments, retention, compaction and a crash.

Run it with `python examples/log_at_work.py`; what it leaves in `data/demo-log` can be looked at with
`headrace log list data/demo-log`.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from rich.console import Console

from headrace.cli.output import human_bytes, human_time, print_table
from headrace.model import TopicPartition
from headrace.records import Record, build_batch, headers_in, records_of
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.group_commit import GroupCommit
from headrace.storage.log import Log

DATA = Path("data/demo-log")
ORDERS = TopicPartition("orders", 0)
CUSTOMERS = TopicPartition("customers", 0)
DAY_MS = 24 * 60 * 60 * 1000
CONFIGS = {
    "orders": LogConfig(segment_bytes=64 * 1024, retention_ms=7 * DAY_MS),
    "customers": LogConfig(
        segment_bytes=256 * 1024, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.3
    ),
}
DRINKS = ["espresso", "flat white", "earl grey", "matcha", "cocoa"]
console = Console(highlight=False)


def open_directory() -> LogDirectory:
    return LogDirectory.open(str(DATA), config_for=lambda partition: CONFIGS[partition.topic])


def order(number: int, at_ms: int) -> Record:
    value = {"order": number, "customer": f"c{number % 97}", "item": DRINKS[number % 5], "cents": 250 + number % 400}
    return Record(0, at_ms, str(number).encode(), json.dumps(value).encode())


def records_from(log: Log, offset: int) -> list[Record]:
    records = []
    while offset < log.end_offset:
        found = log.read(offset, 1024 * 1024).slice
        if found is None:
            break
        data = found.read()
        for position, header in headers_in(data):
            records += records_of(data[position : position + header.size])
            offset = header.next_offset
    return records


def show_segments(log: Log) -> None:
    print_table(
        [">segment", ">size", "youngest record"],
        [(s.base_offset, human_bytes(s.size), human_time(s.largest_timestamp)) for s in log.segments],
    )


def follow(directory: LogDirectory) -> None:
    console.rule("[bold]1 · write orders, and follow them as they come", align="left")
    log = directory.create(ORDERS, CONFIGS["orders"])
    appended = threading.Event()

    def produce() -> None:
        now = time.time_ns() // 1_000_000
        for number in range(5):
            log.append(build_batch([order(number, now)]), now_ms=now)
            appended.set()  # whoever follows is woken, and need not poll
            time.sleep(0.1)  # orders come when people are thirsty

    producer = threading.Thread(target=produce)
    producer.start()
    seen = 0
    while seen < 5:
        appended.wait()
        appended.clear()
        for record in records_from(log, seen):
            console.print(f"  offset {record.offset}  {(record.value or b'').decode()}")
            seen = record.offset + 1
    producer.join()


def retain(directory: LogDirectory) -> None:
    console.rule("[bold]2 · segments, and retention by time", align="left")
    directory.delete(ORDERS)
    log = directory.create(ORDERS, CONFIGS["orders"])
    now = time.time_ns() // 1_000_000
    for batch in range(100):  # ten days of orders, the oldest first
        at_ms = now - 10 * DAY_MS + batch * DAY_MS // 10
        orders = [order(batch * 40 + n, at_ms)._replace(offset=n) for n in range(40)]
        log.append(build_batch(orders), now_ms=at_ms)
    show_segments(log)
    removed = directory.enforce_retention()
    console.print(
        f"\nretention.ms is 7 days: {removed.get(ORDERS, 0)} segments went, the log begins at {log.start_offset}"
    )
    show_segments(log)


def compact(directory: LogDirectory) -> None:
    console.rule("[bold]3 · compaction keeps the latest value of each key", align="left")
    log = directory.create(CUSTOMERS, CONFIGS["customers"])
    chance = random.Random(7)
    now = time.time_ns() // 1_000_000
    for _ in range(400):
        changes = []
        for n in range(50):
            key = f"customer-{chance.randrange(300)}".encode()
            value = json.dumps({"points": chance.randrange(1000), "city": chance.choice(["Graz", "Porto", "Turku"])})
            changes.append(Record(n, now, key, None if chance.random() < 0.02 else value.encode()))
        log.append(build_batch(changes), now_ms=now)
    log.roll(now)
    before, latest = log.size_bytes, {record.key: record.value for record in records_from(log, 0)}
    directory.compact()
    after, remaining = log.size_bytes, records_from(log, 0)
    console.print(f"  before  {human_bytes(before):>10}  20000 records, {len(latest)} keys")
    console.print(f"  after   {human_bytes(after):>10}  {len(remaining)} records, among them the tombstones")
    same = {record.key: record.value for record in remaining} == latest
    console.print(f"  the latest value of every key is {'the same' if same else '[red]NOT the same'}")
    if not same:
        sys.exit(1)


def crash() -> None:
    console.rule("[bold]4 · kill -9 in the middle of writing", align="left")
    writer = subprocess.Popen([sys.executable, __file__, "--write-until-killed"], stdout=subprocess.PIPE, text=True)
    acknowledged = -1
    assert writer.stdout is not None
    for line in writer.stdout:
        acknowledged = int(line)
        if acknowledged >= 1500:
            break
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
    writer.wait()
    segment = max((DATA / "orders-0").glob("*.log"))
    with segment.open("ab") as file:
        file.write(os.urandom(777))  # and the disk was in the middle of a write
    directory = open_directory()
    (recovery,) = [r for r in directory.recoveries if r.topic_partition == ORDERS]
    log = directory.log(ORDERS)
    values = [json.loads(r.value)["order"] for r in records_from(log, log.start_offset) if r.value]
    missing = set(range(10_000, 10_000 + acknowledged + 1)) - set(values)
    console.print(f"  {acknowledged + 1} orders were acknowledged after fsync, then the writer was killed")
    console.print(
        f"  recovery checked {human_bytes(recovery.scanned_bytes)} and cut off a torn end of {recovery.cut_bytes} bytes"
    )
    console.print(f"  acknowledged orders missing: {'[green]none' if not missing else f'[red]{len(missing)}'}")
    console.print("\ndisk space by topic")
    print_table(
        ["topic", ">segments", ">size"],
        [(topic, use.segments, human_bytes(use.size_bytes)) for topic, use in directory.usage().items()],
    )
    directory.close()
    if missing:
        sys.exit(1)


def write_until_killed() -> None:
    """The child of `crash`: appends, waits for the disk, and says what is safe."""
    directory, commit = open_directory(), GroupCommit()
    log = directory.log(ORDERS)
    for number in range(1_000_000):
        now = time.time_ns() // 1_000_000
        info = log.append(build_batch([order(10_000 + number, now)]), now_ms=now)
        commit.wait(log, info.last_offset + 1)
        print(number, flush=True)


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    with open_directory() as directory:
        follow(directory)
        retain(directory)
        compact(directory)
    crash()
    console.print(f"\nLook around: [bold].venv/bin/headrace log list {DATA}[/bold], or segments, dump and verify.")


if __name__ == "__main__":
    write_until_killed() if "--write-until-killed" in sys.argv else main()
