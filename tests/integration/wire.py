"""A bare connection to a broker, for tests that want to see, or to send, exactly what is on the wire."""

import socket
import struct
from typing import Self, TypeVar

from headrace.broker.config import Address
from headrace.protocol.frame import decode_response, encode_request
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.schema import Message
from headrace.records import Record, headers_in, records_of

M = TypeVar("M", bound=Message)


class Wire:
    """One socket; what is sent and received is a frame at a time."""

    def __init__(self, bootstrap: str, timeout: float = 30.0) -> None:
        host, port = Address.parse(bootstrap.split(",")[0])
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.next_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: Message, version: int) -> int:
        self.next_id += 1
        self.socket.sendall(encode_request(message, version, self.next_id, "wire"))
        return self.next_id

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    def receive(self, kind: type[M], version: int) -> tuple[int, M]:
        header, message = decode_response(kind, version, self.receive_frame())
        return header.correlation_id, message

    def ask(self, message: Message, kind: type[M], version: int) -> M:
        sent = self.send(message, version)
        received, answer = self.receive(kind, version)
        assert received == sent
        return answer

    # --- the usual requests

    def create(self, name: str, partitions: int = 1, **settings: str) -> None:
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        (result,) = self.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7).topics
        assert result.error_code == 0, result

    def produce_request(self, topic: str, batch: bytes, acks: int = -1, partition: int = 0) -> ProduceRequest:
        data = [PartitionProduceData(index=partition, records=batch)]
        return ProduceRequest(
            acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )

    def produce(self, topic: str, batch: bytes, acks: int = -1, partition: int = 0) -> tuple[int, int]:
        """The error code and the offset."""
        answer = self.ask(self.produce_request(topic, batch, acks, partition), ProduceResponse, 9)
        (partition_answer,) = answer.responses[0].partition_responses
        return partition_answer.error_code, partition_answer.base_offset

    def fetch_request(
        self, topic: str, offset: int, max_bytes: int = 1 << 20, wait_ms: int = 0, partition: int = 0
    ) -> FetchRequest:
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        return FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, topics=[FetchTopic(topic=topic, partitions=[asked])]
        )

    def fetch(self, topic: str, offset: int, wait_ms: int = 0) -> tuple[int, list[Record]]:
        """The error code and the records from `offset` on."""
        answer = self.ask(self.fetch_request(topic, offset, wait_ms=wait_ms), FetchResponse, 12)
        data = answer.responses[0].partitions[0]
        records = []
        content = bytes(data.records or b"")
        for position, header in headers_in(content):
            records += records_of(content[position : position + header.size])
        return data.error_code, [record for record in records if record.offset >= offset]

    def read_all(self, topic: str) -> list[Record]:
        """Every record of partition 0, from the start."""
        records: list[Record] = []
        while True:
            error, more = self.fetch(topic, records[-1].offset + 1 if records else 0)
            assert error == 0
            if not more:
                return records
            records += more
