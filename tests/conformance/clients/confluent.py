"""confluent-kafka: the C client, librdkafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from headrace.protocol.errors import ErrorCode
from tests.conformance.clients.record import CREATE_TIME, LOG_APPEND_TIME, OnRecord, Seen, ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_TIMEOUT_S = 60


class Confluent:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    large: ClassVar[dict[str, int]] = {"message_max_bytes": 10_000_000}
    small_fetch: ClassVar[dict[str, int]] = {
        "fetch_max_bytes": 1000,
        "fetch_message_max_bytes": 1000,
        "message_max_bytes": 1000,
    }
    long_wait: ClassVar[dict[str, int]] = {"fetch_wait_max_ms": 20_000}

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self._admin

    # --- topics

    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replicas: int = 1,
        validate_only: bool = False,
    ) -> str:  # fmt: skip
        new = NewTopic(topic, partitions, replicas, config=dict(configs or {}))
        return error_of(lambda: self._admin.create_topics([new], validate_only=validate_only)[topic].result(_TIMEOUT_S))

    def delete(self, topic: str) -> str:
        return error_of(lambda: self._admin.delete_topics([topic])[topic].result(_TIMEOUT_S))

    def grow(self, topic: str, partitions: int) -> str:
        new = NewPartitions(topic, partitions)
        return error_of(lambda: self._admin.create_partitions([new])[topic].result(_TIMEOUT_S))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=_TIMEOUT_S).topics)

    def describe(self, topic: str) -> Any:
        described = self._admin.describe_topics(TopicCollection([topic]))[topic]
        try:
            told = described.result(_TIMEOUT_S)
        except KafkaException as error:
            return name_of(error)
        return {
            "internal": told.is_internal,
            "partitions": [
                (each.id, each.leader.id, [node.id for node in each.replicas], [node.id for node in each.isr])
                for each in told.partitions
            ],
        }

    # --- settings

    def configs(self, topic: str) -> Any:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            told = self._admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
        except KafkaException as error:
            return name_of(error)
        return {
            name: {
                "value": each.value,
                "source": each.source,
                "read only": each.is_read_only,
                "default": each.is_default,
                "sensitive": each.is_sensitive,
                "synonyms": [(other.name, other.value, other.source) for other in each.synonyms.values()],
            }
            for name, each in told.items()
        }

    def change(self, topic: str, changes: Iterable[tuple[str, str, str | None]]) -> str:
        """Set, delete, append or subtract."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType[operation.upper()])
            for operation, name, value in changes
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        return error_of(lambda: self._admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S))

    # --- records

    def produce(
        self, topic: str, records: Iterable[Mapping[str, Any]], *, codec: str = "none", acks: str = "all",
        idempotent: bool = False, **options: Any,
    ) -> list[tuple[int, int] | str]:  # fmt: skip
        """Where each record went (partition and offset), or its error."""
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
                "delivery.timeout.ms": 20000,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        records = list(records)
        results: list[tuple[int, int] | str] = ["lost"] * len(records)

        def tell(index: int) -> Callable[[KafkaError | None, Any], None]:
            def told(error: KafkaError | None, message: Any) -> None:
                results[index] = code_name_of(error) if error else (message.partition(), message.offset())

            return told

        for index, record in enumerate(records):
            try:
                producer.produce(topic, on_delivery=tell(index), **record)
            except KafkaException as error:
                results[index] = name_of(error)
        assert producer.flush(_TIMEOUT_S) == 0
        return results

    def consume(
        self, topic: str, places: Mapping[int, int], count: int, on_record: OnRecord = ignore, **options: Any
    ) -> list[Seen]:
        """So many records from these partitions and offsets on, by partition and offset."""
        consumer = self._consumer(**options)
        try:
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in places.items()])
            seen = []
            while len(seen) < count:
                message = consumer.poll(_TIMEOUT_S)
                assert message is not None, f"{len(seen)} of {count} records came"
                if message.error():
                    raise KafkaException(message.error())
                seen.append(_seen(message))
                on_record(len(seen))
            return sorted(seen)
        finally:
            consumer.close()

    def error_at(self, topic: str, offset: int, partition: int = 0) -> str:
        """What a consumer is told that begins there, without a policy to reset to."""
        consumer = self._consumer(auto_offset_reset="error")
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            message = consumer.poll(_TIMEOUT_S)
            assert message is not None
            error = message.error()
            return code_name_of(error) if error else "NONE"
        finally:
            consumer.close()

    def _consumer(self, **options: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "nobody",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )

    # --- offsets

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), _TIMEOUT_S)
            return low, high
        finally:
            consumer.close()

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        return self._list(topic, partition, OffsetSpec.for_timestamp(timestamp))[0]

    def youngest(self, topic: str, partition: int = 0) -> tuple[int, int]:
        return self._list(topic, partition, OffsetSpec.max_timestamp())

    def _list(self, topic: str, partition: int, spec: OffsetSpec) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        found = self._admin.list_offsets({place: spec})[place].result(_TIMEOUT_S)
        return found.offset, found.timestamp

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> int | str:
        place = TopicPartition(topic, partition, offset)
        try:
            return self._admin.delete_records([place])[place].result(_TIMEOUT_S).low_watermark
        except KafkaException as error:
            return name_of(error)

    def cluster(self) -> Any:
        told = self._admin.describe_cluster(include_authorized_operations=True).result(_TIMEOUT_S)
        operations = sorted(each.name for each in told.authorized_operations)
        return {"nodes": [node.id for node in told.nodes], "controller": told.controller.id, "operations": operations}


def _seen(message: Any) -> Seen:
    kind, timestamp = message.timestamp()
    appended = kind == TIMESTAMP_LOG_APPEND_TIME
    return Seen(
        message.partition(),
        message.offset(),
        LOG_APPEND_TIME if appended else CREATE_TIME,
        None if appended else timestamp,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except KafkaException as error:
        return name_of(error)
    return "NONE"


def name_of(error: KafkaException) -> str:
    return code_name_of(error.args[0])


def code_name_of(error: KafkaError) -> str:
    return ErrorCode(error.code()).name if error.code() >= 0 else error.name()
