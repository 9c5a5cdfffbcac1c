"""Hostile clients, each beside a good one: the good one is served all the while, and nobody's memory grows.

That no loop stands still meanwhile is checked for every test of the project (`tests/conftest.py`); here are the clients
that would make it.
"""

import asyncio
import errno
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from headrace.broker import connection
from headrace.broker.channel import MAX_UNDER_WAY
from headrace.broker.config import Address
from headrace.broker.embedded import Broker
from headrace.broker.fetches import Waiting
from headrace.broker.handler import Context
from headrace.broker.registry import HANDLERS
from headrace.broker.turns import TURN_S
from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frame import encode_request
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from headrace.protocol.messages.fetch import FetchRequest, FetchResponse
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.protocol.schema import STRING, Field, Message, Primitive, Struct, Uuid
from headrace.records import Codec, Record, build_batch, compress, header_at
from headrace.records.batch import assemble
from headrace.records.record import write_varint
from headrace.storage.log import Log
from tests.integration.wire import Wire

S = TypeVar("S", bound=Struct)
NOW = 1_700_000_000_000
BATCH = build_batch([Record(0, NOW, b"k", b"v")])


def resident_mib(pid: int, which: str = "VmRSS:") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {which}")


def peak_mib(pid: int) -> float:
    """The most that it ever had."""
    return resident_mib(pid, "VmHWM:")


class GoodClient:
    """Produces and fetches, one request after the other, and counts how often."""

    def __init__(self, broker: Broker) -> None:
        self.served = 0
        self.failure: BaseException | None = None
        self._wire = Wire(broker.bootstrap_servers)
        self._topic = f"good-{uuid4().hex}"
        self._wire.create(self._topic)
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._is_done.is_set():
                error, offset = self._wire.produce(self._topic, BATCH, acks=1)
                assert error == 0
                assert [record.offset for record in self._wire.fetch(self._topic, offset)[1]] == [offset]
                self.served += 1
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        self._is_done.set()
        self._thread.join()
        self._wire.socket.close()
        if self.failure:
            raise self.failure


@contextmanager
def beside_a_good_client(broker: Broker, *, meanwhile: int = 0) -> Iterator[None]:
    """A good client that is served at least so often while the block runs, and goes on to be afterwards."""
    good = GoodClient(broker)
    try:
        before = good.served
        yield
        assert good.served - before >= meanwhile
        after = good.served
        wait_until(lambda: good.served >= after + 3 or good.failure is not None)
    finally:
        good.end()


def wait_until(holds: Callable[[], bool], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("hostile")
    with Broker(folder, durability="os", own_process=True) as running:
        yield running
        assert resident_mib(running.pid) < 500


@pytest.fixture
def embedded() -> Iterator[Broker]:
    with Broker(durability="os") as running:
        yield running


def is_hung_up_on(sock: socket.socket) -> bool:
    sock.settimeout(30)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


# --- whatever a handler raises


class Surprise(Exception):
    pass


@contextmanager
def handled_by(key: ApiKey, run: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setitem(HANDLERS, key, HANDLERS[key]._replace(run=run))  # type: ignore[arg-type]
        yield


def raise_at_once(*_: object) -> Message:
    raise Surprise("no HeadraceError")


def raise_in_a_step(*_: object) -> Iterator[None]:
    yield
    raise Surprise("no HeadraceError")


async def raise_later(*_: object) -> Message:
    raise Surprise("no HeadraceError")


def answer_what_cannot_be_encoded(*_: object) -> Message:
    return MetadataResponse(cluster_id=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("run", [raise_at_once, raise_in_a_step, raise_later, answer_what_cannot_be_encoded])
def test_an_exception_closes_its_own_connection_and_executes_nobody_elses_requests(
    embedded: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, run: Callable[..., object]
) -> None:
    with Wire(embedded.bootstrap_servers) as good, Wire(embedded.bootstrap_servers) as bad:
        good.create("orders")
        with handled_by(ApiKey.METADATA, run, monkeypatch):
            bad.send(MetadataRequest(topics=[]), 9)
            assert is_hung_up_on(bad.socket)
        for offset in range(5):  # each once, and none again when somebody else sends something
            assert good.produce("orders", BATCH) == (0, offset)
            with Wire(embedded.bootstrap_servers) as other:
                other.socket.sendall(b"\x00")
        assert len(good.read_all("orders")) == 5
    logged = [record for record in caplog.records if "connection closed" in record.getMessage()]
    assert len(logged) == 1
    if run is not answer_what_cannot_be_encoded:
        assert logged[0].exc_info is not None


def test_a_disk_that_cannot_be_read_fails_the_fetch_and_no_producer(
    embedded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise OSError(errno.EIO, "Input/output error")

    with Wire(embedded.bootstrap_servers) as waiting, Wire(embedded.bootstrap_servers) as good:
        good.create("orders")
        waiting.send(waiting.fetch_request("orders", 0, wait_ms=30_000), 12)
        waiting.socket.settimeout(30)
        good.create("other")  # answered after the fetch before it is waiting
        with monkeypatch.context() as patch:
            patch.setattr(Log, "read", fail)
            assert good.produce("orders", BATCH) == (0, 0)  # the one that wakes the fetch
            _, answer = waiting.receive(FetchResponse, 12)
            assert answer.responses[0].partitions[0].error_code == 56  # KAFKA_STORAGE_ERROR
        assert len(good.fetch("orders", 0)[1]) == 1


# --- frames


def test_half_sent_frames_cost_what_was_sent_of_them(broker: Broker) -> None:
    host, port = Address.parse(broker.bootstrap_servers)
    with beside_a_good_client(broker):
        before = resident_mib(broker.pid)
        half = [socket.create_connection((host, port)) for _ in range(200)]
        try:
            for sock in half:
                sock.sendall(struct.pack(">i", 100_000_000) + bytes(1000))
            with Wire(broker.bootstrap_servers) as wire:  # what came before has been read when this is answered
                wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
            assert resident_mib(broker.pid) - before < 50
        finally:
            for sock in half:
                sock.close()


def test_a_flood_of_small_requests_in_one_write_holds_up_nobody(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as flooding:
        flooding.create("wide", 100)
        frame = encode_request(MetadataRequest(topics=None), 9, 1, "")
        with beside_a_good_client(broker, meanwhile=1):
            flooding.socket.sendall(frame * 2000)
            for _ in range(2000):
                flooding.receive_frame()


def test_all_others_are_served_before_a_flood_has_had_a_few_turns_for_each(
    embedded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in requests: each of the flood takes a quarter of a turn or more, on a machine of any speed."""
    handled: list[str | None] = []
    others_came = threading.Event()

    def handle(ctx: Context, _: MetadataRequest) -> MetadataResponse:
        if ctx.client_id == "flood":
            if "flood" not in handled:
                assert others_came.wait(60)
            end_s = time.monotonic() + TURN_S / 4
            while time.monotonic() < end_s:
                pass
        handled.append(ctx.client_id)
        return MetadataResponse()

    with Wire(embedded.bootstrap_servers) as flooding, ExitStack() as opened:
        others = [opened.enter_context(Wire(embedded.bootstrap_servers)) for _ in range(20)]
        for other in others:
            other.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
        with handled_by(ApiKey.METADATA, handle, monkeypatch):
            flooding.socket.sendall(encode_request(MetadataRequest(topics=[]), 9, 1, "flood") * 500)
            for other in others:
                other.send(MetadataRequest(topics=[]), 9)
            others_came.set()
            for _ in range(500):
                flooding.receive_frame()
            for other in others:
                other.receive(MetadataResponse, 9)
    last = max(number for number, client in enumerate(handled) if client != "flood")
    assert handled.count("flood") == 500
    # At worst each of them is alone in its round of the loop, with five requests of the flood before the next one.
    assert handled[:last].count("flood") <= 6 * len(others)


def test_a_flood_whose_answers_nobody_reads_is_not_served(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as flooding, Wire(broker.bootstrap_servers) as good:
        good.create("deaf", 100)
        before = resident_mib(broker.pid)
        flooding.socket.setblocking(False)
        frame = encode_request(MetadataRequest(topics=None), 9, 1, "")
        with suppress(BlockingIOError):
            while True:
                flooding.socket.sendall(frame * 1000)
        with beside_a_good_client(broker):
            for _ in range(20):
                good.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert resident_mib(broker.pid) - before < 50


def test_requests_that_waited_for_another_clients_are_not_handled_within_it(broker: Broker) -> None:
    """Each produce wakes a fetch, whose client had as many requests under way as it may, and a produce behind them."""
    topics = [f"chain-{n}" for n in range(65)]
    with Wire(broker.bootstrap_servers) as first, ExitStack() as opened:
        for topic in (*topics, "silent"):
            first.create(topic)
        for before, behind in pairwise(topics):
            wire = opened.enter_context(Wire(broker.bootstrap_servers))
            silent = encode_request(wire.fetch_request("silent", 0, wait_ms=300_000), 12, 1, "")
            frames = [
                encode_request(wire.fetch_request(before, 0, wait_ms=300_000), 12, 1, ""),
                silent * (MAX_UNDER_WAY - 1),
                encode_request(wire.produce_request(behind, BATCH, acks=1), 9, 1, ""),
            ]
            wire.socket.sendall(b"".join(frames))
            first.ask(MetadataRequest(topics=[]), MetadataResponse, 9)  # what was sent before has been read
        assert first.produce(topics[0], BATCH, acks=1) == (0, 0)
        assert len(first.fetch(topics[-1], 0, wait_ms=10_000)[1]) == 1
        assert [len(first.fetch(topic, 0)[1]) for topic in topics] == [1] * len(topics)


# --- arrays


def test_a_giant_array_is_refused_and_a_large_one_is_answered_in_turns(broker: Broker) -> None:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    with Wire(broker.bootstrap_servers) as wire, beside_a_good_client(broker, meanwhile=5):
        giant = ListOffsetsRequest(topics=[ListOffsetsTopic(name="nowhere", partitions=[asked] * 400_000)])
        wire.send(giant, 7)
        assert is_hung_up_on(wire.socket)
    with Wire(broker.bootstrap_servers) as wire, beside_a_good_client(broker, meanwhile=5):
        wire.create("listed")
        large = ListOffsetsRequest(topics=[ListOffsetsTopic(name="listed", partitions=[asked] * 40_000)])
        wire.send(large, 7)
        assert len(wire.receive_frame()) > 40_000


def test_offsets_of_many_partitions_are_committed_in_turns_and_answered_together(broker: Broker) -> None:
    offsets = [OffsetCommitRequestPartition(partition_index=n % 200, committed_offset=n) for n in range(40_000)]
    asked = [OffsetCommitRequestTopic(name="many", partitions=offsets), OffsetCommitRequestTopic(name="nowhere")]
    asked[1].partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    with Wire(broker.bootstrap_servers) as wire, beside_a_good_client(broker, meanwhile=5):
        wire.create("many", 200)
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=asked)
        answer = wire.ask(request, OffsetCommitResponse, 8)
        outcomes = [(topic.name, partition) for topic in answer.topics for partition in topic.partitions]
        assert [partition.partition_index for name, partition in outcomes if name == "many"] == [
            n % 200 for n in range(40_000)
        ]
        assert {(name, partition.error_code) for name, partition in outcomes} == {("many", 0), ("nowhere", 3)}
        group = OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopics(name="many", partition_indexes=list(range(200)))]
        )
        fetched = wire.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, 8).groups[0].topics[0].partitions
        assert [partition.committed_offset for partition in fetched] == [39_800 + n for n in range(200)]


def test_what_is_asked_for_a_thousand_times_is_answered_once(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create("asked", 100)
        offsets = [OffsetCommitRequestPartition(partition_index=n, committed_offset=n) for n in range(100)]
        asked = [OffsetCommitRequestTopic(name="asked", partitions=offsets)]
        commit = OffsetCommitRequest(generation_id_or_member_epoch=-1, member_id="", topics=asked)
        groups = [f"asked-{n}" for n in range(10)]
        for group in groups:
            wire.ask(commit.replaced(group_id=group), OffsetCommitResponse, 8)

        everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups])
        everything.groups *= 1000
        fetched = wire.ask(everything, OffsetFetchResponse, 8).groups
        assert [(group.group_id, len(group.topics[0].partitions)) for group in fetched] == [(g, 100) for g in groups]
        some = OffsetFetchRequestTopics(name="asked", partition_indexes=[1])
        twice = [everything.groups[0].replaced(topics=[some.replaced(partition_indexes=[n])]) for n in (1, 2)]
        fetched = wire.ask(OffsetFetchRequest(groups=twice), OffsetFetchResponse, 8).groups
        assert [group.topics[0].partitions[0].committed_offset for group in fetched] == [1, 2]

        described = wire.ask(DescribeGroupsRequest(groups=groups * 1000), DescribeGroupsResponse, 5)
        assert [group.group_id for group in described.groups] == groups
        seen = wire.ask(ConsumerGroupDescribeRequest(group_ids=groups * 1000), ConsumerGroupDescribeResponse, 0)
        assert [group.group_id for group in seen.groups] == groups
        known = wire.ask(
            DescribeTransactionsRequest(transactional_ids=["a", "b"] * 1000), DescribeTransactionsResponse, 0
        )
        assert [each.transactional_id for each in known.transaction_states] == ["a", "b"]
        ids = [Uuid(n.to_bytes(16, "big")) for n in range(1, 2000)]
        named = [MetadataRequestTopic(name="asked", topic_id=each) for each in ids]
        (topic,) = wire.ask(MetadataRequest(topics=named), MetadataResponse, 12).topics
        assert len(topic.partitions) == 100
        deleted = wire.ask(DeleteGroupsRequest(groups_names=groups * 1000), DeleteGroupsResponse, 2)
        assert [(result.group_id, result.error_code) for result in deleted.results] == [(name, 0) for name in groups]


def array_paths(struct: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    """The path to every array of a message."""
    for field in struct.__schema__.fields:
        if field.exists(version):
            if field.is_array:
                yield (field.name,)
            if not isinstance(field.type, Primitive):
                for path in array_paths(field.type, version):
                    yield (field.name, *path)


def filled(struct: type[S], version: int, path: tuple[str, ...], count: int, numbers: Iterable[int] = (0,)) -> list[S]:
    """A struct for each number, in which the array at `path` has so many entries, and every other array one."""
    same: dict[str, object] = {}
    numbered: dict[str, Callable[[int], object]] = {}
    for field in struct.__schema__.fields:
        if not field.exists(version) or field.tag is not None:
            continue
        on_path = path[:1] == (field.name,)
        entries = range(count if on_path and len(path) == 1 else 1) if field.is_array else None
        if isinstance(field.type, Primitive):
            made = partial(_value, field)
            if entries is None:
                numbered[field.name] = made
            else:
                same[field.name] = list(map(made, entries))
        else:
            inner = partial(filled, field.type, version, path[1:] if on_path else (), count)
            if entries is None:
                numbered[field.name] = lambda number, inner=inner: inner([number])[0]
            else:
                same[field.name] = inner(entries)
    return [struct(**same, **{name: make(number) for name, make in numbered.items()}) for number in numbers]


def _value(field: Field, number: int) -> object:
    name = field.name
    if field.type is STRING:
        return "wide" if "topic" in name or (name in ("name", "resource_name") and number % 2) else f"{name}-{number}"
    assert isinstance(field.type, Primitive)
    if field.type.name.startswith("int"):
        return number % 100 if "partition" in name else 1
    return field.type.default


def is_of_numbers(struct: type[Struct], path: tuple[str, ...]) -> bool:
    """Whether the array at `path` names nothing: each entry is a number."""
    field = next(field for field in struct.__schema__.fields if field.name == path[0])
    if isinstance(field.type, Primitive):
        return field.type is not STRING
    return len(path) > 1 and is_of_numbers(field.type, path[1:])


APIS_WITH_ARRAYS = [
    (key, path) for key, handler in HANDLERS.items() for path in array_paths(APIS[key].request, handler.versions[-1])
]


@pytest.mark.parametrize(
    ("key", "path"), APIS_WITH_ARRAYS, ids=[f"{ApiKey(key).name.lower()}-{'.'.join(p)}" for key, p in APIS_WITH_ARRAYS]
)
def test_no_array_of_any_request_holds_the_loop(wide: Broker, key: int, path: tuple[str, ...]) -> None:
    versions = HANDLERS[key].versions
    for version, count in ((versions[-1], 45_000), (versions[len(versions) // 2], 12_000)):
        send_many(wide, key, version, path, count)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        pytest.param(key, path, id=f"{ApiKey(key).name.lower()}-{'.'.join(path)}")
        for key, path in APIS_WITH_ARRAYS
        if HANDLERS[key].needs.each and not is_of_numbers(APIS[key].request, path)
    ],
)
def test_nor_does_one_of_names_that_the_client_may_know_nothing_of(
    guarded: Broker, key: int, path: tuple[str, ...]
) -> None:
    send_many(guarded, key, HANDLERS[key].versions[-1], path, 20_000)


def send_many(broker: Broker, key: int, version: int, path: tuple[str, ...], count: int) -> None:
    """Send a request with a long array; that the loop stood still meanwhile fails the test (`tests/conftest.py`)."""
    if path not in array_paths(APIS[key].request, version):
        return
    (request,) = filled(APIS[key].request, version, path, count)
    with Wire(broker.bootstrap_servers) as wire:
        with suppress(ConnectionError, TimeoutError):
            wire.send(request, version)
            wire.socket.settimeout(5)
            wire.receive_frame()
        with Wire(broker.bootstrap_servers) as good:
            good.ask(MetadataRequest(topics=[]), MetadataResponse, 9)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Where nobody may do anything."""
    folder = tmp_path_factory.mktemp("guarded")
    with Broker(folder, durability="os", own_process=True, settings={"authorization": "on"}) as running:
        yield running
        assert resident_mib(running.pid) < 1000


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("wide")
    with Broker(folder, durability="os", own_process=True) as running:
        with Wire(running.bootstrap_servers) as wire:
            wire.create("wide", 100)
        yield running
        assert resident_mib(running.pid) < 1000


# --- what is in batches


def bomb(codec: Codec) -> bytes:
    """A batch of some kilobytes that decompresses to 400 MB: one record with a key, and a value of zeros."""
    size = 400_000_000
    inner = bytearray(b"\x00\x00\x00\x02k")
    write_varint(inner, size)
    head = bytearray()
    write_varint(head, len(inner) + size + 1)
    body = compress(codec, bytes(head + inner) + bytes(size) + b"\x00")
    header = header_at(BATCH)
    return assemble(header._replace(attributes=header.attributes | codec), body)


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])  # the two that make one small enough
def test_a_batch_that_decompresses_to_more_than_memory_harms_nobody(broker: Broker, codec: Codec) -> None:
    batch = bomb(codec)
    assert len(batch) < 1_000_000
    topics = {kind: f"{kind}-{codec.name.lower()}" for kind in ("recent", "compacted", "plain")}
    with Wire(broker.bootstrap_servers) as wire, beside_a_good_client(broker):
        wire.create(topics["recent"], message_timestamp_before_max_ms="1000")
        wire.create(topics["compacted"], cleanup_policy="compact")
        wire.create(topics["plain"])
        before = peak_mib(broker.pid)
        assert wire.produce(topics["recent"], batch)[0] == ErrorCode.INVALID_TIMESTAMP
        assert wire.produce(topics["compacted"], batch)[0] == ErrorCode.MESSAGE_TOO_LARGE
        assert wire.produce(topics["plain"], batch) == (0, 0)  # its own readers' business
        for timestamp in (NOW - 1, -3):  # by time, and the youngest
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topics["plain"], partitions=[asked])])
            (found,) = wire.ask(request, ListOffsetsResponse, 7).topics[0].partitions
            assert (found.error_code, found.offset) == (0, 0)
        assert peak_mib(broker.pid) - before < 150


def test_a_large_batch_for_a_compacted_topic_is_looked_into_in_turns(broker: Broker) -> None:
    records = [Record(n, NOW, b"%d" % n, None) for n in range(70_000)]
    with Wire(broker.bootstrap_servers) as wire, beside_a_good_client(broker):
        wire.create("keyed", cleanup_policy="compact")
        for codec in (Codec.NONE, Codec.LZ4):
            assert wire.produce("keyed", build_batch(records, codec=codec))[0] == 0
        keyless = build_batch([*records[:-1], records[-1]._replace(key=None)])
        assert wire.produce("keyed", keyless)[0] == ErrorCode.INVALID_RECORD


# --- long polls


def test_what_is_appended_while_a_fetch_reads_other_partitions_is_not_waited_for(
    embedded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = embedded._host._server.runtime  # type: ignore[union-attr]
    read, appended = Log.read, []

    def read_late(log: Log, *args: int, **options: bool) -> object:
        if log.topic_partition.partition == 99 and not appended:  # in a later step than the first partition
            first = runtime.topics.by_name["wide"].partitions[0]
            appended.append(first.append(BATCH, now_ms=NOW, leader_epoch=runtime.leader_epoch))
            runtime.appended(first, 1)
        return read(log, *args, **options)

    with Wire(embedded.bootstrap_servers) as wire:
        wire.create("wide", 100)
        monkeypatch.setattr(Log, "read", read_late)
        answer = wire.ask(fetch_all(wire, "wide", 100), FetchResponse, 12)
        assert len(answer.responses[0].partitions[0].records or b"") == len(BATCH)
        assert len(runtime.waiting) == 0


def fetch_all(wire: Wire, topic: str, partitions: int, read: Iterable[int] = ()) -> FetchRequest:
    """A request that waits for any of the partitions; a record was read of some of them."""
    request = wire.fetch_request(topic, 0, wait_ms=300_000)
    (asked,) = request.topics[0].partitions
    request.topics[0].partitions = [
        asked.replaced(partition=n, fetch_offset=1 if n in read else 0) for n in range(partitions)
    ]
    return request


def test_a_fetch_of_many_partitions_is_woken_by_any_of_them_and_forgotten_by_all(embedded: Broker) -> None:
    waiting = embedded._host._server.runtime.waiting  # type: ignore[union-attr]
    read: list[int] = []
    with Wire(embedded.bootstrap_servers) as wire, Wire(embedded.bootstrap_servers) as producer:
        wire.create("many", 70)
        for index in (0, 31, 32, 69):  # at both ends of a step, and of the request
            wire.send(fetch_all(wire, "many", 70, read), 12)
            wait_until(lambda: len(waiting) == 70)
            assert producer.produce("many", BATCH, partition=index) == (0, 0)
            _, answer = wire.receive(FetchResponse, 12)
            assert [each.partition_index for each in answer.responses[0].partitions if each.records] == [index]
            wait_until(lambda: len(waiting) == 0)
            read.append(index)


def test_what_is_appended_while_a_fetch_begins_to_wait_is_not_waited_for(
    embedded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = embedded._host._server.runtime  # type: ignore[union-attr]
    add, added = Waiting.add, []

    def add_late(waiting: Waiting, log: Log, wake: Callable[[], None]) -> None:
        add(waiting, log, wake)
        added.append(log)
        if len(added) == 99:  # in a later step than the first partition
            added[0].append(BATCH, now_ms=NOW, leader_epoch=runtime.leader_epoch)
            runtime.appended(added[0], 1)

    with Wire(embedded.bootstrap_servers) as wire:
        wire.create("noticed", 100)
        monkeypatch.setattr(Waiting, "add", add_late)
        answer = wire.ask(fetch_all(wire, "noticed", 100), FetchResponse, 12)
        assert len(answer.responses[0].partitions[0].records or b"") == len(BATCH)
        wait_until(lambda: len(runtime.waiting) == 0)


def test_a_client_that_leaves_while_its_fetch_begins_to_wait_is_forgotten(
    embedded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = embedded._host._server
    runtime = server.runtime  # type: ignore[union-attr]
    add, added = Waiting.add, []

    def leave() -> None:
        (leaving,) = [each for each in server.server._connections if each._steps is not None]  # type: ignore[union-attr]
        leaving.close()

    def add_and_leave(waiting: Waiting, log: Log, wake: Callable[[], None]) -> None:
        add(waiting, log, wake)
        added.append(log)
        if len(added) == 50:
            asyncio.get_running_loop().call_soon(leave)

    with Wire(embedded.bootstrap_servers) as good, Wire(embedded.bootstrap_servers) as wire:
        good.create("left", 100)
        monkeypatch.setattr(Waiting, "add", add_and_leave)
        for name in ("TURN_S", "QUEUED_TURN_S"):
            monkeypatch.setattr(connection, name, 1e-9)  # each step is a turn
        wire.send(fetch_all(wire, "left", 100), 12)
        assert is_hung_up_on(wire.socket)
        wait_until(lambda: len(runtime.waiting) == 0)
        assert 50 <= len(added) < 100, "the client did not leave in between"
        assert good.produce("left", BATCH) == (0, 0)


def test_long_polls_of_clients_that_left_are_forgotten(embedded: Broker) -> None:
    with Wire(embedded.bootstrap_servers) as good:
        good.create("orders")
        leaving = [Wire(embedded.bootstrap_servers) for _ in range(100)]
        for wire in leaving:
            wire.send(wire.fetch_request("orders", 0, wait_ms=300_000), 12)
        server = embedded._host._server  # type: ignore[union-attr]
        waiting = server.runtime.waiting  # type: ignore[union-attr]
        wait_until(lambda: len(waiting) == 100)
        for wire in leaving:
            wire.socket.close()
        wait_until(lambda: len(waiting) == 0)
        assert good.produce("orders", BATCH) == (0, 0)


def test_hundreds_of_long_polls_hold_up_neither_the_producer_nor_the_others(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as producer:
        producer.create("awaited")
        waiting = [Wire(broker.bootstrap_servers) for _ in range(300)]
        try:
            for wire in waiting:
                wire.send(wire.fetch_request("awaited", 0, wait_ms=300_000), 12)
            with beside_a_good_client(broker):
                assert producer.produce("awaited", BATCH) == (0, 0)
                for wire in waiting:
                    _, answer = wire.receive(FetchResponse, 12)
                    assert answer.responses[0].partitions[0].high_watermark == 1
        finally:
            for wire in waiting:
                wire.socket.close()


# --- file descriptors


def test_without_file_descriptors_the_broker_waits_to_accept_and_says_so_once(
    embedded: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept = socket.socket.accept
    refused: list[float] = []

    def accept_when_there_is_room(listener: socket.socket) -> object:
        if len(refused) < 3:
            refused.append(time.monotonic())
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    with Wire(embedded.bootstrap_servers) as good:
        good.create("orders")
        monkeypatch.setattr(socket.socket, "accept", accept_when_there_is_room)
        with Wire(embedded.bootstrap_servers) as late:
            assert good.produce("orders", BATCH) == (0, 0)
            late.ask(MetadataRequest(topics=[]), MetadataResponse, 9)  # is let in once there is room
    assert refused[2] - refused[0] > 0.5  # and not asked for over and over until then
    assert len([record for record in caplog.records if "cannot accept" in record.getMessage()]) == 1
