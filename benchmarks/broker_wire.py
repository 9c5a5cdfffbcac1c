"""Kafka's wire for the benchmarks: one blocking connection for what is not timed, and frames built beforehand.

A frame is built once and sent as it is, again and again: the client costs a system call and no more. All batches of a
load are alike, so what a fetch brought is known from its size alone and nothing has to be parsed.
"""

import random
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from headrace.protocol.errors import ErrorCode
from headrace.protocol.frame import decode_response, encode_request
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.schema import Message
from headrace.records import Codec, Record, build_batch, header_at

M = TypeVar("M", bound=Message)

TIMEOUT_S = 60
PRODUCE_VERSION = 11  # the newest before topics are named by id and transactions come in
FETCH_VERSION = 12  # the newest that names topics
_LATEST = -1
_TOPIC = 2  # a kind of resource
_SOME_OFFSET = 0x0102030405060708
_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")


class Refused(Exception):
    """The broker answered with an error, or with what cannot be."""


TLS = "ssl://"  # before an address: there TLS is spoken


class _TlsSocket:
    """As much of a socket as loads use, with TLS over it; it knows no flags."""

    def __init__(self, sock: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # what is measured is the broker
        self._secure = context.wrap_socket(sock)
        self.sendall, self.close = self._secure.sendall, self._secure.close

    def recv_into(self, view: memoryview, _size: int = 0, _flags: int = 0) -> int:
        return self._secure.recv_into(view)


def connect(address: str) -> socket.socket:
    if address.startswith(TLS):
        return _TlsSocket(connect(address.removeprefix(TLS)))  # type: ignore[return-value]  # for what is used of it
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A blocking socket with the kernel's own time-out: Python's would add a poll to every call.
    sock.settimeout(None)
    limit = struct.pack("ll", TIMEOUT_S, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return sock


def read_frame(sock: socket.socket, buffer: bytearray) -> int:
    """Read one whole frame to the front of `buffer`; its length, with the four bytes of its size."""
    view = memoryview(buffer)
    filled = 0
    wanted = 4
    while filled < wanted:
        # The first call brings what is there; once the size is known, the kernel waits for all of it.
        count = sock.recv_into(view[filled:wanted] if filled >= 4 else view, 0, socket.MSG_WAITALL if filled else 0)
        if not count:
            raise ConnectionError("the broker closed the connection")
        filled += count
        if filled >= 4:
            wanted = 4 + _SIZE.unpack_from(buffer)[0]
    if filled > wanted:
        raise Refused(f"{filled - wanted} bytes came behind an answer to the only request")
    return filled


class Wire:
    """A connection for one request at a time: topics made, removed and looked at."""

    def __init__(self, address: str) -> None:
        self._socket = connect(address)
        self._buffer = bytearray(1 << 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, request: Message, answer: type[M], version: int) -> M:
        self.ask(request, version)
        return self.answer(answer, version)

    def ask(self, request: Message, version: int) -> None:
        self._socket.sendall(encode_request(request, version, 1, "bench"))

    def answer(self, kind: type[M], version: int) -> M:
        size = read_frame(self._socket, self._buffer)
        return decode_response(kind, version, bytes(self._buffer[4:size]))[1]

    def send(self, frame: bytes) -> memoryview:
        """Send a frame and return its answer's, valid until the next."""
        self._socket.sendall(frame)
        return memoryview(self._buffer)[: read_frame(self._socket, self._buffer)]

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Make a topic, and return once it can be written to."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        answer = self.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 5).topics[0]
        if answer.error_code:
            raise Refused(f"topic {name}: {ErrorCode(answer.error_code).name} {answer.error_message}")
        deadline = time.monotonic() + TIMEOUT_S
        while None in self.end_offsets(name, partitions):
            if time.monotonic() > deadline:
                raise Refused(f"topic {name} has no leader after {TIMEOUT_S} s")
            time.sleep(0.002)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_S * 1000)
        answer = self.call(request, DeleteTopicsResponse, 5).responses[0]
        if answer.error_code:
            raise Refused(f"topic {name}: {ErrorCode(answer.error_code).name}")

    def alter_topic(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Change a topic's settings; None takes one back."""
        if not configs:
            return
        changes = [AlterableConfig(name=k, config_operation=v is None, value=v) for k, v in configs.items()]
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = self.call(request, IncrementalAlterConfigsResponse, 1).responses[0]
        if answer.error_code:
            raise Refused(f"settings of {name}: {ErrorCode(answer.error_code).name} {answer.error_message}")

    def find_coordinator(self, kind: int, key: str) -> None:
        """Return once somebody coordinates this group (0) or transactional id (1): at first, a topic has to be made."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        deadline = time.monotonic() + TIMEOUT_S
        while error := self.call(request, FindCoordinatorResponse, 4).coordinators[0].error_code:
            if time.monotonic() > deadline:
                raise Refused(f"nobody coordinates {key}: {ErrorCode(error).name}")
            time.sleep(0.02)

    def end_offsets(self, name: str, partitions: int) -> list[int | None]:
        """Each partition's end; None where nobody leads it yet."""
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        found = self.call(request, ListOffsetsResponse, 6).topics[0].partitions
        ends = {each.partition_index: None if each.error_code else each.offset for each in found}
        return [ends[index] for index in range(partitions)]


# --- batches and frames


@dataclass(frozen=True)
class Batch:
    """A batch that is sent many times over."""

    data: bytes
    records: int


def make_batch(size: int, record_size: int, codec: Codec = Codec.NONE) -> Batch:
    """A batch of about `size` bytes as it travels, and never more, of records with values of `record_size` bytes."""
    now = time.time_ns() // 1_000_000
    count = max(1, size // (record_size + 8))
    while True:
        records = [Record(n, now, None, _value(n, record_size)) for n in range(count)]
        data = build_batch(records, codec=codec)
        if len(data) <= size or count == 1:
            fitting = int(count * size / len(data))
            # What compresses well takes more records to fill the batch.
            if fitting <= count * 1.03:
                return Batch(data, header_at(data).record_count)
            count = fitting
        else:
            count = min(count - 1, int(count * size / len(data)))


def _value(number: int, size: int) -> bytes:
    """Something like an event: text that compresses to about half, no two alike."""
    chance = random.Random(number)
    text = b'{"id":%d,"user":"u-%06d","at":1700000000,"note":"' % (number, chance.randrange(10**6))
    while len(text) < size:
        text += b'","price":%d.%02d,"tags":["stream","log"],"token":"' % (chance.randrange(10**4), number % 100)
        text += chance.randbytes(16).hex().encode()
    return text[:size]


def produce_frame(topic: str, partition: int, batch: Batch, acks: int) -> bytes:
    data = PartitionProduceData(index=partition, records=batch.data)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return encode_request(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION, 1, "bench")


def check_produced(answer: bytes | bytearray | memoryview, topic: str, start: int = 0) -> None:
    """Raise unless the answer that begins at `start` says that the batch was taken."""
    # size, correlation id, no tags, one topic, its name, one partition, its index; then the error
    (error,) = _ERROR.unpack_from(answer, start + 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4)
    if error:
        raise Refused(f"produce: {ErrorCode(error).name}")


class FetchFrame:
    """A fetch request whose offset is changed in place."""

    def __init__(self, topic: str, partition: int, max_bytes: int, *, max_wait_ms: int = 500) -> None:
        wanted = FetchPartition(partition=partition, fetch_offset=_SOME_OFFSET, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max(max_bytes, 50 * 1024 * 1024),
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        self.data = bytearray(encode_request(request, FETCH_VERSION, 1, "bench"))
        self._at = self.data.index(struct.pack(">q", _SOME_OFFSET))
        # size, correlation id, no tags, throttle time; error; session, one topic, its name, one partition, its index
        self._error_at = 4 + 4 + 1 + 4
        self._partition_error_at = self._error_at + 2 + 4 + 1 + 1 + len(topic) + 1 + 4

    def from_offset(self, offset: int) -> bytearray:
        struct.pack_into(">q", self.data, self._at, offset)
        return self.data

    def check(self, answer: bytearray) -> None:
        """Raise unless the answer holds records or nothing."""
        error = _ERROR.unpack_from(answer, self._error_at)[0] or _ERROR.unpack_from(answer, self._partition_error_at)[0]
        if error:
            raise Refused(f"fetch: {ErrorCode(error).name}")
