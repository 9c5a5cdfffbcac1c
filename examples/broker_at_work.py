"""The broker at work: a real Kafka client writes and reads, the command line follows, and a kill -9 loses nothing.

Run it with `make demo`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

import headrace
from headrace.cli.output import human_bytes, print_table

DATA = Path("data/demo-broker")
DRINKS = ["espresso", "flat white", "earl grey", "matcha", "cocoa"]
QUIET = {"log_level": 0}
console = Console(highlight=False)


def order(number: int) -> dict[str, object]:
    return {"order": number, "customer": f"c{number % 97}", "item": DRINKS[number % 5], "cents": 250 + number % 400}


def start(broker: headrace.Broker) -> None:
    started = time.perf_counter()
    broker.start()
    console.print(f"  ready on {broker.bootstrap_servers} after {time.perf_counter() - started:.2f} s, data in {DATA}")


def write(broker: headrace.Broker, numbers: range) -> dict[int, tuple[int, int]]:
    """Write orders with acks=all; where each acknowledged one went."""
    acknowledged: dict[int, tuple[int, int]] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = json.loads(message.value() or b"")
            acknowledged[value["order"]] = (message.partition() or 0, message.offset() or 0)

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4", "linger.ms": 5, **QUIET}
    )
    for number in numbers:
        value = order(number)
        producer.produce("orders", key=str(value["customer"]), value=json.dumps(value), on_delivery=delivered)
        producer.poll(0)
    producer.flush(30)
    return acknowledged


def read_all(broker: headrace.Broker, count: int) -> dict[int, tuple[int, int]]:
    """Every order in the topic, by number, with its place."""
    found: dict[int, tuple[int, int]] = {}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "demo", **QUIET})
    consumer.assign([TopicPartition("orders", partition, OFFSET_BEGINNING) for partition in range(3)])
    while len(found) < count:
        message = consumer.poll(10)
        if message is None:
            break
        found[json.loads(message.value() or b"")["order"]] = (message.partition() or 0, message.offset() or 0)
    consumer.close()
    return found


def command(broker: headrace.Broker, *arguments: str) -> None:
    console.print(f"[dim]$ headrace {' '.join(arguments)}")
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap_servers}
    subprocess.run([sys.executable, "-m", "headrace.cli.main", *arguments], env=environment, check=True)


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    console.rule("[bold]5 · a broker, and a Kafka client that knows nothing of us", align="left")
    broker = headrace.Broker(DATA, own_process=True)
    start(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
    started = time.perf_counter()
    acknowledged = write(broker, range(50_000))
    elapsed = time.perf_counter() - started
    console.print(f"  {len(acknowledged)} orders acknowledged after fsync in {elapsed:.2f} s, by confluent-kafka")
    command(broker, "topic", "describe", "orders")
    command(broker, "tail", "orders", "--from", "earliest", "--no-follow", "--limit", "3", "--where", ".cents > 640")

    console.rule("[bold]6 · kill -9, and everything that was acknowledged is there", align="left")
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
    console.print("  killed; starting again on the same data")
    start(broker)
    found = read_all(broker, len(acknowledged))
    missing = {number for number, place in acknowledged.items() if found.get(number) != place}
    console.print(
        f"  {len(found)} orders read back, missing or moved: {'[green]none' if not missing else f'[red]{len(missing)}'}"
    )
    broker.stop()
    size = sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file())
    print_table(["", ""], [("on disk", human_bytes(size)), ("to look around", f".venv/bin/headrace log list {DATA}")])
    if missing:
        sys.exit(1)


if __name__ == "__main__":
    main()
