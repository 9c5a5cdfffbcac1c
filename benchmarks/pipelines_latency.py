"""A topic fed at a steady low rate, and how long its records take to come out of another one."""

import threading
import time
from typing import Self

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from broker_latency import percentiles
from pipelines_events import EVENTS, SPAN_START_MS

RATE_PER_S = 200
PARTITIONS = 2  # as many as there are cores: real-time mode needs a free slot for each
_PATIENCE_S = 30


class Feed:
    """Records at `RATE_PER_S` for as long as the `with` lasts, each with the moment it was due as its `id`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._topic = topic
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        begin = time.time_ns()
        number = 0
        while not self._done.is_set():
            due = begin + number * 1_000_000_000 // RATE_PER_S
            if (left := due - time.time_ns()) > 0:
                time.sleep(left / 1e9)
            # From when it was due: who holds up the next record is not let off (coordinated omission).
            value = (
                f'{{"id":{due},"user":"u-{number % 1000:06d}","event":"{EVENTS[number % len(EVENTS)]}",'
                f'"amount":{number % 500}.25,"ts":{SPAN_START_MS},"country":"NO"}}'
            )
            self._producer.produce(self._topic, value.encode(), b"u-%06d" % (number % 1000), number % PARTITIONS)
            self._producer.poll(0)
            number += 1


def arrivals(bootstrap: str, topic: str, seconds: float, warm_up_s: float) -> dict[str, float]:
    """The percentiles of what the records took that were due within `seconds`, after `warm_up_s` that do not count."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-arrivals",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 1,
        }
    )
    begin = time.time_ns() + int(warm_up_s * 1e9)
    end = begin + int(seconds * 1e9)
    wanted = int(seconds * RATE_PER_S)
    found: list[float] = []
    try:
        consumer.assign([TopicPartition(topic, each, OFFSET_END) for each in range(PARTITIONS)])
        # All of them are waited for: one that is stuck is a long wait, not a missing figure. The edges may cut one off.
        while len(found) < wanted - 1 and time.time_ns() < end + int(_PATIENCE_S * 1e9):
            message = consumer.poll(0.1)
            now = time.time_ns()
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise RuntimeError(error.str())
            due = int(message.value()[6:].partition(b",")[0])
            if begin <= due < end:
                found.append((now - due) / 1e9)
    finally:
        consumer.close()
    if len(found) < wanted - 1:
        raise RuntimeError(f"{wanted - len(found)} of {wanted} records have not come out of {topic}")
    return percentiles(found)
