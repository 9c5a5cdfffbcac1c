"""What a kill costs at the gateways where no other test shows it: cells of the table in `explanation/delivery.md`."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest

from headrace import Broker, nng, zeromq
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.gateways.grpc.wire import SERVICE, message
from headrace.gateways.multicast import Message, Publisher, Subscriber
from headrace.gateways.section import kind_of
from headrace.testing.contracts.gateway import write_topic
from tests.integration.gateways.running import running, started, values_of, wait_for
from tests.ports import free_port

LIBRARIES = pytest.mark.parametrize("library", [zeromq, nng], ids=["zeromq", "nng"])


class BrokerThatDies:
    """In a process of its own, at an address that stays."""

    def __init__(self, folder: Path) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self._folder = folder
        self.start()

    def start(self) -> None:
        self._broker = Broker(self._folder, listen=self.bootstrap, own_process=True).start()

    def kill(self) -> None:
        os.kill(self._broker.pid, signal.SIGKILL)
        self._broker.stop()

    def count(self, topic: str) -> int:
        with contextlib.suppress(ClientError):
            return len(values_of(self.bootstrap, topic))
        return 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThatDies]:
    broker = BrokerThatDies(tmp_path / "data")
    yield broker
    broker.kill()


class Counting(threading.Thread):
    """Sends one number after the other, a thousand a second, until it is told to stop."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        super().__init__()
        self.sent = 0
        self._send = send
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._is_over.wait(0.001):
            self._send(b"%d" % self.sent)
            self.sent += 1

    def stop(self) -> int:
        self._is_over.set()
        self.join(30)
        assert not self.is_alive()
        return self.sent


def end(gateway: "subprocess.Popen[str]") -> None:
    gateway.terminate()
    gateway.communicate()


def kill(process: "subprocess.Popen[Any]") -> None:
    process.kill()
    process.communicate()


# --- datagrams


def test_datagrams_that_a_gateway_had_when_it_was_killed_are_lost_and_no_others(broker: BrokerThatDies) -> None:
    port = free_port()
    options = ("--udp-port", str(port), "--value", "raw")
    gateway = started("syslog", "udp", broker.bootstrap, *options)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        sender = Counting(lambda number: udp.sendto(b"<13>" + number, ("127.0.0.1", port)))
        wait_for(lambda: broker.count("udp") > 100, "some are written")
        kill(gateway)
        before = broker.count("udp")
        gateway = started("syslog", "udp", broker.bootstrap, *options)
        since = sender.sent
        wait_for(lambda: broker.count("udp") > before + 100, "it goes on")
        sent = sender.stop()
        wait_for(lambda: values_of(broker.bootstrap, "udp")[-1] == b"<13>%d" % (sent - 1), "the last is there")
    end(gateway)
    found = [int(value[4:]) for value in values_of(broker.bootstrap, "udp")]
    assert found == sorted(set(found))
    lost = set(range(sent)) - set(found)
    assert lost
    assert max(lost) < since


@pytest.mark.parametrize("kind", ["syslog", "statsd"])
def test_datagrams_wait_for_a_broker_that_is_killed(broker: BrokerThatDies, kind: str) -> None:
    port = free_port()
    values: dict[str, Any] = {"udp_port": port, "value": "raw"}
    if kind == "statsd":
        values = {"port": port, "topic": "statsd", "interval_s": 0.2, "internal": "none"}

    def total() -> int:
        with contextlib.suppress(ClientError):
            found = values_of(broker.bootstrap, kind)
            return len(found) if kind == "syslog" else int(sum(json.loads(each)["value"] for each in found))
        return 0

    with (
        running(kind_of(kind), broker.bootstrap, kind, **values),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.connect(("127.0.0.1", port))
        wait_for(lambda: is_heard(udp), "it listens")
        sender = Counting(lambda number: udp.send(b"<13>" + number if kind == "syslog" else b"n:1|c"))
        for _ in range(2):
            before = total()
            wait_for(lambda before=before: total() > before + 50, "they are written")
            broker.kill()
            time.sleep(0.5)
            broker.start()
        sent = sender.stop()
        wait_for(lambda: total() == sent, "each is there, once")
    assert total() == sent


def is_heard(udp: socket.socket) -> bool:
    """Whether somebody is there: of a datagram to a port without anybody, the next one is told."""
    with contextlib.suppress(ConnectionRefusedError):
        udp.send(b"")
        time.sleep(0.01)
        udp.send(b"")
        return True
    return False


@pytest.mark.parametrize("kind", ["syslog", "statsd"])
def test_datagrams_of_a_sender_that_is_killed_are_there(broker: BrokerThatDies, kind: str) -> None:
    program = "import socket, sys, time; s = socket.socket(type=socket.SOCK_DGRAM)\n"
    program += "for n in range(50): s.sendto(eval(sys.argv[2]), ('127.0.0.1', int(sys.argv[1])))\n"
    program += "print('sent', flush=True); time.sleep(600)"
    port = free_port()
    values: dict[str, Any] = {"udp_port": port, "value": "raw"}
    line = "b'<13>%d' % n"
    if kind == "statsd":
        values, line = {"port": port, "interval_s": 0.2, "internal": "none"}, "b'n:1|c'"
    with running(kind_of(kind), broker.bootstrap, "sender", **values) as gateway:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.connect(("127.0.0.1", port))
            wait_for(lambda: is_heard(udp), "it listens")
        sender = subprocess.Popen([sys.executable, "-c", program, str(port), line], stdout=subprocess.PIPE)
        assert sender.stdout is not None
        assert sender.stdout.readline()
        kill(sender)
        wait_for(lambda: gateway.progress.received >= 50, "all have come")
        wait_for(lambda: broker.count("sender") >= (50 if kind == "syslog" else 1), "they are written")
    found = values_of(broker.bootstrap, "sender")
    if kind == "syslog":
        assert found == [b"<13>%d" % number for number in range(50)]
    else:
        assert sum(json.loads(each)["value"] for each in found) == 50


# --- ZeroMQ and nng


@LIBRARIES
def test_what_a_pulling_gateway_had_when_it_was_killed_is_lost(broker: BrokerThatDies, library: ModuleType) -> None:
    name = library.__name__.rpartition(".")[2]
    place = f"tcp://127.0.0.1:{free_port()}"
    options = ("--socket", "pull", "--listen", place)
    gateway = started(name, "pulled", broker.bootstrap, *options)
    with contextlib.closing(Talking(lambda: library.Pusher(connect=place, high_water_mark=10, linger=20))) as pushing:
        for _ in range(2):
            before = broker.count("pulled")
            wait_for(lambda before=before: broker.count("pulled") > before + 200, "they are written")
            kill(gateway)
            gateway = started(name, "pulled", broker.bootstrap, *options)
        before = broker.count("pulled")
        wait_for(lambda: broker.count("pulled") > before + 200, "it goes on")
        sent = pushing.close()
    wait_for(lambda: values_of(broker.bootstrap, "pulled")[-1] == b"%d" % (sent - 1), "the last is there")
    end(gateway)
    found = [int(value) for value in values_of(broker.bootstrap, "pulled")]
    assert found == sorted(set(found)), "in order, each once"
    assert len(found) > 600


class Talking:
    """Sends numbers in a thread of its own, to which the socket belongs."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.sent = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make,))
        self._thread.start()

    def _run(self, make: Callable[[], Any]) -> None:
        with make() as sender:
            while not self._is_over.wait(0.001):
                sender.send(b"%d" % self.sent, topic="told")
                self.sent += 1

    def close(self) -> int:
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.sent


@LIBRARIES
def test_what_is_published_while_a_subscribing_gateway_is_away_is_lost(
    broker: BrokerThatDies, library: ModuleType
) -> None:
    name = library.__name__.rpartition(".")[2]
    place = f"tcp://127.0.0.1:{free_port()}"
    options = ("--socket", "sub", "--connect", place, "--subscribe", "*", "--topic", "heard")
    gateway = started(name, "listener", broker.bootstrap, *options)
    with contextlib.closing(Talking(lambda: library.Publisher(listen=place))) as publishing:
        wait_for(lambda: broker.count("heard") > 200, "they are written")
        kill(gateway)
        away = publishing.sent
        wait_for(lambda: publishing.sent > away + 200, "more is published, to nobody")
        before = broker.count("heard")
        gateway = started(name, "listener", broker.bootstrap, *options)
        wait_for(lambda: broker.count("heard") > before + 200, "it goes on")
    end(gateway)
    found = [int(value) for value in values_of(broker.bootstrap, "heard")]
    assert found == sorted(set(found)), "in order, each once"
    assert set(range(away + 1, away + 200)).isdisjoint(found)


ASKER = """
import sys, headrace
with getattr(headrace, sys.argv[1]).Requester(connect=sys.argv[2], timeout=20) as asks:
    for number in range(100_000):
        asks.call(b"%d" % number)
        print(number, flush=True)
"""


@LIBRARIES
def test_what_was_answered_to_an_asker_that_is_killed_is_there(broker: BrokerThatDies, library: ModuleType) -> None:
    name = library.__name__.rpartition(".")[2]
    place = f"tcp://127.0.0.1:{free_port()}"
    values = {"socket": "router" if library is zeromq else "rep", "topic": "asked", "listen": [place]}
    with running(kind_of(name), broker.bootstrap, "answering", **values):
        for _ in range(2):
            asker = subprocess.Popen([sys.executable, "-c", ASKER, name, place], stdout=subprocess.PIPE, text=True)
            assert asker.stdout is not None
            for _ in range(100):
                asker.stdout.readline()
            asker.kill()
            answered = int(asker.communicate()[0].split("\n")[-2:][0] or 99)
            assert answered >= 99
        wait_for(lambda: broker.count("asked") >= 200, "all is written")
    found = [int(value) for value in values_of(broker.bootstrap, "asked")]
    second = found.index(0, 1)
    for numbers in (found[:second], found[second:]):
        assert numbers == list(range(len(numbers))), "in order, each once"
        assert len(numbers) >= 100


@LIBRARIES
def test_an_asker_that_is_killed_harms_no_other(tmp_path: Path, library: ModuleType) -> None:
    name = library.__name__.rpartition(".")[2]
    place = f"ipc://{tmp_path}/answers"
    stopping = threading.Event()
    handled: list[bytes] = []

    def answer(request: Any) -> bytes:
        handled.append(request.value)
        return bytes(request.value)

    def serve() -> None:
        with library.Responder(answer, listen=place) as responder:
            responder.run(stopping)

    server = threading.Thread(target=serve)
    server.start()
    try:
        for _ in range(3):
            asker = subprocess.Popen([sys.executable, "-c", ASKER, name, place], stdout=subprocess.PIPE, text=True)
            assert asker.stdout is not None
            asker.stdout.readline()
            kill(asker)
        with library.Requester(connect=place, timeout=20) as asks:
            assert asks.call(b"alive").value == b"alive"
        assert handled.count(b"alive") == 1
        assert handled.count(b"0") == 3
    finally:
        stopping.set()
        server.join(20)
    assert not server.is_alive()


SUBSCRIBER = """
import sys, headrace
with getattr(headrace, sys.argv[1]).Subscriber("told", connect=sys.argv[2]) as subscriber:
    for message in subscriber:
        print(message.value.decode(), flush=True)
"""


@LIBRARIES
def test_what_is_published_until_a_killed_subscriber_is_back_is_lost(tmp_path: Path, library: ModuleType) -> None:
    name = library.__name__.rpartition(".")[2]
    place = f"ipc://{tmp_path}/told"
    heard: list[list[int]] = []
    with contextlib.closing(Talking(lambda: library.Publisher(listen=place))) as publishing:
        for _ in range(2):
            subscriber = subprocess.Popen(
                [sys.executable, "-c", SUBSCRIBER, name, place], stdout=subprocess.PIPE, text=True
            )
            assert subscriber.stdout is not None
            heard.append([int(subscriber.stdout.readline()) for _ in range(100)])
            kill(subscriber)
            away = publishing.sent
            wait_for(lambda away=away: publishing.sent > away + 200, "more is published")
    for numbers in heard:
        assert numbers == list(range(numbers[0], numbers[0] + 100)), "nothing is lost while it is there"
    assert heard[1][0] > heard[0][-1] + 200


@LIBRARIES
def test_what_a_killed_gateway_may_have_held_is_pushed_again(broker: BrokerThatDies, library: ModuleType) -> None:
    """Without acknowledgements, to a consumer that lives on."""
    name = library.__name__.rpartition(".")[2]
    place = f"tcp://127.0.0.1:{free_port()}"
    options = ("--socket", "push", "--listen", place, "--topic", "pushed", "--high-water-mark", "20", "--from", "start")
    wanted = [b"%d" % number for number in range(2_000)]
    write_topic(broker.bootstrap, "pushed", wanted)
    came: set[bytes] = set()
    with library.Puller(connect=place, high_water_mark=20) as puller:
        for turn in range(3):
            gateway = started(name, "pusher", broker.bootstrap, *options)
            enough = 500 * (turn + 1) if turn < 2 else 2_000
            while len(came) < enough:
                told = puller.receive(30)
                assert told is not None, f"only {len(came)} of 2,000 came"
                came.add(told.value)
                time.sleep(0.0005)  # so that it is killed in the middle
            kill(gateway)
    assert came == set(wanted)


@LIBRARIES
def test_a_published_topic_goes_on_where_it_was_after_a_kill_of_its_broker(
    broker: BrokerThatDies, library: ModuleType
) -> None:
    place = f"tcp://127.0.0.1:{free_port()}"
    name = library.__name__.rpartition(".")[2]
    write_topic(broker.bootstrap, "told", [])
    values = {"socket": "pub", "topic": "told", "listen": [place]}
    with (
        running(kind_of(name), broker.bootstrap, "teller", **values) as gateway,
        library.Subscriber("told", connect=place) as subscriber,
    ):
        first = None
        while first is None:
            write_topic(broker.bootstrap, "told", [b"is anybody there?"])
            first = subscriber.receive(0.2)
        for kills in range(3):
            write_topic(broker.bootstrap, "told", [b"%d.%d" % (kills, number) for number in range(200)])
            came: list[bytes] = []
            while len(came) < 200:
                told = subscriber.receive(30)
                assert told is not None
                if told.value != b"is anybody there?":
                    came.append(told.value)
            assert came == [b"%d.%d" % (kills, number) for number in range(200)]
            broker.kill()
            broker.start()
            wait_for(lambda: not gateway.progress.waiting, "it has its broker again")
        assert subscriber.missed == 0


@LIBRARIES
def test_subscribers_of_a_killed_gateway_miss_what_is_published_before_they_are_back(
    broker: BrokerThatDies, library: ModuleType
) -> None:
    place = f"tcp://127.0.0.1:{free_port()}"
    name = library.__name__.rpartition(".")[2]
    options = ("--socket", "pub", "--listen", place, "--topic", "told")
    write_topic(broker.bootstrap, "told", [])
    gateway = started(name, "teller", broker.bootstrap, *options)
    with library.Subscriber("told", connect=place) as subscriber:
        came: list[int] = []
        writer = Counting(lambda number: write_topic(broker.bootstrap, "told", [number]))
        for kills in range(2):
            before = len(came)
            while len(came) < before + 50:
                told = subscriber.receive(30)
                assert told is not None
                came.append(int(told.value))
            if not kills:
                kill(gateway)
                gateway = started(name, "teller", broker.bootstrap, *options)
        writer.stop()
    end(gateway)
    assert len(came) == 100
    first, second = came[:50], came[50:]
    assert first == sorted(set(first))
    assert second == sorted(set(second))  # it may begin a little before where it was: by what the last one held


# --- multicast


def test_who_joins_a_group_hears_what_is_published_from_then_on() -> None:
    """A subscriber that was killed is nobody's concern; the next one learns only what comes now."""
    group = f"239.255.44.7:{free_port()}"
    with Publisher(group, name="source") as publisher:
        for turn in range(2):
            with Subscriber(group) as subscriber:
                told: list[Message] = []
                publisher.publish(b"first of %d" % turn)
                while not told:
                    told = [each for each in subscriber.take(100, 20) if isinstance(each, Message)]
                assert [each.value for each in told] == [b"first of %d" % turn]
            publisher.publish(b"to nobody")
            assert publisher.flush(10)


# --- requests


@pytest.mark.parametrize("kind", ["http", "otlp", "webhook"])
def test_half_a_request_of_a_client_that_is_killed_writes_nothing(broker: BrokerThatDies, kind: str) -> None:
    port = free_port()
    with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        create_topic(cluster, "half")
    values: dict[str, Any] = {"port": port}
    path, body = "/produce/half", b'{"value": "whole"}'
    if kind == "otlp":
        values |= {"logs": "half"}
        path, body = "/v1/logs", b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"whole"}}]}]}]}'
    elif kind == "webhook":
        values |= {"topic": "half", "provider": "none", "path": "/hook"}
        path = "/hook"
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    first, second, third = (f"{head}\r\n\r\n".encode() + body.replace(b"whole", b"who%de" % n) for n in range(3))
    program = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    program += "s.sendall(eval(sys.argv[2])); print('sent', flush=True); time.sleep(600)"
    with running(kind_of(kind), broker.bootstrap, kind, **values) as gateway:
        wait_for(lambda: is_open(port) and not gateway.progress.waiting, "it is ready")
        for sent in (first[:-5], second + first[:-5]):  # alone, and behind one that is whole
            client = subprocess.Popen([sys.executable, "-c", program, str(port), repr(sent)], stdout=subprocess.PIPE)
            assert client.stdout is not None
            assert client.stdout.readline()
            kill(client)
        wait_for(lambda: broker.count("half"), "what is whole is written")
        with socket.create_connection(("127.0.0.1", port), timeout=30) as after:
            after.sendall(third)
            assert after.recv(1000).startswith(b"HTTP/1.1 200 ")
    found = values_of(broker.bootstrap, "half")
    assert [(b"who1e" in value, b"who2e" in value) for value in found] == [(True, False), (False, True)]


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


# --- gRPC

PRODUCER = """
import itertools, sys, grpc
from headrace.gateways.grpc.wire import SERVICE, message
def requests():
    for number in itertools.count():
        yield message("ProduceRequest")(topic="streamed", id=number, records=[{"value": b"%d" % number}])
with grpc.insecure_channel(sys.argv[1]) as channel:
    call = channel.stream_stream(f"/{SERVICE}/ProduceStream", lambda one: one.SerializeToString(),
                                 message("ProduceResponse").FromString)
    for said in call(requests()):
        print(said.id, flush=True)
"""
MEMBER = """
import queue, sys, grpc
from headrace.gateways.grpc.wire import SERVICE, message
asked = queue.Queue()
asked.put(message("GroupRequest")(join={"group": "readers", "topics": ["shared"], "reset": 1}))
with grpc.insecure_channel(sys.argv[1]) as channel:
    call = channel.stream_stream(f"/{SERVICE}/ConsumeGroup", lambda one: one.SerializeToString(),
                                 message("GroupResponse").FromString)
    for said in call(iter(asked.get, None)):
        if said.HasField("assigned"):
            print("assigned", *sorted(each.partition for each in said.assigned.partitions), flush=True)
        for record in said.records.records:
            print(record.value.decode(), flush=True)
"""


def test_what_a_streaming_client_was_told_before_it_was_killed_is_there(broker: BrokerThatDies) -> None:
    with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        create_topic(cluster, "streamed")
    port = free_port()
    with running(kind_of("grpc"), broker.bootstrap, "rpc", port=port) as gateway:
        wait_for(lambda: is_open(port), "it listens")
        client = subprocess.Popen(
            [sys.executable, "-c", PRODUCER, f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True
        )
        assert client.stdout is not None
        told = [int(client.stdout.readline()) for _ in range(500)]
        client.kill()
        told += [int(line) for line in client.communicate()[0].split("\n")[:-1]]
        wait_for(lambda: gateway.progress.connections == 0, "its call is over")
    found = [int(value) for value in values_of(broker.bootstrap, "streamed")]
    assert found == list(range(len(found))), "what is there is a beginning of what was sent"
    assert len(found) > max(told)


def test_partitions_of_a_member_that_was_killed_go_to_the_others_at_once(broker: BrokerThatDies) -> None:
    with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        create_topic(cluster, "shared", partitions=2)
    port = free_port()
    with running(kind_of("grpc"), broker.bootstrap, "rpc", port=port):
        wait_for(lambda: is_open(port), "it listens")
        members = [Member(port), Member(port)]
        wait_for(lambda: [len(each.partitions) for each in members] == [1, 1], "each has one")
        members[0].kill()
        began = time.monotonic()
        wait_for(lambda: members[1].partitions == {0, 1}, "the other one has both")
        assert time.monotonic() - began < 20, "sooner than a session times out"
        wanted = {str(number) for number in range(100)}
        write_topic(broker.bootstrap, "shared", [each.encode() for each in sorted(wanted)])
        wait_for(lambda: members[1].values == wanted, "and all that comes")
        members[1].kill()


class Member:
    """A member of a group in a process of its own."""

    def __init__(self, port: int) -> None:
        self.partitions: set[int] = set()
        self.values: set[str] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, f"127.0.0.1:{port}"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                if line.startswith("assigned"):
                    self.partitions = {int(each) for each in line.split()[1:]}
                else:
                    self.values.add(line.strip())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join(20)


def test_who_begins_again_at_the_next_offsets_has_each_record_once(broker: BrokerThatDies) -> None:
    """The gateway and the broker are killed in turn, while somebody writes."""
    with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        create_topic(cluster, "read", partitions=2)
    port = free_port()
    gateway = started("grpc", "rpc", broker.bootstrap, "--port", str(port))
    came: list[bytes] = []
    is_over = threading.Event()

    def read() -> None:
        places: dict[int, int] = {}
        while not is_over.is_set():
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, contextlib.suppress(grpc.RpcError):
                call = channel.unary_stream(
                    f"/{SERVICE}/Consume", lambda one: one.SerializeToString(), message("ConsumeResponse").FromString
                )(message("ConsumeRequest")(topic="read", reset=1, offsets=places))
                for said in call:
                    came.extend(record.value for record in said.records)
                    places |= said.next_offsets
                    if is_over.is_set():
                        return
            is_over.wait(0.05)

    def write(number: bytes) -> None:
        with contextlib.suppress(ClientError):
            write_topic(broker.bootstrap, "read", [number])

    reader = threading.Thread(target=read)
    reader.start()
    writer = Counting(write)
    for kills in range(4):
        before = len(came)
        wait_for(lambda before=before: len(came) > before + 50, "records come")
        if kills % 2:
            broker.kill()
            broker.start()
        else:
            kill(gateway)
            gateway = started("grpc", "rpc", broker.bootstrap, "--port", str(port))
    writer.stop()
    wanted = Counter(values_of(broker.bootstrap, "read"))
    wait_for(lambda: len(came) >= wanted.total(), "all came")
    assert Counter(came) == wanted, "each as often as it is in the log"
    is_over.set()
    write(b"the last one, which ends the wait")
    reader.join(30)
    end(gateway)
    assert not reader.is_alive()
