"""aiokafka: the asyncio client, run on a loop of its own behind blocking calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from headrace.protocol.errors import ErrorCode
from tests.conformance.clients.record import CREATE_TIME, LOG_APPEND_TIME, OnRecord, Seen, ignore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

_TIMEOUT_S = 60


class Aio:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    large: ClassVar[dict[str, int]] = {"max_request_size": 10_000_000}
    small_fetch: ClassVar[dict[str, int]] = {"fetch_max_bytes": 1000, "max_partition_fetch_bytes": 1000}
    long_wait: ClassVar[dict[str, int]] = {"fetch_max_wait_ms": 20_000}

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._runner = asyncio.Runner()
        self._admin = self._run(self._start_admin())

    async def _start_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        return admin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._admin.close())
        self._runner.close()

    def _run(self, work: Awaitable[Any]) -> Any:
        async def limited() -> Any:
            return await asyncio.wait_for(work, _TIMEOUT_S)

        return self._runner.run(limited())

    def _ask(self, work: Awaitable[Any], errors: str) -> str:
        # Some of its calls raise what the broker refused, others return it.
        try:
            return _code_name(getattr(self._run(work), errors)[0][1])
        except KafkaError as error:
            return name_of(error)

    # --- topics

    def create(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replicas: int = 1,
        validate_only: bool = False,
    ) -> str:  # fmt: skip
        new = NewTopic(topic, partitions, replicas, topic_configs=dict(configs or {}))
        return self._ask(self._admin.create_topics([new], validate_only=validate_only), "topic_errors")

    def delete(self, topic: str) -> str:
        return self._ask(self._admin.delete_topics([topic]), "topic_error_codes")

    def grow(self, topic: str, partitions: int) -> str:
        return self._ask(self._admin.create_partitions({topic: NewPartitions(partitions)}), "topic_errors")

    def topics(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def describe(self, topic: str) -> Any:
        (told,) = self._run(self._admin.describe_topics([topic]))
        if told["error_code"]:
            return _code_name(told["error_code"])
        return {
            "internal": told["is_internal"],
            "partitions": sorted(
                (each["partition"], each["leader"], each["replicas"], each["isr"]) for each in told["partitions"]
            ),
        }

    # --- settings

    def configs(self, topic: str) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = self._run(self._admin.describe_configs([resource], include_synonyms=True))
        code, _, _, _, entries = response.resources[0][:5]
        if code:
            return _code_name(code)
        return {
            entry[0]: [list(part) if isinstance(part, (list, tuple)) else part for part in entry[1:]]
            for entry in entries
        }

    # --- records

    def produce(
        self, topic: str, records: Iterable[Mapping[str, Any]], *, codec: str = "none", acks: str = "all",
        idempotent: bool = False, **options: Any,
    ) -> list[tuple[int, int] | str]:  # fmt: skip
        settings = {
            "bootstrap_servers": self.servers,
            "compression_type": None if codec == "none" else codec,
            "acks": acks if acks == "all" else int(acks),
            "enable_idempotence": idempotent,
            "linger_ms": 20,
            **options,
        }
        return self._run(_produce(settings, topic, list(records)))

    def consume(
        self, topic: str, places: Mapping[int, int], count: int, on_record: OnRecord = ignore, **options: Any
    ) -> list[Seen]:
        return self._run(_consume(self.servers, topic, places, count, options, on_record))

    def error_at(self, topic: str, offset: int, partition: int = 0) -> str:
        try:
            self._run(_consume(self.servers, topic, {partition: offset}, 1, {"auto_offset_reset": "none"}))
        except KafkaError as error:
            return name_of(error)
        return "NONE"

    # --- offsets

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        place = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> tuple[int, int]:
            return (await consumer.beginning_offsets([place]))[place], (await consumer.end_offsets([place]))[place]

        return self._run(_with_consumer(self.servers, ask))

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> int:
            found = (await consumer.offsets_for_times({place: timestamp}))[place]
            return found.offset if found else -1

        return self._run(_with_consumer(self.servers, ask))

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> int | str:
        place = TopicPartition(topic, partition)
        try:
            return self._run(self._admin.delete_records({place: RecordsToDelete(before_offset=offset)}))[place]
        except KafkaError as error:
            return name_of(error)

    def cluster(self) -> Any:
        told = self._run(self._admin.describe_cluster())
        return {"nodes": [node["node_id"] for node in told["brokers"]], "controller": told["controller_id"]}


async def _produce(settings: dict[str, Any], topic: str, records: list[Mapping[str, Any]]) -> list[Any]:
    producer = AIOKafkaProducer(**settings)
    await producer.start()
    try:
        sent: list[Any] = []
        for record in records:
            given = dict(record)
            if "timestamp" in given:
                given["timestamp_ms"] = given.pop("timestamp")
            try:
                sent.append(await producer.send(topic, **given))
            except KafkaError as error:
                sent.append(name_of(error))
        return [each if isinstance(each, str) else await _sent(each) for each in sent]
    finally:
        await producer.stop()


async def _sent(future: Awaitable[Any]) -> tuple[int, int] | str:
    try:
        told = await future
    except KafkaError as error:
        return name_of(error)
    return (told.partition, told.offset) if told is not None else "NONE"


async def _consume(
    servers: str,
    topic: str,
    places: Mapping[int, int],
    count: int,
    options: Mapping[str, Any],
    on_record: OnRecord = ignore,
) -> list[Seen]:
    async def read(consumer: AIOKafkaConsumer) -> list[Seen]:
        consumer.assign([TopicPartition(topic, partition) for partition in places])
        for partition, offset in places.items():
            consumer.seek(TopicPartition(topic, partition), offset)
        seen = []
        while len(seen) < count:
            seen.append(_seen(await consumer.getone()))
            on_record(len(seen))
        return sorted(seen)

    return await _with_consumer(servers, read, **options)


async def _with_consumer(servers: str, work: Any, **options: Any) -> Any:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, **options)
    await consumer.start()
    try:
        return await work(consumer)
    finally:
        await consumer.stop()


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


def name_of(error: KafkaError) -> str:
    code = getattr(error, "errno", -1)  # the client's own errors have no number
    return _code_name(code) if code >= 0 else type(error).__name__


def _code_name(code: int) -> str:
    return ErrorCode(code).name
