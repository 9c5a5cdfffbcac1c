"""kafka-python: the client in pure Python. It compresses with gzip alone: the others need libraries of their own."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Self

from headrace.protocol.errors import ErrorCode
from tests.conformance.clients.record import CREATE_TIME, LOG_APPEND_TIME, OnRecord, Seen, ignore

with warnings.catch_warnings():
    # It reads its schemas, while it is imported, in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError

    from kafka import (
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["ASSIGNORS", "OffsetAndMetadata", "Python"]

_TIMEOUT_S = 60

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Python:
    codecs = ("none", "gzip")
    large: ClassVar[dict[str, int]] = {"max_request_size": 10_000_000}
    small_fetch: ClassVar[dict[str, int]] = {"fetch_max_bytes": 1000, "max_partition_fetch_bytes": 1000}
    long_wait: ClassVar[dict[str, int]] = {"fetch_max_wait_ms": 20_000}

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = KafkaAdminClient(bootstrap_servers=servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    # --- topics

    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replicas: int = 1,
        validate_only: bool = False,
    ) -> str:  # fmt: skip
        new = {topic: {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(configs or {})}}
        return error_of(lambda: self._admin.create_topics(new, validate_only=validate_only))

    def delete(self, topic: str) -> str:
        return error_of(lambda: self._admin.delete_topics([topic]))

    def grow(self, topic: str, partitions: int) -> str:
        return error_of(lambda: self._admin.create_partitions({topic: partitions}))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def describe(self, topic: str) -> Any:
        (told,) = self._admin.describe_topics([topic])
        if told["error_code"]:
            return ErrorCode(told["error_code"]).name
        return {
            "internal": told["is_internal"],
            "partitions": [
                (each["partition_index"], each["leader_id"], each["replica_nodes"], each["isr_nodes"])
                for each in told["partitions"]
            ],
        }

    # --- settings

    def configs(self, topic: str) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        told: Any = None

        def ask() -> None:
            nonlocal told
            told = self._admin.describe_configs([resource], include_synonyms=True, config_filter="all")

        error = error_of(ask)
        if error != "NONE":
            return error
        return told.get("topic", {}).get(topic) or "none told"

    def change(self, topic: str, changes: Iterable[tuple[str, str, str | None]]) -> str:
        configs = {name: (AlterConfigOp[operation.upper()], value) for operation, name, value in changes}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        return error_of(lambda: self._admin.alter_configs([resource], raise_on_unknown=False))

    # --- records

    def produce(
        self, topic: str, records: Iterable[Mapping[str, Any]], *, codec: str = "none", acks: str = "all",
        idempotent: bool = False, **options: Any,
    ) -> list[tuple[int, int] | str]:  # fmt: skip
        producer = KafkaProducer(
            bootstrap_servers=self.servers,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=20,
            **options,
        )
        try:
            results: list[Any] = []
            for record in records:
                given = dict(record)
                if "timestamp" in given:
                    given["timestamp_ms"] = given.pop("timestamp")
                try:
                    results.append(producer.send(topic, **given))
                except KafkaError as error:
                    results.append(name_of(error))
            producer.flush(_TIMEOUT_S)
            return [each if isinstance(each, str) else _sent(each) for each in results]
        finally:
            producer.close()

    def consume(
        self, topic: str, places: Mapping[int, int], count: int, on_record: OnRecord = ignore, **options: Any
    ) -> list[Seen]:
        consumer = KafkaConsumer(bootstrap_servers=self.servers, consumer_timeout_ms=_TIMEOUT_S * 1000, **options)
        try:
            consumer.assign([TopicPartition(topic, partition) for partition in places])
            for partition, offset in places.items():
                consumer.seek(TopicPartition(topic, partition), offset)
            seen = []
            for message in consumer:
                seen.append(_seen(message))
                on_record(len(seen))
                if len(seen) == count:
                    break
            assert len(seen) == count, f"{len(seen)} of {count} records came"
            return sorted(seen)
        finally:
            consumer.close()

    def error_at(self, topic: str, offset: int, partition: int = 0) -> str:
        consumer = KafkaConsumer(bootstrap_servers=self.servers, auto_offset_reset="none")
        try:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, offset)
            return error_of(lambda: consumer.poll(timeout_ms=_TIMEOUT_S * 1000))
        finally:
            consumer.close()

    # --- offsets

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        found = [self._list(place, spec)[0] for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)]
        return found[0], found[1]

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        return self._list(TopicPartition(topic, partition), timestamp)[0]

    def youngest(self, topic: str, partition: int = 0) -> tuple[int, int]:
        return self._list(TopicPartition(topic, partition), OffsetSpec.MAX_TIMESTAMP)

    def _list(self, place: TopicPartition, spec: Any) -> tuple[int, int]:
        found = self._admin.list_partition_offsets({place: spec})[place]
        return found.offset, found.timestamp

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> int | str:
        place = TopicPartition(topic, partition)
        answer: Any = None

        def ask() -> None:
            nonlocal answer
            answer = self._admin.delete_records({place: offset})[place]

        error = error_of(ask)
        if error != "NONE":
            return error
        return ErrorCode(answer["error_code"]).name if answer["error_code"] else answer["low_watermark"]

    def cluster(self) -> Any:
        told = self._admin.describe_cluster()
        return {
            "nodes": [node.get("node_id", node.get("broker_id")) for node in told["brokers"]],
            "controller": told["controller_id"],
        }


def _sent(future: Any) -> tuple[int, int] | str:
    try:
        told = future.get(_TIMEOUT_S)
    except KafkaError as error:
        return name_of(error)
    return told.partition, told.offset


def _seen(message: Any) -> Seen:
    appended = message.timestamp_type == 1
    return Seen(
        message.partition,
        message.offset,
        LOG_APPEND_TIME if appended else CREATE_TIME,
        None if appended else message.timestamp,
        message.key,
        message.value,
        tuple(message.headers),
    )


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except KafkaError as error:
        return name_of(error)
    return "NONE"


def name_of(error: KafkaError) -> str:
    code = getattr(error, "errno", -1)  # the client's own errors have no number
    return ErrorCode(code).name if code >= 0 else type(error).__name__
