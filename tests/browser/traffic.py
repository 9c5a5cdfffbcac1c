"""Something to look at: topics, groups and reports on a real broker, as a shop would have them."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.writer import NewRecord, Writer
from headrace.connect.offsets import OFFSETS_TOPIC, ensure_offsets_topic
from headrace.connect.sink import Place
from headrace.connect.sync.places import Condition, State, publish

CITIES = ("Ghent", "Porto", "Graz", "Turku", "Brno")


def now_ms() -> int:
    return int(time.time() * 1000)


def make_topics(bootstrap: str) -> None:
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        create_topic(cluster, "orders", partitions=4, configs={"retention.ms": "604800000"})
        create_topic(cluster, "invoices", partitions=4, configs={"retention.ms": "604800000"})
        create_topic(cluster, "payments", partitions=2)
        create_topic(cluster, "customers", partitions=1, configs={"cleanup.policy": "compact"})
        create_topic(cluster, "clicks", partitions=6, configs={"retention.ms": "5400000", "segment.ms": "600000"})


def order(number: int, rng: random.Random) -> tuple[str, str]:
    customer = f"c{rng.randrange(40)}"
    return customer, json.dumps(
        {"order": number, "customer": customer, "cents": rng.randrange(100, 9000), "city": rng.choice(CITIES)}
    )


def write_orders(bootstrap: str, topic: str, count: int, *, ago_ms: int = 0, seed: int = 1) -> None:
    rng = random.Random(seed)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    start = now_ms() - ago_ms
    for number in range(count):
        key, value = order(number, rng)
        producer.produce(topic, value, key, timestamp=start + (ago_ms * number // max(count, 1)))
        if number % 5000 == 0:
            producer.poll(0)
    producer.flush()


def consumer_of(bootstrap: str, group: str, topic: str = "") -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": group, "client.id": f"{group}-1",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }
    )  # fmt: skip
    if topic:
        consumer.subscribe([topic])
    return consumer


def read_some(bootstrap: str, group: str, topic: str, count: int) -> None:
    """A group that read so many records, evenly, and went away."""
    consumer = consumer_of(bootstrap, group)
    partitions = consumer.list_topics(topic).topics[topic].partitions
    each = count // len(partitions)
    consumer.commit(offsets=[TopicPartition(topic, index, each) for index in partitions], asynchronous=False)
    consumer.close()


def progress(job: str, batch: int, rows: int, **facts: object) -> dict[str, object]:
    return {
        "job": job, "output": "out", "batch": batch, "time": "2026-05-01T12:00:00.000Z", "rows": rows,
        "input_rate": rows * 1.0, "processing_rate": rows * 2.5,
        "batch_ms": 240 + rows // 4 + (900 if batch % 23 == 22 else 0),
        "watermark": "2026-05-01T11:59:30.000Z", "state_rows": 1200 + batch * 15, "state_bytes": 400_000 + batch * 2000,
        "late_rows": batch // 10, "lag_records": 0, "lag_ms": 120, "sources": [],
    } | facts  # fmt: skip


def write_json(bootstrap: str, topic: str, entries: list[tuple[str, object, int]]) -> None:
    """Reports, each under a name, at a time."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        if topic not in {found.name for found in cluster.topics()}:
            create_topic(cluster, topic, partitions=1)
        writer = Writer(cluster, topic)
        for name, found, at_ms in entries:
            writer.add(NewRecord(name.encode(), json.dumps(found).encode(), at_ms))
        writer.flush()


def write_progress(bootstrap: str, batches: range = range(60)) -> None:
    """Reports of two jobs, the last one just now."""
    rng = random.Random(7)
    entries: list[tuple[str, object, int]] = []
    for batch in batches:
        at_ms = now_ms() - (batches[-1] - batch) * 2000
        entries.append(("revenue", progress("revenue", batch, 700 + rng.randrange(600)), at_ms))
        stateless = progress("enrich", batch, 300 + rng.randrange(200), state_rows=0, state_bytes=0, watermark=None)
        entries.append(("enrich", stateless, at_ms))
    write_json(bootstrap, "__headrace_progress", entries)


def write_statuses(bootstrap: str) -> None:
    end = now_ms()
    shop = {
        "kind": "postgres", "state": "snapshot", "slot": "headrace_shop", "slot_lag_bytes": 44_000_000,
        "slot_lag_limit_bytes": 1_000_000_000, "tables": ["public.orders", "public.customers", "public.products"],
        "snapshot_done": 740_000, "snapshot_total": 1_000_000, "lag_ms": 840, "password": "hunter2",
    }  # fmt: skip
    write_json(bootstrap, "__headrace_connect_status", [("shop", shop, end)])
    cache = {"kind": "redis", "state": "running", "lag_records": 12, "lag_ms": 90, "source": "shop.orders",
             "target": "redis orders:*", "verified_ms": end - 40_000, "differences": 0}  # fmt: skip
    index = {"kind": "search", "state": "running", "lag_records": 220, "lag_ms": 1900, "source": "shop.products",
             "target": "products", "verified_ms": end - 90_000, "differences": 3}  # fmt: skip
    write_json(bootstrap, "__headrace_sync_status", [("orders-cache", cache, end), ("products-index", index, end)])
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        publish(Coordinators(cluster), "orders-cache", Place("orders", dict.fromkeys(range(4), 4_000)),
                Condition(State.RUNNING, end))  # fmt: skip
        ensure_offsets_topic(cluster)
    write_json(bootstrap, OFFSETS_TOPIC, [('{"connector": "shop"}', {"lsn": "0/1A2B3C8", "snapshot": "orders"}, end)])
    view = {"kind": "table", "state": "running", "rows": 1440, "lag_ms": 450, "lag_records": 3, "source": "revenue",
            "url": "http://127.0.0.1:8090/revenue"}  # fmt: skip
    write_json(bootstrap, "__headrace_view_status", [("revenue-per-minute", view, end)])


@contextmanager
def steady(bootstrap: str, per_second: int = 400) -> Iterator[None]:
    """Orders and clicks that go on being written, a group that keeps up and one that does not."""
    stopping = threading.Event()

    def write() -> None:
        rng = random.Random(3)
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        turn = 0
        while not stopping.wait(0.1):
            pace = 1 + 0.5 * ((turn // 15) % 3) + rng.random() * 0.3
            for number in range(int(per_second / 10 * pace)):
                key, value = order(turn * 1000 + number, rng)
                producer.produce("orders", value, key)
                if number % 3 == 0:
                    producer.produce("clicks", json.dumps({"page": f"/p/{rng.randrange(90)}"}), key)
            producer.poll(0)
            turn += 1
        producer.flush()

    def read(group: str, topic: str, at_once: int) -> None:
        consumer = consumer_of(bootstrap, group, topic)
        while not stopping.is_set():
            if consumer.consume(at_once, timeout=0.2):
                consumer.commit(asynchronous=False)
            stopping.wait(0.1)
        consumer.close()

    threads = [
        threading.Thread(target=write),
        threading.Thread(target=read, args=("billing", "orders", 5000)),
        threading.Thread(target=read, args=("fraud-check", "clicks", 6)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
