"""What a cluster says about itself: its brokers, its topics, and who leads which partition."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.address import Address
from headrace.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from headrace.protocol.schema import ZERO_UUID, Uuid


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, and the brokers that hold it; `leader` is negative while one is being elected."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; `id` is all zero where the broker is too old for topic ids."""

    name: str
    id: Uuid
    is_internal: bool
    partitions: Mapping[int, Partition]

    @property
    def has_id(self) -> bool:
        """Whether the broker told an id."""
        return self.id != ZERO_UUID

    @property
    def id_text(self) -> str:
        """The id as Kafka's tools write it; empty where there is none."""
        return base64.urlsafe_b64encode(self.id).rstrip(b"=").decode() if self.has_id else ""

    @property
    def replication_factor(self) -> int:
        """How many brokers hold each partition."""
        return max((len(partition.replicas) for partition in self.partitions.values()), default=0)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers by node id, and which of them takes administrative requests."""

    cluster_id: str | None
    controller: int
    addresses: Mapping[int, Address]


def brokers_in(response: MetadataResponse) -> Brokers:
    """The brokers that an answer names."""
    return Brokers(
        response.cluster_id,
        response.controller_id,
        {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers},
    )


def topic_in(described: MetadataResponseTopic) -> Topic:
    """The topic that a part of an answer describes."""
    return Topic(
        described.name or "",
        described.topic_id,
        described.is_internal,
        {
            partition.partition_index: Partition(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
            )
            for partition in sorted(described.partitions, key=lambda partition: partition.partition_index)
        },
    )
