"""The rows about hostile clients: how long a well-behaved one waits beside them, and what they make the broker hold.

The good client produces a record of 1 KiB (acks=1) and reads it back, at a fixed rate; its latency is counted from when
the record was due. A slice of it alone and a slice beside one kind of hostile clients take turns.

Every hostile client is alike: it connects, sends what its kind sends, as much of it as the broker takes, and reads
nothing. So many come a second, and at most so many stay: then the oldest leaves for the newest. All are in one process,
with nice 19 and a bounded rate, so that what is measured is the broker and not who gets the two cores. That process
runs beside the client that is "alone", too, and only looks at the broker's memory.

Kinds that are `legal` send requests that the broker has to carry out. What they take is the broker's time, which only a
quota bounds (`request_percentage`). There is none here: their own rate bounds them.
"""

import contextlib
import os
import random
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

import broker_report as report
from broker_beside import REACHED, prepare_commits
from broker_latency import RECORD_BYTES, SPIN_S, percentiles
from broker_load import Load, own_cpu_seconds, together
from broker_report import Figures, Goal, Row
from broker_transactions import prepare_transactions
from broker_wire import (
    FETCH_VERSION,
    TIMEOUT_S,
    Batch,
    FetchFrame,
    Refused,
    Wire,
    check_produced,
    connect,
    make_batch,
    produce_frame,
    read_frame,
)
from brokers import Contender, OurBroker, make_key_store
from headrace.broker.config import BrokerConfig, parse_listeners
from headrace.broker.limits import memory_bound
from headrace.protocol.frame import encode_request
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.protocol.schema import Message
from headrace.records import Record, build_batch

if TYPE_CHECKING:
    from broker import Plan

KIB, MIB = 1024, 1024 * 1024
GOOD_PER_S = 200
GOOD_P99 = Goal(report.P99, 2)
SETTINGS = {
    "max.connections": "1500",
    "max.in.flight.requests": "1000",
    "socket.request.max.bytes": str(20 * MIB),
    "queued.max.request.bytes": str(32 * MIB),
    "max.partitions": "500",
    "max.groups": "1000",
    "max.group.members": "1000",
    "max.transactional.ids": "1000",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}
LISTEN = ("127.0.0.1:0", "SSL://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0")
_PLAIN, _TLS, _SASL = range(len(LISTEN))
_GIANT_PARTITIONS = 20
_OTHER_PARTITIONS = 200  # which make an answer about all topics a long one
_LOOK_S = 0.005
_REST_S = 0.2


class Kind(NamedTuple):
    """A kind of hostile clients: what each sends, by its number; how many come a second; how many stay."""

    name: str
    per_s: int
    stay: int
    sends: Callable[[int], bytes]
    listener: int = _PLAIN
    is_legal: bool = False

    def __str__(self) -> str:
        return f"good client beside {self.name}, {self.per_s}/s{', legal requests' if self.is_legal else ''}"


def hostile_rows(plan: "Plan", folder: Path, console: Console) -> Iterator[Row]:
    if not any(plan.wants("hostile", str(kind)) for kind in _kinds("", "")):
        return
    data_dir = folder / "ours-hostile"
    settings = SETTINGS | {"ssl.keystore.location": str(make_key_store(folder)), "ssl.keystore.type": "PEM"}
    terms = memory_bound(BrokerConfig(str(data_dir), parse_listeners(LISTEN, settings=settings), settings))
    bound = Goal(report.OWN_MB, round(sum(term.bytes for term in terms) / 1e6), of_ratio=False)
    process = OurBroker(data_dir, "os", settings, LISTEN)
    broker = Contender("ours", process, data_dir, {})
    with ExitStack() as stack:
        stack.callback(process.kill)
        process.start()
        prepare_commits(broker)
        prepare_transactions(broker)
        silent, giant, _ = (
            stack.enter_context(broker.topic(count)) for count in (1, _GIANT_PARTITIONS, _OTHER_PARTITIONS)
        )
        _fill(broker, giant)
        _slice(broker, None, plan.seconds)  # to warm up
        for kind in _kinds(silent, giant):
            if plan.wants("hostile", str(kind)):
                contenders = {
                    "ours": partial(_slice, broker, kind, 1.5 * plan.seconds),
                    "alone": partial(_slice, broker, None, 1.5 * plan.seconds),
                }
                row = report.measure(str(kind), contenders, (GOOD_P99, bound), plan.rounds, console)
                came = row.found["others_per_s"].medians["ours"]
                if came < REACHED * kind.per_s:
                    row = replace(row, name=f"{row.name} — RATE NOT REACHED ({came:.0f}/s)")
                yield row


def _fill(broker: Contender, topic: str) -> None:
    """A megabyte for each partition."""
    batch = Batch(build_batch([Record(0, 1, None, random.Random(1).randbytes(900_000))]), 1)
    with Wire(broker.address) as wire:
        for partition in range(_GIANT_PARTITIONS):
            check_produced(wire.send(produce_frame(topic, partition, batch, 1)), topic)


def _slice(broker: Contender, kind: Kind | None, seconds: float) -> Figures:
    """The good client for so long, beside hostile ones of this kind, or of none."""
    with broker.topic(1) as topic:
        _wait_for_rest(broker)
        cpu = broker.cpu_seconds()
        waits, came = together([_good(broker.address, topic, seconds), _hostile(broker, kind, seconds)])
        cpu = broker.cpu_seconds() - cpu
    return {
        **percentiles(waits),
        "max_ms": max(waits) * 1e3,
        "own_mb": came.most_mb,
        "others_per_s": came.count / seconds,
        "dropped": came.dropped,
        "sent_mb": came.sent_bytes / 1e6,
        "hostile_cpu_share": came.cpu_seconds / seconds,
        "broker_cpu_share": cpu / seconds,
    }


def _wait_for_rest(broker: Contender) -> None:
    """Return once the broker has nothing left to do for those who were there before."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        cpu = broker.cpu_seconds()
        time.sleep(_REST_S)
        if broker.cpu_seconds() - cpu < 0.1 * _REST_S:
            return
        if time.monotonic() > deadline:
            raise Refused(f"the broker is not at rest after {TIMEOUT_S} s")


def _good(address: str, topic: str, seconds: float) -> Load:
    batch = make_batch(RECORD_BYTES, RECORD_BYTES)
    produce, fetch = produce_frame(topic, 0, batch, 1), FetchFrame(topic, 0, MIB)

    def load(wait_for_start: Callable[[], None]) -> list[float]:
        sock = connect(address)
        buffer = bytearray(16 * KIB)

        def write_and_read(offset: int) -> None:
            sock.sendall(produce)
            read_frame(sock, buffer)
            check_produced(buffer, topic)
            sock.sendall(fetch.from_offset(offset))
            size = read_frame(sock, buffer)
            fetch.check(buffer)
            if size < len(batch.data):
                raise Refused(f"the record at offset {offset} was not read back")

        # Offsets count from 0 in a fresh topic, and each record is one. The first few open files.
        before = GOOD_PER_S // 10
        for offset in range(before):
            write_and_read(offset)
        clock = time.perf_counter
        waits = []
        wait_for_start()
        begin = clock()
        for number in range(int(seconds * GOOD_PER_S)):
            due = begin + number / GOOD_PER_S
            while (left := due - clock()) > 0:
                time.sleep(max(0, left - SPIN_S))
            write_and_read(before + number)
            waits.append(clock() - due)
        sock.close()
        return waits

    return load


class Came(NamedTuple):
    """What the hostile clients did, and what the broker held meanwhile."""

    count: int
    dropped: int
    sent_bytes: int
    cpu_seconds: float
    most_mb: float


def _hostile(broker: Contender, kind: Kind | None, seconds: float) -> Load:
    assert isinstance(broker.process, OurBroker)
    addresses = broker.process.addresses

    def load(wait_for_start: Callable[[], None]) -> Came:
        os.nice(19)
        there: deque[socket.socket] = deque()
        unsent: dict[socket.socket, memoryview] = {}
        count = dropped = sent_bytes = 0
        most_mb = 0.0
        wait_for_start()
        cpu = own_cpu_seconds()
        begin = now = time.perf_counter()
        while now < begin + seconds:
            while kind and count < int((now - begin) * kind.per_s) + 1 and time.perf_counter() < begin + seconds:
                sock = connect(addresses[kind.listener])
                sock.setblocking(False)
                there.append(sock)
                unsent[sock] = memoryview(kind.sends(count))
                count += 1
                if len(there) > kind.stay:
                    oldest = there.popleft()
                    unsent.pop(oldest, None)
                    oldest.close()
            for sock, data in list(unsent.items()):
                try:
                    size = sock.send(data[:MIB]) if data else 0
                except BlockingIOError:
                    continue
                except ConnectionError:
                    dropped += 1
                    del unsent[sock]
                    continue
                sent_bytes += size
                unsent[sock] = data[size:]
                if size == len(data):
                    del unsent[sock]
            most_mb = max(most_mb, broker.memory_mb("RssAnon"))
            time.sleep(_LOOK_S)
            now = time.perf_counter()
        cpu = own_cpu_seconds() - cpu
        for sock in there:
            sock.close()
        return Came(count, dropped, sent_bytes, cpu, most_mb)

    return load


# --- what they send


def _kinds(silent: str, giant: str) -> list[Kind]:
    """All kinds; the topic `giant` has much to read, and `silent` has nothing."""
    half = struct.pack(">i", 20 * MIB) + bytes(16 * MIB)
    hello = _client_hello()
    hellos = (hello, hello[: len(hello) // 2])
    login = _frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    login += _frame(SaslAuthenticateRequest(auth_bytes=b"n,,n=nobody,r=nonce"), 2)
    metadata = _frame(MetadataRequest(topics=None), 9)
    nothing = _frame(MetadataRequest(topics=[]), 9)
    waiting = bytes(FetchFrame(silent, 0, MIB, max_wait_ms=2**31 - 1).from_offset(0))
    giants = _fetch(giant, _GIANT_PARTITIONS, max_wait_ms=0, session_epoch=-1)
    many = [ListOffsetsPartition(partition_index=n % 100, timestamp=-1) for n in range(20_000)]
    large = _frame(ListOffsetsRequest(topics=[ListOffsetsTopic(name="nowhere", partitions=many)]), 7)
    polls = _fetch(silent, 5_000, max_wait_ms=2**31 - 1, session_epoch=0)
    return [
        Kind("silent connections", 500, 1000, lambda _: b""),
        Kind("reconnects", 200, 1, lambda _: nothing),
        Kind("lengths without a body", 200, 300, lambda _: half[:6]),
        Kind("half-sent frames of 16 MiB", 6, 20, lambda _: half),
        Kind("half handshakes of TLS", 100, 300, lambda n: hellos[n % 2], _TLS),
        Kind("half exchanges of SASL", 100, 200, lambda _: login, _SASL),
        Kind("fetches of 18 MB that nobody reads", 20, 60, lambda _: giants * 5),
        Kind("120 answers behind one that waits", 10, 100, lambda _: waiting + metadata * 120, is_legal=True),
        Kind("2,000 requests whose answers nobody reads", 5, 100, lambda _: metadata * 2_000, is_legal=True),
        Kind("requests of 20,000 entries", 2, 24, lambda _: large, is_legal=True),
        Kind("fetches of 5,000 partitions", 2, 10, lambda _: polls, is_legal=True),
        Kind("new groups, members and transactional ids", 50, 200, partial(_newcomer, silent), is_legal=True),
    ]


def _frame(request: Message, version: int) -> bytes:
    return encode_request(request, version, 1, "hostile")


def _fetch(topic: str, partitions: int, *, max_wait_ms: int, session_epoch: int) -> bytes:
    asked = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=MIB) for n in range(partitions)]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=50 * MIB, session_epoch=session_epoch)
    request.topics = [FetchTopic(topic=topic, partitions=asked)]
    return _frame(request, FETCH_VERSION)


def _newcomer(topic: str, number: int) -> bytes:
    """A group, a member and a transactional id that nobody had before; each slice is a process of its own."""
    name = f"{os.getpid()}-{number}"
    begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    commit = OffsetCommitRequest(group_id=name, generation_id_or_member_epoch=-1, member_id="")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit.topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    join = JoinGroupRequest(group_id=f"{name}-members", session_timeout_ms=30_000, rebalance_timeout_ms=60_000)
    join.protocol_type = "consumer"
    join.protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(1000))]
    return _frame(begin, 4) + _frame(commit, 8) + _frame(join, 5)


def _client_hello() -> bytes:
    """What a client of TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()
