"""What consumers of the classic protocol tell each other inside JoinGroup and SyncGroup: subscriptions and assignments.

The coordinator reads it only of members that live in a group of the new protocol, or are on their way into one. Both
messages start with their version; a newer one is read as the newest that is known here.
"""

from typing import NamedTuple

from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.topics import Topics
from headrace.protocol import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.schema import (
    INT32,
    STRING,
    Buffer,
    Message,
    Struct,
    Uuid,
    array,
    int32,
    nullable_string,
    record_batches,
    string,
)

CONSUMER_PROTOCOL_TYPE = "consumer"

_NEWEST = 3
_VERSION_BYTES = 2


class NamedPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(INT32)


class EmbeddedSubscription(Message, versions=range(_NEWEST + 1)):
    """What a member wants, and since 1 what it has."""

    topics: list[str] = array(STRING)
    user_data: Buffer | None = record_batches()  # bytes that may be null, which is how batches look too
    owned_partitions: list[NamedPartitions] = array(NamedPartitions, since=1)
    generation_id: int = int32(since=2, default=-1)
    rack_id: str | None = nullable_string(since=3, default=None)


class EmbeddedAssignment(Message, versions=range(_NEWEST + 1)):
    assigned_partitions: list[NamedPartitions] = array(NamedPartitions)
    user_data: Buffer | None = record_batches()


class Subscription(NamedTuple):
    version: int
    topic_names: frozenset[str]
    owned: Assignment
    rack_id: str | None


def read_subscription(metadata: bytes, topics: Topics) -> Subscription:
    """The subscription in a member's metadata; raises MalformedMessage if there is none."""
    version = _version(metadata)
    read, _ = codec.decode_prefix(EmbeddedSubscription, version, metadata, _VERSION_BYTES)
    return Subscription(version, frozenset(read.topics), _by_id(read.owned_partitions, topics), read.rack_id)


def read_assignment(assignment: bytes, topics: Topics) -> Assignment:
    """The assignment that a leader has made; one that is empty, or of topics that are gone, assigns nothing."""
    if not assignment:
        return {}
    read, _ = codec.decode_prefix(EmbeddedAssignment, _version(assignment), assignment, _VERSION_BYTES)
    return _by_id(read.assigned_partitions, topics)


def write_assignment(assignment: Assignment, topics: Topics, version: int) -> bytes:
    named = [
        NamedPartitions(topic=topics.names_by_id[topic_id], partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
        if topic_id in topics.names_by_id
    ]
    message = EmbeddedAssignment(assigned_partitions=named)
    return version.to_bytes(_VERSION_BYTES, "big") + codec.encode(message, version)


def _version(data: bytes) -> int:
    if len(data) < _VERSION_BYTES:
        raise MalformedMessage("a message of the consumers is shorter than its version", 0)
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise MalformedMessage(f"a message of the consumers has the version {version}", 0)
    return min(version, _NEWEST)


def _by_id(named: list[NamedPartitions], topics: Topics) -> Assignment:
    return {
        Uuid(topics.by_name[topic.topic].topic_id): frozenset(topic.partitions)
        for topic in named
        if topic.partitions and topic.topic in topics.by_name
    }
