"""Topics read back by another client than ours, up to all that was written before.

The end of a transaction is answered before its markers are written, by Kafka as by us. Who reads committed records
right after it may come to their end before the transaction is part of them: the end that counts is the high watermark,
once the last stable offset has reached it. Only for topics in which no transaction stays open.
"""

import time
from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

PATIENCE_S = 60.0


def wait_for_markers(servers: str, *topics: str) -> dict[tuple[str, int], int]:
    """Until readers of committed records see all that is in the topics now; the ends of their partitions now."""
    admin = AdminClient({"bootstrap.servers": servers})
    partitions = [TopicPartition(topic, number) for topic in topics for number in _partitions(admin, topic)]
    ends = _ends(admin, partitions, IsolationLevel.READ_UNCOMMITTED)
    deadline = time.monotonic() + PATIENCE_S
    while any(
        stable < ends[where] for where, stable in _ends(admin, partitions, IsolationLevel.READ_COMMITTED).items()
    ):
        assert time.monotonic() < deadline, f"a transaction is left open in {topics}, before {ends}"
        time.sleep(0.01)  # the pause of a poll: a marker tells nobody that it was written
    return ends


def _partitions(admin: AdminClient, topic: str) -> list[int]:
    """The partitions of a topic; Kafka answers that it was made before all of it know of it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions):
        assert time.monotonic() < deadline, f"topic {topic!r} does not exist"
        time.sleep(0.01)
    return list(found)


def _ends(
    admin: AdminClient, partitions: list[TopicPartition], isolation: IsolationLevel
) -> dict[tuple[str, int], int]:
    asked = admin.list_offsets({where: OffsetSpec.latest() for where in partitions}, isolation_level=isolation)
    return {(where.topic, where.partition): future.result(PATIENCE_S).offset for where, future in asked.items()}


def read_committed(servers: str, *topics: str) -> list[Message]:
    """Every committed record of the topics, in the order of each partition."""
    ends = wait_for_markers(servers, *topics)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in ends])
        return _read_until(consumer, ends)
    finally:
        consumer.close()


def _read_until(consumer: Consumer, ends: Mapping[tuple[str, int], int]) -> list[Message]:
    messages: list[Message] = []
    left = set(ends)
    deadline = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, f"not read to their ends within {PATIENCE_S:.0f} s: {sorted(left)}"
        # One at a time: `consume(n, timeout)` waits out its timeout whenever fewer than n are left.
        message = consumer.poll(1)
        if message is None:
            continue
        where = (message.topic() or "", message.partition() or 0)
        if (error := message.error()) is None:
            messages.append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            if (message.offset() or 0) >= ends[where]:
                left.discard(where)
    return messages
