"""The broker's memory under hostile clients, beside a good one: it stays below the bound that its settings give.

The broker is a process of its own, and what is measured is its own memory (RssAnon), all the while: pages of log files
that are mapped to be sent are the system's, which takes them back. Each attack is held until the good client has been
served meanwhile.
"""

import contextlib
import random
import resource
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import jwt
import pytest

from headrace.broker.config import Address, BrokerConfig, parse_listeners
from headrace.broker.embedded import Broker
from headrace.broker.limits import SHARE_LOCKS_ALWAYS, memory_bound
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frame import encode_request
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.protocol.messages.share_fetch import FetchPartition as ShareFetchPartition
from headrace.protocol.messages.share_fetch import FetchTopic as ShareFetchTopic
from headrace.records import Record, build_batch
from headrace.security.login import MAX_TOKEN_BYTES
from tests.certificates import make_authority, make_certificate
from tests.conformance.clients.sharing import RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire as AnyWire
from tests.conformance.clients.wire import batch_of
from tests.integration.test_broker_logins import KEY, jwks
from tests.integration.test_hostile_clients import GoodClient
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

MIB: Final = 1024 * 1024
SETTINGS: Final = {
    "max.connections": "700",
    "max.in.flight.requests": "1000",
    "socket.request.max.bytes": str(20 * MIB),
    "queued.max.request.bytes": str(32 * MIB),
    "max.partitions": "300",
    "max.memory.topic.bytes": "0",
    "max.groups": "200",
    "max.group.members": "200",
    "max.transactional.ids": "200",
    "max.share.partitions": "150",
    "max.share.record.locks": "2000",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "group.initial.rebalance.delay.ms": "0",
}
LISTEN: Final = ["127.0.0.1:0", "SSL://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]


def own_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no RssAnon")


class Attacked:
    """A broker, a good client of it, and the most memory that it was seen to have."""

    def __init__(self, broker: Broker, settings: dict[str, str]) -> None:
        self.pid = broker.pid
        self.plain, self.tls, self.sasl = broker.bootstrap_servers.split(",")
        terms = memory_bound(BrokerConfig("data", parse_listeners(LISTEN), settings))
        self.bound_mib = sum(term.bytes for term in terms) / MIB
        self.good = GoodClient(broker)
        self.most_mib = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._measure)
        self._thread.start()

    def _measure(self) -> None:
        while not self._is_over.wait(0.02):
            self.most_mib = max(self.most_mib, own_mib(self.pid))

    @contextmanager
    def hold(self, at_most_mib: float) -> Iterator[ExitStack]:
        """Attack within the block; how much memory that may take at any moment is told."""
        before = self.most_mib = own_mib(self.pid)
        with ExitStack() as opened:
            yield opened
            served = self.good.served
            wait_until(
                lambda: self.good.served >= served + 5 or self.good.failure is not None,
                "the good client is not served",
                patience_s=60,
            )
        if self.good.failure:
            raise self.good.failure
        assert self.most_mib - before < at_most_mib
        assert self.most_mib < self.bound_mib

    def connect(self, opened: ExitStack, address: str = "") -> socket.socket:
        return opened.enter_context(socket.create_connection(Address.parse(address or self.plain), timeout=60))

    def wire(self, opened: ExitStack, address: str = "") -> Wire:
        return opened.enter_context(Wire(address or self.plain, timeout=60))

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self.good.end()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("bound")
    make_authority(folder, "authority")
    store = make_certificate(folder, "broker", "authority", alternative="IP:127.0.0.1")
    (folder / "jwks.json").write_text(jwks(first=KEY))
    settings = SETTINGS | {
        "ssl.keystore.location": str(store),
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with Broker(folder / "data", listen=LISTEN, durability="os", own_process=True, settings=settings) as broker:
        attacked = Attacked(broker, settings)
        try:
            yield attacked
        finally:
            attacked.close()


def send_what_is_taken(sock: socket.socket, data: bytes) -> int:
    """Send until the broker takes no more, or all is sent; how much that was."""
    sock.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < len(data):
            sent += sock.send(data[sent : sent + MIB])
    return sent


# --- half of something


def test_lengths_without_a_body(attacked: Attacked) -> None:
    with attacked.hold(30) as opened:
        for _ in range(300):
            attacked.connect(opened).sendall(struct.pack(">i", 20 * MIB) + bytes(2))


def test_half_sent_frames(attacked: Attacked) -> None:
    """Ten times as much as may be held: who comes when there is no room is not read from."""
    half = struct.pack(">i", 20 * MIB) + bytes(16 * MIB)
    with attacked.hold(32 + 2 * 20 + 20) as opened:
        sent = [send_what_is_taken(attacked.connect(opened), half) for _ in range(20)]
    assert sum(sent) > 32 * MIB  # so it came to that


def test_whoever_holds_memory_without_a_word_makes_room_for_a_large_request(attacked: Attacked) -> None:
    half = struct.pack(">i", 20 * MIB) + bytes(12 * MIB)
    with attacked.hold(32 + 2 * 20 + 20) as opened:
        for _ in range(6):
            send_what_is_taken(attacked.connect(opened), half)
        wire = attacked.wire(opened)
        wire.create("large")
        batch = build_batch([Record(0, 1, b"k", random.Random(1).randbytes(900_000))])
        for offset in range(3):
            assert wire.produce("large", batch) == (0, offset)


def test_half_handshakes_of_tls(attacked: Attacked) -> None:
    hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(*hello).do_handshake()
    greeting = hello[1].read()
    with attacked.hold(300 * 0.3 + 20) as opened:
        for number in range(300):
            sock = attacked.connect(opened, attacked.tls)
            sock.sendall(greeting[: len(greeting) // 2] if number % 2 else greeting)


def test_half_exchanges_of_sasl(attacked: Attacked) -> None:
    first = b"n,,n=nobody,r=nonce"
    with attacked.hold(30) as opened:
        for _ in range(200):
            wire = attacked.wire(opened, attacked.sasl)
            wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse, 1)
            wire.send(SaslAuthenticateRequest(auth_bytes=first), 2)


def test_tokens_that_say_nothing(attacked: Attacked) -> None:
    """As long as a token may be, of as many clients as there may be, half of which leave before it is looked at."""
    claimed = jwt.encode({"sub": "x" * 20_000}, KEY, "ES256", headers={"kid": "unknown"})
    token = b"n,,\x01auth=Bearer " + claimed.encode() + b"\x01\x01"
    assert len(token) < MAX_TOKEN_BYTES
    with attacked.hold(60) as opened:
        for number in range(200):
            wire = attacked.wire(opened, attacked.sasl)
            wire.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse, 1)
            wire.send(SaslAuthenticateRequest(auth_bytes=token), 2)
            if number % 2:
                wire.socket.close()


def test_whole_handshakes_of_tls_at_once(attacked: Attacked) -> None:
    """Each is work for the broker: that they hold nobody up is checked for every test (`tests/conftest.py`)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with attacked.hold(200 * 0.3 + 20) as opened:
        socks = [attacked.connect(opened, attacked.tls) for _ in range(200)]
        sides = []
        for _ in socks:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing)
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            sides.append((tls, incoming, outgoing))
        for sock, (_, _, outgoing) in zip(socks, sides, strict=True):
            sock.sendall(outgoing.read())
        for sock, (tls, incoming, outgoing) in zip(socks, sides, strict=True):
            while True:
                incoming.write(sock.recv(65536))
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
            sock.sendall(outgoing.read())


# --- answers that nobody takes


def test_answers_that_are_not_read(attacked: Attacked) -> None:
    with Wire(attacked.plain) as wire:
        wire.create("wide", 200)
    frame = encode_request(MetadataRequest(topics=None), 9, 1, "")
    with attacked.hold(32 + 2 * 20 + 100) as opened:
        for _ in range(100):
            sock = attacked.connect(opened)
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.sendall(frame * 2000)


def test_slow_readers_of_giant_fetches(attacked: Attacked) -> None:
    batch = build_batch([Record(0, 1, b"k", random.Random(2).randbytes(900_000))])
    with Wire(attacked.plain, timeout=60) as wire:
        wire.create("giant", 20)
        for partition in range(20):
            request = wire.produce_request("giant", batch, acks=1)
            request.topic_data[0].partition_data[0].index = partition
            wire.send(request, 9)
            wire.receive_frame()
    asked = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=MIB) for n in range(20)]
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=50 * MIB, session_epoch=-1)
    fetch.topics = [FetchTopic(topic="giant", partitions=asked)]
    frame = encode_request(fetch, 12, 1, "")
    with attacked.hold(60) as opened:
        for _ in range(60):
            sock = attacked.connect(opened)
            sock.sendall(frame * 5)
            assert sock.recv(4)  # it has begun


def test_answers_behind_one_that_waits(attacked: Attacked) -> None:
    with Wire(attacked.plain) as wire:
        wire.create("silent")
        waiting = encode_request(wire.fetch_request("silent", 0, wait_ms=2**31 - 1), 12, 1, "")
    frame = encode_request(MetadataRequest(topics=None), 9, 1, "")
    with attacked.hold(32 + 2 * 20 + 100) as opened:
        for _ in range(100):
            sock = attacked.connect(opened)
            sock.sendall(waiting + frame * 120)


# --- requests


def test_large_requests_of_many_clients(attacked: Attacked) -> None:
    asked = [ListOffsetsPartition(partition_index=n % 100, timestamp=-1) for n in range(20_000)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="nowhere", partitions=asked)])
    frame = encode_request(request, 7, 1, "")
    with attacked.hold(4 * 128 + 20) as opened:
        wires = [attacked.wire(opened) for _ in range(24)]
        for wire in wires:
            wire.socket.sendall(frame)
    with Wire(attacked.plain, timeout=60) as wire:
        wire.socket.sendall(frame)
        assert len(wire.receive_frame()) > 20_000  # and it is answered


def test_long_polls_of_many_partitions(attacked: Attacked) -> None:
    with Wire(attacked.plain) as wire:
        wire.create("polled")
    asked = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=MIB) for n in range(5_000)]
    fetch = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, max_bytes=50 * MIB, session_epoch=0)
    fetch.topics = [FetchTopic(topic="polled", partitions=asked)]
    frame = encode_request(fetch, 12, 1, "")
    with attacked.hold(4 * 128 + 100) as opened:
        for _ in range(10):
            attacked.wire(opened).socket.sendall(frame)


# --- what is kept


def test_records_that_share_groups_hold_each_with_a_reason_of_its_own(attacked: Attacked) -> None:
    """Ten groups want 2,000 records each, and fail every one for another reason, as long as one may be."""
    with attacked.hold(2_000 * 3 / 1024 + 150 * 8 / 1024 + 15) as opened:
        wire = opened.enter_context(AnyWire(attacked.plain))
        wire.create("shared", 20)
        for index in range(20):
            wire.produce("shared", batch_of(*[b"x"] * 100), partition=index)
        everywhere = [ShareFetchPartition(partition_index=index) for index in range(20)]
        held, refused = 0, set()
        for number in range(10):
            group = f"s-{number}"
            set_group(wire, group, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name="dlq.shared")
            sharer = Sharer(wire, group, "shared")
            sharer.join()
            named = {"topics": [ShareFetchTopic(topic_id=sharer.topic_id, partitions=everywhere)]}
            seen: set[int] = set()
            while len(seen) < 20:
                answers = [part for of in sharer.fetch(max_wait_ms=20, **named).responses for part in of.partitions]
                named = {"topics": []}
                for answer in answers:
                    seen.add(answer.partition_index)
                    if answer.error_code:
                        assert answer.error_code == ErrorCode.POLICY_VIOLATION
                        refused.add((group, answer.partition_index))
                        continue
                    runs = answer.acquired_records
                    offsets = [at for run in runs for at in range(run.first_offset, run.last_offset + 1)]
                    held += len(offsets)
                    where = f"{group} {answer.partition_index}"
                    failed = [
                        (at, at, [RELEASE], {"reason": f"{where} {at} ".ljust(1000, "x"), "retry_after_ms": 600_000})
                        for at in offsets
                    ]
                    (outcome,) = sharer.acknowledge(*failed, partition=answer.partition_index).responses[0].partitions
                    assert outcome.error_code == 0
        assert held <= 2_000 + 150 * SHARE_LOCKS_ALWAYS
        assert held >= 2_000
        assert len(refused) == 200 - 150


def test_groups_members_and_transactional_ids(attacked: Attacked) -> None:
    join = JoinGroupRequest(session_timeout_ms=30_000, rebalance_timeout_ms=60_000, member_id="")
    join.protocol_type = "consumer"
    join.protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(1000))]
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(generation_id_or_member_epoch=-1, member_id="")
    commit.topics = [OffsetCommitRequestTopic(name="kept", partitions=[partition])]
    with attacked.hold(20) as opened:
        wire = attacked.wire(opened)
        wire.create("kept")
        for number in range(400):
            begin = InitProducerIdRequest(transactional_id=f"t-{number}", transaction_timeout_ms=60_000)
            wire.ask(begin, InitProducerIdResponse, 4)
            commit.group_id = f"g-{number}"
            wire.ask(commit, OffsetCommitResponse, 8)
            join.group_id = f"m-{number % 10}"
            wire.send(join, 5)
            wire.receive_frame()


# --- connections


def test_reconnects_in_a_row(attacked: Attacked) -> None:
    reconnect(attacked, 1_000)


@pytest.mark.long
def test_many_reconnects_in_a_row(attacked: Attacked) -> None:
    reconnect(attacked, 5_000)


def reconnect(attacked: Attacked, times: int) -> None:
    with attacked.hold(30):
        for _ in range(times):
            with Wire(attacked.plain, timeout=60) as wire:
                wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)


def test_silent_connections(attacked: Attacked) -> None:
    with attacked.hold(30) as opened:
        for _ in range(400):
            attacked.connect(opened)


@pytest.mark.long
def test_ten_thousand_silent_connections(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(10_000, (hard if hard > 0 else 2**20) - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    settings = {"max.connections": str(wanted + 100)}
    try:
        with Broker(tmp_path / "data", durability="os", own_process=True, settings=settings) as broker:
            before = own_mib(broker.pid)
            with ExitStack() as opened:
                for _ in range(wanted):
                    opened.enter_context(socket.create_connection(Address.parse(broker.bootstrap_servers), timeout=60))
                with Wire(broker.bootstrap_servers, timeout=60) as wire:  # accepted after all of them
                    wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
                assert own_mib(broker.pid) - before < wanted * 32 / 1024
            files = Path(f"/proc/{broker.pid}/fd")
            wait_until(lambda: len(list(files.iterdir())) < 500, "it has not noticed that they left", patience_s=60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
