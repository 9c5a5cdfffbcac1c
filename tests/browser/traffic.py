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
from headrace.client.writer import NewRecord, Writer
from headrace.dead_letters import write_letters
from headrace.delivery.letters import Letter
from headrace.status import CAPTURES, GATEWAYS, SEARCHES, VIEWS, Status, StatusWriter
from tests.conformance.clients.sharing import ACCEPT, RELEASE, RENEW, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of

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


def write_json(bootstrap: str, topic: str, entries: list[tuple[str, object, int]]) -> None:
    """Reports, each under a name, at a time."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        if topic not in {found.name for found in cluster.topics()}:
            create_topic(cluster, topic, partitions=1)
        writer = Writer(cluster, topic)
        for name, found, at_ms in entries:
            writer.add(NewRecord(name.encode(), json.dumps(found).encode(), at_ms))
        writer.flush()


def write_raw(bootstrap: str, topic: str, key: bytes, value: bytes) -> None:
    """One record, whatever it is."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        writer = Writer(cluster, topic)
        writer.add(NewRecord(key, value, now_ms()))
        writer.flush()


def write_dead_letter(bootstrap: str, topic: str) -> None:
    """A record that a job could not use."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        reason = "not JSON: line 1, column 1"
        letter = Letter(topic, 0, 5, now_ms(), b"c7", b"not JSON", reason, "json", "orders-table")
        write_letters(cluster, f"{topic}.dead-letters", [letter])


def write_statuses(bootstrap: str) -> None:
    """A capture that is at work on its snapshot, as its own writer reports it, and a view."""
    facts = {
        "slot": "headrace_archive", "slot_lag_bytes": 44_000_000, "slot_lag_limit_bytes": 1_000_000_000,
        "tables": ["public.orders", "public.customers"], "snapshot_done": 740_000, "snapshot_total": 1_000_000,
        "password": "hunter2",
    }  # fmt: skip
    position = {"lsn": "0/1A2B3C8", "tables": {"public.orders": [1, 2]}}
    view = {"kind": "table", "state": "running", "rows": 1440, "lag_ms": 450, "lag_records": 3, "source": "revenue",
            "url": "http://127.0.0.1:8090/revenue"}  # fmt: skip
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        StatusWriter(cluster, CAPTURES).write(Status.of("archive", "postgresql", "running", position=position, **facts))
        StatusWriter(cluster, VIEWS).write(Status("revenue-per-minute", view))
        found = {"source": "listings", "target": "listings.hits", "records": 1200, "hits": 40, "queries": 7}
        metrics = {"source": "udp://127.0.0.1:8125", "target": "metrics", "records": 8200, "per_s": 12.0,
                   "received": 912_000, "dropped": 12, "refused": 3, "connections": 1, "series": 140}  # fmt: skip
        StatusWriter(cluster, GATEWAYS).write(Status.of("metrics", "statsd", "running", **metrics))
        access = {"source": "/var/log/nginx/access.log", "target": "orders", "records": 52, "lag_bytes": 4096,
                  "files": 2, "problem": "/var/log/nginx/old.log cannot be read: permission denied"}  # fmt: skip
        StatusWriter(cluster, GATEWAYS).write(Status.of("access", "file", "running", **access))
        StatusWriter(cluster, SEARCHES).write(Status.of("listings", "search", "running", **found))


@contextmanager
def working(bootstrap: str) -> Iterator[None]:
    """A queue of twenty e-mails of which five are sent, one is tried again, nine are held too, and five wait."""
    stopping, ready = threading.Event(), threading.Event()

    def work() -> None:
        with Wire(bootstrap) as wire:
            wire.create("emails", 1)
            set_group(wire, "mailers", share_auto_offset_reset="earliest", share_record_lock_duration_ms="60000")
            assert wire.produce("emails", batch_of(*[b"a letter"] * 20, timestamp=now_ms())).error_code == 0
            sharer = Sharer(wire, "mailers", "emails")
            sharer.join()
            sharer.fetch_some()
            sharer.acknowledge((0, 4, [ACCEPT]), (5, 5, [RELEASE]))
            sharer.fetch_some()
            sharer.acknowledge((6, 10, [RELEASE]))
            ready.set()
            while not stopping.wait(2):
                sharer.beat()
                sharer.acknowledge((5, 5, [RENEW]), (11, 19, [RENEW]), is_renew_ack=True)
            sharer.beat(epoch=-1)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        stopping.set()
        thread.join()


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
