"""Where schemas are kept: a registry by its URL, or the topic of the cluster that the records are in."""

from collections.abc import Callable
from typing import Protocol

from headrace.client.cluster import Cluster
from headrace.connect.errors import InvalidConnectSetting
from headrace.schema_registry import RegistryError, SchemaRegistry


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
    from headrace.connect.avro.topic_schemas import TopicSchemas

    return TopicSchemas(cluster())
