"""What consumer groups know of topics: an immutable picture of them, a new one whenever they change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from headrace.protocol.schema import Uuid


class Topic(NamedTuple):
    topic_id: Uuid
    partition_count: int
    is_whole: bool = False  # whether every member of a share group has all of its partitions


@dataclass(frozen=True)
class Topics:
    """All topics at one moment; `version` grows whenever a topic is made, removed or given more partitions."""

    version: int
    by_name: Mapping[str, Topic]
    names_by_id: Mapping[Uuid, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        names = {topic.topic_id: name for name, topic in self.by_name.items()}
        object.__setattr__(self, "names_by_id", names)

    def ids_of(self, names: Iterable[str]) -> frozenset[Uuid]:
        return frozenset(self.by_name[name].topic_id for name in names if name in self.by_name)

    def partition_counts(self, topic_ids: Iterable[Uuid]) -> dict[Uuid, int]:
        return {topic_id: self.by_name[self.names_by_id[topic_id]].partition_count for topic_id in topic_ids}

    def whole_ones(self, topic_ids: Iterable[Uuid]) -> frozenset[Uuid]:
        return frozenset(topic_id for topic_id in topic_ids if self.by_name[self.names_by_id[topic_id]].is_whole)

    def fingerprint(self, names: Iterable[str]) -> int:
        """A number that changes when one of these topics does; 0 if none of them exists (KIP-1101).

        It is written to the log, and so must not depend on the process. It is not the hash that Kafka computes: a group
        that moves to a real Kafka is rebalanced once.
        """
        known = sorted((name, *self.by_name[name]) for name in names if name in self.by_name)
        if not known:
            return 0
        digest = blake2b(digest_size=8)
        for name, topic_id, partition_count, is_whole in known:
            digest.update(f"{name}/{partition_count}/{'whole/' if is_whole else ''}".encode() + topic_id)
        return int.from_bytes(digest.digest(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """News from the rest of the broker: this is what topics look like from now on.

    It has to come before the first heartbeat is answered, and after every change; what a group does about a change, it
    does when one of its members is heard of.
    """

    topics: Topics


class TopicsKey(NamedTuple):
    """The key of a record that is not kept: what topics look like."""
