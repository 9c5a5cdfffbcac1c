"""A connection that sends what it is told to: requests of any version, and bytes that no client would send."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Self

from headrace.protocol.api import APIS
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frame import decode_response, encode_request
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.schema import ZERO_UUID, Struct
from headrace.records import Record, build_batch, headers_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.protocol.schema import Message
    from headrace.records import BatchHeader

CLOSED = "connection closed"
_TIMEOUT_S = 60


class Wire:
    """One socket; a request is answered before the next is sent, unless `send` and `receive` are used."""

    def __init__(self, servers: str, *, source: str = "") -> None:
        """`source` is the address that it comes from, if that matters."""
        host, port = servers.split(",")[0].rsplit(":", 1)
        self._address = (host, int(port))
        self._source = (source, 0) if source else None
        self._socket = socket.create_connection(self._address, _TIMEOUT_S, self._source)
        self._correlation_id = 0
        self.client_id = "wire"
        self.servers = servers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The response to a request, by default in the newest version."""
        api = APIS[type(request).__schema__.api_key]
        version = api.versions[-1] if version is None else version
        correlation_id = self.send(request, version)
        header, body = decode_response(api.response, version, self.receive())
        assert header.correlation_id == correlation_id
        return body

    def send(self, request: Message, version: int) -> int:
        """Send a request and do not wait; the number that its answer will bear."""
        self._correlation_id += 1
        self._socket.sendall(encode_request(request, version, self._correlation_id, self.client_id))
        return self._correlation_id

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next frame, without its size; `ConnectionError` if the broker closed the connection."""
        size = struct.unpack(">i", self._read(4))[0]
        return self._read(size)

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Make a topic, and wait until it can be used: Kafka's brokers learn of it a moment after the answer."""
        settings = [CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=settings)
        (made,) = self.ask(CreateTopicsRequest(topics=[wanted])).topics
        assert made.error_code == 0, made
        self.wait_for(topic, partitions)

    def wait_for(self, topic: str, partitions: int | None) -> None:
        """Wait until a topic has so many partitions and all of them answer; None: until it is gone."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            described = self.metadata(topic)
            if partitions is None:
                if described.error_code:
                    return
            elif len(described.partitions) == partitions and self._all_answer(topic, partitions):
                return
            time.sleep(0.01)  # the pause of a poll: nobody tells when metadata has spread
        raise AssertionError(f"{topic} did not come to {partitions} partitions within 90 s")

    def _all_answer(self, topic: str, partitions: int) -> bool:
        # Kafka's metadata names a leader a moment before that leader serves the partition.
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
        return not any(each.error_code for each in self.ask(asked).topics[0].partitions)

    def metadata(self, topic: str) -> Any:
        """One topic's description; asking does not create it."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return self.ask(asked).topics[0]

    def topic_id(self, topic: str) -> Any:
        return self.metadata(topic).topic_id

    def produce(self, topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 12) -> Any:
        """The answer for one partition."""
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        response = self.ask(ProduceRequest(acks=acks, timeout_ms=30000, topic_data=[data]), version)
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **options: Any) -> Any:
        """The answer for one partition, outside of any session."""
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=options.pop("partition_max_bytes", 1 << 20),
            current_leader_epoch=options.pop("current_leader_epoch", -1),
            last_fetched_epoch=options.pop("last_fetched_epoch", -1),
        )
        topics = [FetchTopic(topic=topic, partitions=[wanted])]
        response = self.ask(FetchRequest(topics=topics, max_wait_ms=500, **{"min_bytes": 0} | options), version)
        return response.responses[0].partitions[0]

    def commit(self, group: str, topic: str, offset: int, *, member: str = "", epoch: int = -1, **options: Any) -> str:
        """Commit the offset of the first partition; the error's name. Without a member it is an administrator's."""
        asked = OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
                )
            ],
            **options,
        )
        return error_name(self.ask(asked, 9).topics[0].partitions[0].error_code)

    def find_coordinator(self, group: str) -> None:
        """Wait until the group has a coordinator: Kafka makes the topic of the offsets when it is first asked."""
        deadline = time.monotonic() + 90
        while self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group])).coordinators[0].error_code:
            assert time.monotonic() < deadline, f"{group} has no coordinator after 90 s"
            time.sleep(0.02)  # the pause of a poll

    def producer_id(self) -> int:
        """A new one; Kafka gives none while it is still fetching its first ones."""
        while True:
            given = self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
            if given.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert (given.error_code, given.producer_epoch) == (0, 0), given
                return given.producer_id
            time.sleep(0.01)  # the pause of a poll

    def reconnect(self) -> None:
        """Begin anew, for a scenario that makes the broker close the connection."""
        self._socket.close()
        self._socket = socket.create_connection(self._address, _TIMEOUT_S, self._source)

    def wait_at_most(self, seconds: float) -> None:
        """Be less patient, for a request that one of the brokers does not answer."""
        self._socket.settimeout(seconds)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self._socket.recv(size - len(data))
            if not got:
                raise ConnectionError(CLOSED)
            data += got
        return bytes(data)


NOON_MS = 1_700_000_000_000


def batch_of(*values: bytes | None, key: bytes | None = b"k", timestamp: int = NOON_MS, **options: Any) -> bytes:
    """A batch of records as a producer makes it, a millisecond apart."""
    records = [Record(i, timestamp + i, key, value) for i, value in enumerate(values)]
    return build_batch(records, **options)


def error_name(code: int) -> str:
    """`NONE`, `TOPIC_ALREADY_EXISTS` …"""
    return ErrorCode(code).name


# What is by chance, or said in other words: ids, addresses, the broker's load, and the sentences that explain an error.
_BY_CHANCE = {
    *("throttle_time_ms", "error_message", "batch_index_error_message", "documentation"),
    *("host", "port", "cluster_id", "session_id", "log_dir"),
}
_NAMES = ("name", "topic", "key", "partition_index", "index", "partition", "api_key", "node_id", "broker_id")


def plain(value: Any) -> Any:
    """A response as plain data: error codes by name, lists of named things as dictionaries, nothing by chance."""
    if isinstance(value, Struct):
        fields = {field.name: getattr(value, field.name) for field in type(value).__schema__.fields}
        return {name: _plain_field(name, item) for name, item in fields.items() if name not in _BY_CHANCE}
    if isinstance(value, list):
        return _plain_list(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return [_plain_batch(header) for _, header in headers_in(bytes(value))]
    return value


def _plain_field(name: str, value: Any) -> Any:
    if name.endswith("error_code"):
        return error_name(value)
    if name == "topic_id":
        return "none" if value == ZERO_UUID else "some"
    if name == "log_append_time_ms" or (name.endswith("_bytes") and isinstance(value, int)):
        return "some" if value > 0 else value
    return plain(value)


def _plain_list(values: list[Any]) -> Any:
    if values and isinstance(values[0], Struct):
        known = {field.name for field in type(values[0]).__schema__.fields}
        name = next((name for name in _NAMES if name in known), None)
        names = [getattr(value, name) for value in values] if name else []
        if names and len(set(names)) == len(names) and None not in names:
            return {key: plain(value) for key, value in zip(names, values, strict=True)}
    return [plain(value) for value in values]


def _plain_batch(header: BatchHeader) -> dict[str, Any]:
    told = header._asdict() | {"leader_epoch": "some" if header.leader_epoch >= 0 else "none"}
    if header.is_log_append_time:
        told |= {"max_timestamp": "the broker's", "crc": "of that"}
    return told
