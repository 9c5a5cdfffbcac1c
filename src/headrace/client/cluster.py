"""A cluster as a client sees it: its addresses, its metadata, and one connection for each broker in use.

What always holds: a connection is made when it is first needed and used again until it breaks; metadata are asked for
when something is not known or turned out wrong, never on a timer; and asking for a topic never creates it.
"""

import base64
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from headrace.client.address import Address
from headrace.client.connection import PLAIN, Connection, ConnectionSettings
from headrace.client.errors import (
    BrokerUnreachable,
    ClientError,
    LostConnection,
    Refused,
    RequestTimedOut,
    UnknownPartition,
    UnknownTopic,
)
from headrace.client.surroundings import reached_as
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headrace.protocol.schema import ZERO_UUID, Uuid
from headrace.retry import Backoff, spread


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
        return self.id != ZERO_UUID

    @property
    def id_text(self) -> str:
        """The id as Kafka's tools write it; empty where there is none."""
        return base64.urlsafe_b64encode(self.id).rstrip(b"=").decode() if self.has_id else ""

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions.values()), default=0)


@dataclass(frozen=True, slots=True)
class Brokers:
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


_CHANCE: Final = random.SystemRandom()  # a program that seeds `random` keeps its own; forks differ
R = TypeVar("R")


PATIENT: Final = Backoff(0.1, 1.0, retries=8)
# A topic that was made a moment ago may not be known to every broker yet; one that is misspelt never will be.
_UNKNOWN_TOPIC_RETRIES: Final = 2


def _sleep_about(seconds: float) -> None:
    time.sleep(spread(seconds, _CHANCE.random()))


class Cluster:
    """The brokers behind a list of bootstrap addresses; close it, or use it in a `with` block."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        settings: ConnectionSettings = PLAIN,
        *,
        retry: Backoff = PATIENT,
        sleep: Callable[[float], None] = _sleep_about,
    ) -> None:
        """Remember where the cluster is; the first question connects."""
        self._bootstrap = tuple(bootstrap)
        self._settings = reached_as(self._bootstrap, settings)
        self.retry = retry
        self._sleep = sleep
        self._connections: dict[Address, Connection] = {}
        self._brokers: Brokers | None = None
        self._topics: dict[str, Topic] = {}
        # By kind and name the node that looks after a group or a transactional id, as `coordinators` has found it.
        self.coordinators: dict[int, dict[str, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return ",".join(map(str, self._bootstrap))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- connections

    def any_broker(self) -> Connection:
        """A connection to whichever broker can be had: an open one, else any known address."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        known = tuple(self._brokers.addresses.values()) if self._brokers else ()
        complaints = {}
        for address in dict.fromkeys((*known, *self._bootstrap)):
            try:
                return self._connect(address)
            except BrokerUnreachable as error:
                complaints[address] = error.reason
        reasons = dict.fromkeys(complaints.values())
        raise BrokerUnreachable(tuple(complaints), "; ".join(reasons))

    def broker(self, node: int) -> Connection:
        address = self.brokers().addresses.get(node)
        if address is None:
            address = self.brokers(refresh=True).addresses.get(node)
        if address is None:
            raise LostConnection(f"broker {node} of {self} is not there just now: check that it runs")
        return self._connect(address)

    def controller(self) -> Connection:
        """The broker that takes administrative requests."""
        brokers = self.brokers()
        return self.broker(brokers.controller) if brokers.controller in brokers.addresses else self.any_broker()

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._connections[address] = Connection(address, self._settings)
        return connection

    # --- metadata

    def brokers(self, *, refresh: bool = False) -> Brokers:
        if self._brokers is None or refresh:
            self._ask([])
        assert self._brokers is not None
        return self._brokers

    def topics(self) -> list[Topic]:
        response = self._ask(None)
        return sorted(
            (topic_in(described) for described in response.topics if not described.error_code),
            key=lambda topic: topic.name,
        )

    def topic(self, name: str, *, refresh: bool = False) -> Topic:
        """One topic, as last heard of; a partition without a leader is among its partitions."""
        if refresh or name not in self._topics:
            self.refresh([name])
        return self._topics[name]

    def partitions(self, topic: str, chosen: Collection[int] = ()) -> list[TopicPartition]:
        """The partitions of a topic: all of them, or the chosen ones, which must exist."""
        known = self.topic(topic).partitions
        for index in chosen:
            if index not in known:
                raise UnknownPartition(TopicPartition(topic, index), len(known))
        return [TopicPartition(topic, index) for index in (dict.fromkeys(chosen) or known)]

    def leader_of(self, partition: TopicPartition) -> int:
        """The node that leads a partition, as last heard of; negative while one is being elected."""
        known = self.topic(partition.topic).partitions
        if partition.partition not in known:
            known = self.topic(partition.topic, refresh=True).partitions  # topics grow
        if partition.partition not in known:
            raise UnknownPartition(partition, len(known))
        return known[partition.partition].leader

    def refresh(self, names: Collection[str]) -> None:
        """Ask anew about these topics, a few times if they are not to be found."""

        def ask_once() -> None:
            response = self._ask(names)
            for described in response.topics:
                code = ErrorCode.of(described.error_code)
                name = described.name or ""
                if code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                    self._topics[name] = topic_in(described)
                    continue
                self._topics.pop(name, None)
                if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                    raise UnknownTopic(name, str(self))
                raise Refused(f"topic {name!r}", code)

        try:
            self.run_with_retries(ask_once)
        except UnknownTopic as unknown:
            raise UnknownTopic(unknown.topic, str(self), self._topic_names()) from None

    def _topic_names(self) -> list[str]:
        """The topics that somebody may have meant; none if the cluster does not say."""
        try:
            return [topic.name for topic in self.topics() if not topic.is_internal]
        except ClientError:
            return []

    def forget(self, topic: str) -> None:
        """Ask again about a topic before it is used the next time."""
        self._topics.pop(topic, None)

    def _ask(self, names: Collection[str] | None) -> MetadataResponse:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = self.any_broker().request(request, MetadataResponse)
        if response.error_code:
            raise Refused(f"metadata of {self}", ErrorCode.of(response.error_code))
        self._brokers = brokers_in(response)
        return response

    # --- trying again

    def pause(self, seconds: float) -> None:
        self._sleep(seconds)

    def run_with_retries(self, attempt: Callable[[], R], *, may_repeat: bool = True) -> R:
        """What `attempt` returns, tried again while its error is one that may pass by itself.

        Not `may_repeat` means that a request whose answer was lost is not sent again. That no bootstrap address can be
        reached at the very start is told at once: it is mostly a wrong address.
        """
        unknown = 0
        for pause in self.retry.pauses():
            try:
                return attempt()
            except UnknownTopic:
                unknown += 1
                if unknown > _UNKNOWN_TOPIC_RETRIES:
                    raise
            except ClientError as error:
                if not is_passing(error, may_repeat=may_repeat) or self._brokers is None:
                    raise
                if isinstance(error, Refused) and error.code is ErrorCode.NOT_CONTROLLER:
                    self.brokers(refresh=True)
            self._sleep(pause)
        return attempt()


def is_passing(error: ClientError, *, may_repeat: bool = True) -> bool:
    """Whether trying again may help, and may be done: a request that never left can always be sent again."""
    if isinstance(error, RequestTimedOut):
        return False  # the wait was long enough for a person, and nine of them would be too much
    if isinstance(error, LostConnection):
        return may_repeat or isinstance(error, BrokerUnreachable)
    return isinstance(error, Refused) and error.code.retriable
