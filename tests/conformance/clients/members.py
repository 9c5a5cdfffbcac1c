"""Members of consumer groups behind one face: each client joins, reads, commits and leaves in its own way.

A member is used from one thread, which calls `done` when it has dealt with what `poll` gave it. Clients differ in
where a rebalance finds the program: confluent-kafka takes partitions away inside `poll`, and `before_revoked` may
commit there; aiokafka does it in the background, so here it is made to wait for `done`; kafka-python does it on the
thread of its input and output, where a commit would wait for itself.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka
from aiokafka.coordinator.assignors import range as aio_range
from aiokafka.coordinator.assignors import roundrobin as aio_roundrobin
from aiokafka.coordinator.assignors.sticky import sticky_assignor as aio_sticky
from aiokafka.errors import KafkaError as AioError

from tests.conformance.clients import aio, confluent, python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_TIMEOUT_S = 60
_POLL_MS = 100
_JOIN_MS = 2000

Read = tuple[int, int, bytes]
"""Partition, offset and value."""


class Refused(Exception):
    """A member was told an error instead of records; its argument is Kafka's name for it."""


@dataclass(frozen=True)
class Asked:
    """What a member is to be; the assignor `consumer` means the new protocol (KIP-848), where the broker assigns."""

    servers: str
    group: str
    topic: str
    assignor: str = "range"
    session_ms: int = 2000
    max_poll_ms: int = 300_000
    instance: str | None = None
    reset: str = "earliest"


def _nothing() -> None:
    pass


class ConfluentMember:
    def __init__(self, asked: Asked, before_revoked: Callable[[], None] = _nothing) -> None:
        settings = {
            "bootstrap.servers": asked.servers,
            "group.id": asked.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error" if asked.reset == "none" else asked.reset,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": _POLL_MS,
            "log_level": 0,
            "max.poll.interval.ms": asked.max_poll_ms,
        }
        if asked.assignor == "consumer":
            settings |= {"group.protocol": "consumer"}
        else:
            settings |= {"partition.assignment.strategy": asked.assignor, "session.timeout.ms": asked.session_ms}
            settings |= {"heartbeat.interval.ms": 200}
        if asked.instance:
            settings |= {"group.instance.id": asked.instance}
        self.consumer = confluent_kafka.Consumer(settings)
        self._topic = asked.topic
        self.consumer.subscribe(
            [asked.topic], on_revoke=lambda *_: before_revoked(), on_lost=lambda *_: None
        )  # without `on_lost` what is lost would be revoked

    def poll(self) -> list[Read]:
        messages = self.consumer.consume(10, _POLL_MS / 1000)
        for each in messages:
            # That it did not poll for too long is told once, and mended by polling.
            if each.error() and each.error().code() != confluent_kafka.KafkaError._MAX_POLL_EXCEEDED:
                raise Refused(confluent.code_name_of(each.error()))
        return [(each.partition(), each.offset(), each.value()) for each in messages if not each.error()]

    def done(self) -> None:
        pass

    def held(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self, offsets: Mapping[int, int], note: str) -> str:
        places = [confluent_kafka.TopicPartition(self._topic, *each, metadata=note) for each in offsets.items()]

        def commit() -> None:
            for each in self.consumer.commit(offsets=places, asynchronous=False):
                if each.error:
                    raise confluent_kafka.KafkaException(each.error)

        return confluent.error_of(commit)

    def committed(self, partitions: Iterable[int]) -> dict[int, tuple[int, str]]:
        places = [confluent_kafka.TopicPartition(self._topic, each) for each in partitions]
        told = self.consumer.committed(places, _TIMEOUT_S)
        return {each.partition: (each.offset, each.metadata) for each in told}

    def leave(self) -> None:
        self.consumer.close()


class PythonMember:
    def __init__(self, asked: Asked, before_revoked: Callable[[], None] = _nothing) -> None:
        self._topic = asked.topic
        self.consumer = python.KafkaConsumer(
            bootstrap_servers=asked.servers,
            group_id=asked.group,
            enable_auto_commit=False,
            auto_offset_reset=asked.reset,
            isolation_level="read_committed",
            fetch_max_wait_ms=_POLL_MS,
            session_timeout_ms=asked.session_ms,
            heartbeat_interval_ms=200,
            max_poll_interval_ms=asked.max_poll_ms,
            group_instance_id=asked.instance,
            partition_assignment_strategy=[python.ASSIGNORS[asked.assignor]],
        )
        self.consumer.subscribe([asked.topic])

    def poll(self) -> list[Read]:
        try:
            # A poll that ends in the middle of its first join may leave the client waiting for good, on any broker.
            patience_ms = _POLL_MS if self.consumer.assignment() else _JOIN_MS
            found = self.consumer.poll(timeout_ms=patience_ms, max_records=10)
        except python.KafkaError as error:
            raise Refused(python.name_of(error)) from error
        return [(each.partition, each.offset, each.value) for some in found.values() for each in some]

    def done(self) -> None:
        pass

    def held(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self, offsets: Mapping[int, int], note: str) -> str:
        places = {
            python.TopicPartition(self._topic, partition): python.OffsetAndMetadata(offset, note, -1)
            for partition, offset in offsets.items()
        }
        return python.error_of(lambda: self.consumer.commit(places, timeout_ms=_TIMEOUT_S * 1000))

    def committed(self, partitions: Iterable[int]) -> dict[int, tuple[int, str]]:
        told = {
            each: self.consumer.committed(python.TopicPartition(self._topic, each), metadata=True)
            for each in partitions
        }
        return {partition: (each.offset, each.metadata) for partition, each in told.items()}

    def leave(self) -> None:
        self.consumer.close()


_AIO_ASSIGNORS = {
    "range": aio_range.RangePartitionAssignor,
    "roundrobin": aio_roundrobin.RoundRobinPartitionAssignor,
    "sticky": aio_sticky.StickyPartitionAssignor,
}


class AioLoop:
    """An event loop in a thread of its own: what the client does in the background goes on between the calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AioMember:
    def __init__(self, asked: Asked, before_revoked: Callable[[], None] = _nothing) -> None:
        self._asked, self.group = asked, asked.group
        self._loop = AioLoop()
        self._loop.run(self._start(asked))

    async def _start(self, asked: Asked) -> None:
        is_done = self._is_done = asyncio.Event()
        is_done.set()
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=asked.servers,
            group_id=asked.group,
            enable_auto_commit=False,
            auto_offset_reset=asked.reset,
            isolation_level="read_committed",
            fetch_max_wait_ms=_POLL_MS,
            session_timeout_ms=asked.session_ms,
            heartbeat_interval_ms=200,
            max_poll_interval_ms=asked.max_poll_ms,
            group_instance_id=asked.instance,
            partition_assignment_strategy=[_AIO_ASSIGNORS[asked.assignor]],
        )

        class Listener(aiokafka.ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: Any) -> None:
                await is_done.wait()

            async def on_partitions_assigned(self, assigned: Any) -> None:
                pass

        self.consumer.subscribe([asked.topic], listener=Listener())
        await self.consumer.start()

    def poll(self) -> list[Read]:
        try:
            found = self._loop.run(self._poll())
        except AioError as error:
            raise Refused(aio.name_of(error)) from error
        return [(each.partition, each.offset, each.value) for some in found.values() for each in some]

    async def _poll(self) -> Any:
        found = await self.consumer.getmany(timeout_ms=_POLL_MS, max_records=10)
        self._is_done.clear()
        return found

    def done(self) -> None:
        async def tell() -> None:
            self._is_done.set()

        self._loop.run(tell())

    def held(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self, offsets: Mapping[int, int], note: str) -> str:
        places = {
            aiokafka.TopicPartition(self._asked.topic, partition): (offset, note)
            for partition, offset in offsets.items()
        }
        try:
            self._loop.run(self.consumer.commit(places))
        except AioError as error:
            return aio.name_of(error)
        return "NONE"

    def committed(self, partitions: Iterable[int]) -> dict[int, tuple[int, str]]:
        # The consumer tells no metadata; the administrator does.
        return self._loop.run(self._committed(list(partitions)))

    async def _committed(self, partitions: list[int]) -> dict[int, tuple[int, str]]:
        admin = aio.AIOKafkaAdminClient(bootstrap_servers=self._asked.servers)
        await admin.start()
        try:
            places = [aiokafka.TopicPartition(self._asked.topic, each) for each in partitions]
            told = await admin.list_consumer_group_offsets(self._asked.group, partitions=places)
            return {place.partition: (each.offset, each.metadata) for place, each in told.items()}
        finally:
            await admin.close()

    def leave(self) -> None:
        self._loop.run(self.consumer.stop())
        self._loop.close()


MEMBERS: dict[str, Any] = {"Confluent": ConfluentMember, "Aio": AioMember, "Python": PythonMember}
