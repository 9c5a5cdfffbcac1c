"""A member of a consumer group, in a process of its own: to be killed (a crash), stopped (a stall), or told to leave.

`python -m tests.integration.group_member '{"group.id": …}' TOPIC`; it says which partitions it has, and what it reads,
and commits after that. SIGTERM makes it leave.
"""

import json
import os
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

_leaving = False


def tell(**what: object) -> None:
    """Say something, on a line of its own."""
    os.write(1, json.dumps(what).encode() + b"\n")


def run(settings: dict[str, str], topic: str) -> None:
    """Read until told to leave."""
    consumer = Consumer(settings)

    def changed(_: Consumer, partitions: list[TopicPartition], *, sign: int) -> None:
        names = [f"{found.topic}-{found.partition}" for found in partitions]
        tell(**{"gained" if sign > 0 else "lost": names})

    consumer.subscribe(
        [topic],
        on_assign=lambda c, p: changed(c, p, sign=1),
        on_revoke=lambda c, p: changed(c, p, sign=-1),
        on_lost=lambda c, p: changed(c, p, sign=-1),
    )
    while not _leaving:
        messages = [found for found in consumer.consume(10, 0.1) if found.error() is None]
        if messages:
            places = [(f"{found.topic()}-{found.partition()}", found.offset()) for found in messages]
            tell(read=places, at=time.monotonic())  # which is one clock for all processes
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:  # a rebalance came between: who has the partition now reads it again
                tell(refused=error.args[0].name())
    consumer.close()
    tell(left=True)


def _leave(*_: object) -> None:
    global _leaving
    _leaving = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    run(json.loads(sys.argv[1]), sys.argv[2])
