"""The same from real clients: Kafka's own performance tools (Java), and librdkafka through confluent-kafka (C); and
transactions one after another from the Java client (`TransactionLoop.java`), as an application has them.

Here the client is most often the bound, so the figures to look at are the broker's CPU and whether we slow a client
down. Run as a script, this is the C client in a process of its own: `broker_clients.py produce|consume ADDRESS …`.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count as numbers
from pathlib import Path

from brokers import Contender
from peers.java import java_command
from peers.kafka.broker import KAFKA_FLAGS
from peers.kafka.tools import kafka_logging

RECORD_BYTES = 1024
_JAVA_TOOLS = "org.apache.kafka.tools"
_SENT = re.compile(r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)")
_TIMEOUT_S = 300
_TRANSACTION_LOOP = Path(__file__).with_name("TransactionLoop.java")
SENDS = 5  # of a transaction
_transactional_ids = numbers()


def java_produce(broker: Contender, count: int, acks: str) -> dict[str, float]:
    """`kafka-producer-perf-test`, after a warm-up of a tenth of the records."""
    with broker.topic(1) as topic:
        said, cpu = _java(
            broker,
            "ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
            *("--warmup-records", str(count // 10), "--command-property", f"acks={acks}"),
        )
        # The last line is of what came after the warm-up.
        found = _SENT.findall(said)
        if not found:
            raise RuntimeError(f"the tool said no figures:\n{said[-2000:]}")
        return _figures(float(found[-1][1]), cpu, count)


def java_consume(broker: Contender, topic: str, count: int) -> dict[str, float]:
    """`kafka-consumer-perf-test`: it joins a group."""
    said, cpu = _java(
        broker, "ConsumerPerformance", "--topic", topic, "--num-records", str(count), "--timeout", "60000"
    )
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    fields = said.strip().splitlines()[-1].split(", ")
    return _figures(float(fields[9]), cpu, count)


def java_transactions(broker: Contender, jars: str, seconds: float) -> dict[str, float]:
    """Begin, some sends, commit, by one producer of the client that is among `jars`, after a warm-up as long."""
    with broker.topic(1) as topic:
        command = java_command(
            jars,
            str(_TRANSACTION_LOOP),
            *(broker.address, topic, f"loop-{next(_transactional_ids)}", str(seconds), str(seconds), str(SENDS)),
            heap="512m",
            flags=KAFKA_FLAGS,
            system_properties=kafka_logging("WARN"),
        )
        said, _ = _run(broker, command)
    done = json.loads(said)
    return {"transactions_per_s": done["transactions"] / done["seconds"]}


def _java(broker: Contender, tool: str, *args: str) -> tuple[str, float]:
    command = java_command(
        "kafka",
        f"{_JAVA_TOOLS}.{tool}",
        *("--bootstrap-server", broker.address),
        *args,
        heap="512m",  # kafka-producer-perf-test.sh's own
        flags=KAFKA_FLAGS,
        system_properties=kafka_logging("WARN"),
    )
    return _run(broker, command)


def c_produce(broker: Contender, count: int, acks: str) -> dict[str, float]:
    with broker.topic(1) as topic:
        return _c(broker, count, "produce", topic, acks)


def c_consume(broker: Contender, topic: str, count: int) -> dict[str, float]:
    return _c(broker, count, "consume", topic)


def _c(broker: Contender, count: int, *args: str) -> dict[str, float]:
    said, cpu = _run(broker, [sys.executable, __file__, args[0], broker.address, args[1], str(count), *args[2:]])
    return _figures(count / json.loads(said)["seconds"], cpu, count)


@contextmanager
def readable_topic(broker: Contender, count: int) -> Iterator[str]:
    """A topic with so many records, as a client wrote them."""
    with broker.topic(1) as topic:
        _c(broker, count, "produce", topic, "1")
        yield topic


def _run(broker: Contender, command: list[str]) -> tuple[str, float]:
    cpu = broker.cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    return done.stdout, broker.cpu_seconds() - cpu


def _figures(records_per_s: float, cpu_seconds: float, count: int) -> dict[str, float]:
    return {
        "mb_per_s": records_per_s * RECORD_BYTES / 1e6,
        "records_per_s": records_per_s,
        "cpu_s_per_gb": cpu_seconds / (count * RECORD_BYTES / 1e9),
    }


# --- the C client itself


def _produce(address: str, topic: str, count: int, acks: str) -> float:
    from confluent_kafka import Producer

    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": acks,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "linger.ms": 5,
            "on_delivery": lambda error, _: failures.append(error) if error else None,
        }
    )
    value = bytes(RECORD_BYTES)
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(_TIMEOUT_S)
    if failures or left:
        raise SystemExit(f"{len(failures)} records failed, {left} are left: {failures[:1]}")
    return time.perf_counter() - started


def _consume(address: str, topic: str, count: int) -> float:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    started = time.perf_counter()
    seen = 0
    while seen < count:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            if message.error():
                raise SystemExit(str(message.error()))
        seen += len(messages)
        if time.perf_counter() - started > _TIMEOUT_S:
            raise SystemExit(f"{seen} of {count} records came")
    elapsed = time.perf_counter() - started
    consumer.close()
    return elapsed


def main() -> None:
    what, address, topic, count, *rest = sys.argv[1:]
    seconds = (_produce if what == "produce" else _consume)(address, topic, int(count), *rest)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
