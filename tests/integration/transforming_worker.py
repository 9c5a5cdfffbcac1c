"""Consume, transform, produce, in transactions: a process that is there to be killed.

`python -m tests.integration.transforming_worker BOOTSTRAP INDEX SEED PROTOCOL`; every step it takes is a line
on stdout. Now and then it aborts on purpose, after writing records that nobody may ever see.
"""

import os
import random
import sys
import threading

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

INPUT, OUTPUT, GROUP = "inputs", "outputs", "transformers"
NEVER_SEEN = b"never"
_AT_ONCE = 15
_REQUEST_S = 10.0
_HANGING_S = 1.5
_PROTOCOLS = {
    "classic": {"session.timeout.ms": 1500, "heartbeat.interval.ms": 200},
    "consumer": {"group.protocol": "consumer"},
}


def transformed(value: bytes) -> bytes:
    """What becomes of an input."""
    return value[::-1] + b"!"


class Worker:
    """One member of the group, with a transactional id of its own."""

    def __init__(self, bootstrap: str, index: str, chance: random.Random, protocol: str) -> None:
        reconnecting = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
        self._chance = chance
        self._producer = Producer(
            reconnecting
            | {"transactional.id": f"worker-{index}", "linger.ms": 1, "retry.backoff.ms": 20, "error_cb": _ignore}
        )
        self._consumer = Consumer(
            reconnecting
            | {
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **_PROTOCOLS[protocol],
                "fetch.wait.max.ms": 50,
                "retry.backoff.ms": 20,
                "error_cb": _ignore,
            }
        )

    def run(self) -> None:
        """Work for ever."""
        tell("started")
        self._producer.init_transactions(_REQUEST_S)
        tell("initialised")
        self._consumer.subscribe([INPUT])
        while True:
            messages = [found for found in self._consumer.consume(_AT_ONCE, 0.1) if found.error() is None]
            if messages:
                try:
                    self._transact(messages)
                except KafkaException as error:
                    self._recover(error.args[0])

    def _transact(self, messages: list[Message]) -> None:
        producer = self._producer
        producer.begin_transaction()
        is_aborted = self._chance.random() < 0.1
        for message in messages:
            value = NEVER_SEEN if is_aborted else transformed(message.value() or b"")
            producer.produce(OUTPUT, value, message.key(), partition=message.partition() or 0)
        if self._chance.random() < 0.5:
            producer.flush(_REQUEST_S)
        tell("produced")
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.partition() or 0] = (message.offset() or 0) + 1
        offsets = [TopicPartition(INPUT, partition, offset) for partition, offset in ends.items()]
        # librdkafka ignores this call's time-out (its issue 5456) and may wait for ever when the broker comes back
        # (5511): a worker that hangs here ends, and is started again.
        watch = threading.Timer(_HANGING_S, os._exit, (4,))
        watch.start()
        try:
            producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), _REQUEST_S)
        finally:
            watch.cancel()
        tell("offsets")
        if is_aborted:
            producer.flush(_REQUEST_S)
            self._abort_and_rewind()
            return
        producer.commit_transaction(_REQUEST_S)
        tell("committed")

    def _recover(self, error: KafkaError) -> None:
        tell(f"failed {error.name()}")
        if error.fatal() or not error.txn_requires_abort():
            sys.exit(3)  # whoever started it starts it again
        self._abort_and_rewind()

    def _abort_and_rewind(self) -> None:
        self._producer.abort_transaction(_REQUEST_S)
        tell("aborted")
        for committed in self._consumer.committed(self._consumer.assignment(), _REQUEST_S):
            self._consumer.seek(TopicPartition(INPUT, committed.partition, max(committed.offset, 0)))


def tell(step: str) -> None:
    """Say what was done."""
    os.write(1, step.encode() + b"\n")


def _ignore(_: KafkaError) -> None:
    """Brokers come and go here."""


if __name__ == "__main__":
    try:
        Worker(sys.argv[1], sys.argv[2], random.Random(int(sys.argv[3])), sys.argv[4]).run()
    except KafkaException as error:
        tell(f"ended {error.args[0].name()} {error.args[0].str()}")
        sys.exit(3)
