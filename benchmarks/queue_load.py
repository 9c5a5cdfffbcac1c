"""The contenders of `queues.py`, each with a queue in a broker of its own, and the one program that puts load on all.

`QueueLoad.java` is one process for all of them, so that its code is as warm for one as for the other: Kafka's own Java
client for our broker and for Kafka, RabbitMQ's own for RabbitMQ.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self

from broker_report import Figures
from brokers import Process, new_process
from peers.java import java_command
from peers.kafka.broker import KAFKA_FLAGS
from peers.kafka.tools import kafka_logging
from peers.rabbitmq.broker import RabbitBroker
from pipelines_process import Failed, Peak

PARTITIONS = 4  # of a topic; RabbitMQ's queue is one
PREFETCH = 100
IN_FLIGHT = 2_000  # messages in a queue that is called empty; more where consumers have as many in their hands
# Members learn by heartbeats what they are assigned: with the default of five seconds a run is mostly waiting for that.
SETTINGS = {"group.share.min.heartbeat.interval.ms": "1000", "group.share.heartbeat.interval.ms": "1000"}
_PATIENCE_S = 1800.0  # for a backlog of ten million
_SOURCE = Path(__file__).with_name("QueueLoad.java")
_numbers = count()


class QueueLoad:
    """The program, which ends with its input."""

    def __init__(self, folder: Path) -> None:
        command = java_command(
            "kafka",
            str(_SOURCE),
            heap="2g",
            flags=KAFKA_FLAGS,
            system_properties=kafka_logging("WARN"),
            beside=["rabbitmq"],
        )
        self._log = folder / "load.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def order(self, verb: str, **arguments: object) -> dict[str, Any]:
        """Have something done; what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [verb, *(f"{name}={value}" for name, value in arguments.items())]
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        impatience = threading.Timer(_PATIENCE_S, self._process.kill)
        impatience.start()
        try:
            line = self._process.stdout.readline()
        finally:
            impatience.cancel()
        answer = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise Failed(f"the load, {verb}: {answer['error']}\n{self._log.read_text()[-2000:]}")
        return answer


class Contender:
    """A broker that runs, and the queue that is under load."""

    def __init__(self, name: str, process: Process | RabbitBroker, load: QueueLoad) -> None:
        self.name = name
        self._process = process
        self._load = load
        self._queue = ""

    def _order(self, verb: str, **arguments: object) -> dict[str, Any]:
        is_rabbit = isinstance(self._process, RabbitBroker)
        where = {"type": self.name} if is_rabbit else {"partitions": PARTITIONS}
        system = "rabbit" if is_rabbit else "kafka"
        address = self._process.bootstrap_servers
        return self._load.order(verb, system=system, address=address, queue=self._queue, **where, **arguments)

    @contextmanager
    def queue(self, waiting: int) -> Iterator[None]:
        """A new queue in which so many messages wait."""
        self._queue = f"bench-{next(_numbers):06d}"
        self._order("create")
        if waiting:
            self._order("fill", count=waiting)
        yield
        self._order("delete")

    def run(self, consumers: int, seconds: float, waiting: int = 0, rate: int = 0, prefetch: int = PREFETCH) -> Figures:
        """Messages in at one end and out at the other, `waiting` of them in between all the time.

        Without a rate they come as fast as they are acknowledged. With a prefetch of one, times are those from one
        message of a consumer to its next; else those from when a message was due to its arrival.
        """
        with Peak(self._process.pid) as peak:
            done = self._order(
                "run",
                pid=self._process.pid,
                consumers=consumers,
                seconds=seconds,
                rate=rate,
                held=waiting,
                window=waiting or max(IN_FLIGHT, 3 * consumers * prefetch),
                prefetch=prefetch,
                gaps=int(prefetch == 1),
            )
        if not done["messages"]:
            raise Failed(f"{self.name}: no message came out of the queue")
        if done["returned"] > done["messages"] / 100:
            raise Failed(f"{self.name}: {done['returned']} messages were not acknowledged, since their partition moved")
        return {
            "messages_per_s": done["messages"] / done["seconds"],
            "cpu_us_per_message": done["cpu_s"] / done["messages"] * 1e6,
            "p50_ms": done["p50_ms"],
            "p99_ms": done["p99_ms"],
            "peak_mb": peak.bytes / 1e6,
            "served": done["served"],
        }


@contextmanager
def contender(name: str, durability: str, folder: Path, load: QueueLoad) -> Iterator[Contender]:
    """`headrace`, `kafka`, `classic` or `quorum`, running."""
    data_dir = folder / f"{name}-{durability}"
    process: Process | RabbitBroker
    if name in ("classic", "quorum"):
        process = RabbitBroker(data_dir)
    else:
        process = new_process(f"ours-{durability}" if name == "headrace" else "kafka", data_dir, SETTINGS)
    try:
        process.start()
        yield Contender(name, process, load)
        process.stop()
    finally:
        process.kill()
