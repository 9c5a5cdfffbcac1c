"""Where schemas are kept: a registry by its URL, or the topic of the cluster that the records are in."""

import hashlib
import json
import time
from collections.abc import Callable
from typing import Final, Protocol

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.connect.errors import InvalidConnectSetting
from headrace.model import TopicPartition
from headrace.schema_registry import RegistryError, SchemaRegistry, UnknownSchema

TOPIC: Final = "__headrace_avro_schemas"
_HIGHEST: Final = 2**31 - 1
_PARTITION: Final = TopicPartition(TOPIC, 0)


def id_of(text: str) -> int:
    """The id of a schema by its text, from 1 to the highest that Confluent's framing has."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) % _HIGHEST + 1


class TopicSchemas:
    """The schemas of one cluster; belongs to one thread, as its cluster does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._texts: dict[int, str] = {}
        self._subjects: dict[str, list[int]] = {}
        self._read_to = 0

    def register(self, subject: str, text: str) -> int:
        """The id of a schema, which whoever reads the topic can look up when this returns."""
        self._read()
        schema_id = id_of(text)
        while self._texts.get(schema_id, text) != text:
            schema_id = schema_id % _HIGHEST + 1
        if schema_id not in self._subjects.get(subject, ()):
            ensure_topic(self._cluster, TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
            writer = Writer(self._cluster, TOPIC)
            value = json.dumps({"id": schema_id, "subject": subject, "schema": text}, ensure_ascii=False).encode()
            writer.add(NewRecord(f"{schema_id}/{subject}".encode(), value, time.time_ns() // 1_000_000))
            writer.flush()
            self._remember(subject, schema_id, text)
        return schema_id

    def look_up(self, schema_id: int) -> str:
        """The text of a schema; raises `UnknownSchema`."""
        if schema_id not in self._texts:
            self._read()
        try:
            return self._texts[schema_id]
        except KeyError:
            raise UnknownSchema(schema_id, f"the topic {TOPIC}") from None

    def subjects(self) -> dict[str, list[int]]:
        """The ids of each subject, in the order in which they came."""
        self._read()
        return {subject: list(ids) for subject, ids in self._subjects.items()}

    def _read(self) -> None:
        """What came to the topic since it was read last."""
        try:
            held = bounds(self._cluster, self._cluster.partitions(TOPIC))[_PARTITION]
        except UnknownTopic:
            return
        start = max(self._read_to, held.start)
        if start >= held.end:
            return
        options = FetchOptions(max_wait_ms=250)
        for records in read_records(self._cluster, {_PARTITION: start}, until={_PARTITION: held.end}, options=options):
            for _, record in records:
                if record.value is not None:
                    stored = json.loads(record.value)
                    self._remember(stored["subject"], stored["id"], stored["schema"])
        self._read_to = held.end

    def _remember(self, subject: str, schema_id: int, text: str) -> None:
        self._texts.setdefault(schema_id, text)
        known = self._subjects.setdefault(subject, [])
        if schema_id not in known:
            known.append(schema_id)


class Schemas(Protocol):
    """Schemas by id, and ids of schemas."""

    def register(self, subject: str, text: str) -> int:
        """The id of a schema, which readers can look up when this returns."""
        ...

    def look_up(self, schema_id: int) -> str:
        """The text of a schema."""
        ...


def look_up_at(registry: str, connect: Callable[[], Cluster]) -> Callable[[int], str]:
    """A function that tells a schema's text for its id; without a registry each call has a connection of its own.

    Schemas are few and each is asked for once, while the reader's connection is busy with what it reads ahead.
    """
    if registry:
        return schemas_at(registry, connect).look_up

    def look_up(schema_id: int) -> str:
        with connect() as cluster:
            return schemas_at("", lambda: cluster).look_up(schema_id)

    return look_up


def schemas_at(registry: str, cluster: Callable[[], Cluster]) -> Schemas:
    """The registry with this URL, or without one the topic; `cluster` is asked for only then."""
    if registry:
        try:
            return SchemaRegistry(registry)
        except RegistryError as error:
            raise InvalidConnectSetting("registry", "…", str(error)) from None
    from headrace.connect.avro.places import TopicSchemas

    return TopicSchemas(cluster())
