"""Transactional producers behind one face: every call tells Kafka's name of its error, `NONE` if there was none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import aiokafka
import confluent_kafka
from aiokafka.errors import KafkaError as AioError

from tests.conformance.clients import aio, confluent, python
from tests.conformance.clients.members import AioLoop

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 60


class ConfluentTransactions:
    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    def init(self) -> str:
        return confluent.error_of(lambda: self._producer.init_transactions(_TIMEOUT_S))

    def begin(self) -> str:
        return confluent.error_of(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> str:
        """Send a record and wait for what becomes of it."""

        def send() -> None:
            # A producer that is fenced raises that here. It must have no callback for deliveries: the client would
            # call it with the exception already set.
            self._producer.produce(topic, value, partition=partition)
            assert self._producer.flush(_TIMEOUT_S) == 0

        return confluent.error_of(send)

    def send_offsets(self, member: Any, topic: str, offsets: Mapping[int, int]) -> str:
        places = [confluent_kafka.TopicPartition(topic, *each) for each in offsets.items()]
        group = member.consumer.consumer_group_metadata()
        return confluent.error_of(lambda: self._producer.send_offsets_to_transaction(places, group, _TIMEOUT_S))

    def commit(self) -> str:
        return confluent.error_of(lambda: self._producer.commit_transaction(_TIMEOUT_S))

    def abort(self) -> str:
        return confluent.error_of(lambda: self._producer.abort_transaction(_TIMEOUT_S))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()


class PythonTransactions:
    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = python.KafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, linger_ms=1
        )

    def init(self) -> str:
        return python.error_of(self._producer.init_transactions)

    def begin(self) -> str:
        return python.error_of(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> str:
        def send() -> None:
            sent = self._producer.send(topic, value, partition=partition)
            self._producer.flush(_TIMEOUT_S)
            sent.get(_TIMEOUT_S)

        return python.error_of(send)

    def send_offsets(self, member: Any, topic: str, offsets: Mapping[int, int]) -> str:
        places = {
            python.TopicPartition(topic, partition): python.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        group = member.consumer.group_metadata()
        return python.error_of(lambda: self._producer.send_offsets_to_transaction(places, group))

    def commit(self) -> str:
        return python.error_of(self._producer.commit_transaction)

    def abort(self) -> str:
        return python.error_of(self._producer.abort_transaction)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close(timeout=0)


class AioTransactions:
    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._loop = AioLoop()
        self._settings = {
            "bootstrap_servers": servers,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
        }

    def init(self) -> str:
        async def start() -> None:
            self._producer = aiokafka.AIOKafkaProducer(**self._settings)
            await self._producer.start()

        return self._told(start())

    def begin(self) -> str:
        return self._told(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> str:
        return self._told(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offsets(self, member: Any, topic: str, offsets: Mapping[int, int]) -> str:
        places = {aiokafka.TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        return self._told(self._producer.send_offsets_to_transaction(places, member.group))

    def commit(self) -> str:
        return self._told(self._producer.commit_transaction())

    def abort(self) -> str:
        return self._told(self._producer.abort_transaction())

    def _told(self, work: Any) -> str:
        try:
            self._loop.run(work)
        except AioError as error:
            return aio.name_of(error)
        return "NONE"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._told(self._producer.stop())
        self._loop.close()


TRANSACTIONS: dict[str, Any] = {
    "Confluent": ConfluentTransactions,
    "Aio": AioTransactions,
    "Python": PythonTransactions,
}
