"""Gateways of ZeroMQ: the contract of all gateways, deaths of either side and of the broker, and plain programs."""

import json
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import zmq

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.coordinators import Coordinators
from headrace.client.groups import committed_offsets
from headrace.errors import HeadraceError
from headrace.gateways.messaging.message import decode, encode, topic_prefix
from headrace.gateways.zeromq import CurveClient, Keys, Publisher, Puller, Pusher, RemoteError, Requester, Subscriber
from headrace.testing.contracts.gateway import (
    TOPIC,
    InwardGatewayContract,
    OutwardGatewayContract,
    free_port,
    read_topic,
    until,
    write_topic,
)


def place(section):
    return (section.get("listen") or section["connect"])[0]


class TestPull(InwardGatewayContract):
    kind = "zeromq"

    def values(self, topic, port):
        return {"socket": "pull", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"]}

    def send(self, section, messages):
        with Pusher(connect=place(section), linger=10, timeout=10) as pusher:
            for message in messages:
                pusher.send(message)

    def send_bad(self, section):
        with zmq.Context() as context, context.socket(zmq.PUSH) as push:
            push.linger = 10_000
            push.connect(place(section))
            for frame in (b"", b"plain", b"x" * 1000, encode(b"v")[:20], b"\xff\0" + encode(b"v")[1:]):
                push.send(frame)
            push.send_multipart([b"two", b"frames"])
        return 7

    def test_topics_keys_headers_and_times(self, broker, port):
        section = self.section(port, topics=["other"])
        with self.running(broker.bootstrap_servers, section) as running:
            self.until_ready(running)
            with Pusher(connect=place(section), linger=10) as pusher:
                pusher.send(b"1", b"k", topic="other", headers={"a": "b"}, timestamp_ms=1_700_000_000_000)
                pusher.send(None, b"k", topic="unknown", timestamp_ms=-5)
            self.expect(broker.bootstrap_servers, [b""], running)
            until(
                lambda: read_topic(broker.bootstrap_servers, "other") == [(b"k", b"1")], "it is in the topic it names"
            )

    def test_a_broker_that_is_away_holds_up_whoever_pushes(self, tmp_path, port):
        """What the buffer and both high-water marks hold is taken; then the pusher waits, and nothing is lost."""
        at = free_port()
        section = self.section(port, buffer_mb=1, high_water_mark=5)
        with (
            self.running(f"127.0.0.1:{at}", section) as running,
            Pusher(connect=place(section), high_water_mark=5, timeout=1.0, linger=20) as pusher,
        ):
            with suppress(TimeoutError):
                while pusher.sent < 10_000:
                    pusher.send(b"%06d" % pusher.sent + bytes(20_000))
            sent = pusher.sent
            assert 40 < sent < 2_000
            with Broker(tmp_path / "own", listen=f"127.0.0.1:{at}") as broker:
                until(lambda: running.gateway.progress.records >= sent - 20, "it goes on")
                pusher.send(b"last")
                until(lambda: len(self.found(broker.bootstrap_servers)) == sent + 1, "all are there")
                assert running.gateway.progress.dropped == 0


class TestPlainPull(TestPull):
    """A plain program of pyzmq, whose frame is the value."""

    def values(self, topic, port):
        return {"socket": "pull", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"], "form": "raw"}

    def send(self, section, messages):
        with zmq.Context() as context, context.socket(zmq.PUSH) as push:
            push.linger = 10_000
            push.connect(place(section))
            for message in messages:
                push.send(message)

    def send_bad(self, section):
        with zmq.Context() as context, context.socket(zmq.PUSH) as push:
            push.linger = 10_000
            push.connect(place(section))
            push.send_multipart([b"two", b"frames"])
        return 1

    test_topics_keys_headers_and_times = None
    test_a_broker_that_is_away_holds_up_whoever_pushes = None


class TestRouter(InwardGatewayContract):
    """Requests of our own requesters, answered when durable."""

    kind = "zeromq"

    def values(self, topic, port):
        return {"socket": "router", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"]}

    def send(self, section, messages):
        with Requester(place(section), timeout=20) as requester:
            for future in [requester.submit(message) for message in messages]:
                assert json.loads(future.result().value)["topic"] == TOPIC

    def send_bad(self, section):
        with zmq.Context() as context, context.socket(zmq.DEALER) as ask:
            ask.linger = 10_000
            ask.connect(place(section))
            ask.send(b"nonsense")
            ask.send_multipart([b"a", b"b", b"c", b"d"])
        return 2

    def test_a_refusal_is_raised_where_it_was_asked(self, broker, port):
        section = self.section(port)
        with self.running(broker.bootstrap_servers, section) as running, Requester(place(section), timeout=20) as asks:
            self.until_ready(running)
            assert json.loads(asks.call(b"fine").value) == {"topic": TOPIC, "partition": 0, "offset": 0}
            with pytest.raises(RemoteError, match="contract"):
                asks.call(bytes(3_000_000))
            assert json.loads(asks.call(b"fine").value)["offset"] == 1

    def test_overload_fail_is_told(self, tmp_path, port):
        section = self.section(port, overload="fail", buffer_mb=1)
        with self.running(f"127.0.0.1:{free_port()}", section) as running:
            with Requester(place(section), timeout=20) as asks:
                futures = [asks.submit(bytes(300_000)) for _ in range(8)]
                errors = [each.exception() for each in futures[4:]]
            assert all(isinstance(each, RemoteError) and each.kind == "Overloaded" for each in errors)
            assert running.gateway.progress.dropped == 5


class TestPlainReq(InwardGatewayContract):
    kind = "zeromq"
    bad_input = False

    def values(self, topic, port):
        return {"socket": "router", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"], "form": "raw"}

    def send(self, section, messages):
        with zmq.Context() as context, context.socket(zmq.REQ) as ask:
            ask.linger = 0
            ask.rcvtimeo = 20_000
            ask.connect(place(section))
            for message in messages:
                ask.send(message)
                assert json.loads(ask.recv())["topic"] == TOPIC


class TestPush(OutwardGatewayContract):
    kind = "zeromq"

    def values(self, topic, port):
        return {"socket": "push", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"]}

    def make(self, section):
        return Puller(connect=place(section))

    def took(self, section, message):
        """Acknowledge it, where that is asked for."""

    @contextmanager
    def receiving(self, section):
        came, stopping = [], threading.Event()

        def pull():
            with self.make(section) as puller:
                while not stopping.is_set():
                    message = puller.receive(0.05)
                    if message is not None:
                        came.append(message.value)
                        self.took(section, message)

        thread = threading.Thread(target=pull)
        thread.start()
        try:
            yield lambda: list(came)
        finally:
            stopping.set()
            thread.join()

    @pytest.mark.parametrize("overload", ["block", "drop-newest"])
    def test_a_slow_consumer_holds_it_up_or_loses_by_choice(self, broker, port, overload):
        values = [b"%06d" % number + bytes(20_000) for number in range(600)]
        section = self.section(port, overload=overload, high_water_mark=5)
        with self.running(broker.bootstrap_servers, section) as running, self.make_slow(section) as puller:
            progress = running.gateway.progress
            until(lambda: progress.connections == 1, "it is connected")
            write_topic(broker.bootstrap_servers, TOPIC, values)
            if overload == "block":
                until(lambda: progress.waiting == "for somebody who takes messages", "it waits")
            else:
                until(lambda: progress.records + progress.dropped == 600, "it has passed all")
            came = []
            while (message := puller.receive(1.0)) is not None:
                came.append(message.value)
            assert len(came) + progress.dropped == 600
            assert (progress.dropped > 0) == (overload == "drop-newest")
            assert came == values if overload == "block" else set(came) <= set(values)

    def make_slow(self, section):
        return Puller(connect=place(section), high_water_mark=5)


class TestAcknowledgedPush(TestPush):
    """Pushed until it is acknowledged, also to plain programs."""

    def values(self, topic, port):
        return {
            "socket": "push",
            "topic": topic,
            "listen": [f"tcp://127.0.0.1:{port}"],
            "acks": f"ipc:///tmp/headrace-acks-{port}",
            "ack_timeout": 1.0,
        }

    @contextmanager
    def receiving(self, section):
        came, stopping = [], threading.Event()

        def pull():
            with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as acks:
                pull.connect(place(section))
                acks.linger = 1000
                acks.connect(section["acks"])
                while not stopping.is_set():
                    if pull.poll(50):
                        message = decode(pull.recv())
                        came.append(message.value)
                        if len(came) % 7:  # every seventh is not acknowledged at first
                            acks.send(struct.pack(">QQ", message.session, message.sequence))

        thread = threading.Thread(target=pull)
        thread.start()
        try:
            yield lambda: list(came)
        finally:
            stopping.set()
            thread.join()

    def test_what_is_in_the_topic_comes(self, broker, port):
        """As often as it takes: what was not acknowledged comes again, until nothing is left."""
        section = self.section(port)
        with self.running(broker.bootstrap_servers, section) as running, self.receiving(section) as received:
            self.until_ready(running)
            messages = [b"message %d" % number for number in range(100)]
            write_topic(broker.bootstrap_servers, TOPIC, messages)
            self.expect_received(received, messages, running)
            more = running.gateway.progress.more
            until(lambda: more.get("unacknowledged") == 0, "all are acknowledged")
            assert more["repeated"] >= 14
            assert len(received()) == 100 + more["repeated"]
            until(lambda: committed(broker) == 100, "the position is behind the last")

    def test_nothing_is_committed_before_it_is_acknowledged(self, broker, port):
        section = self.section(port, high_water_mark=10, ack_timeout=60.0)
        with self.running(broker.bootstrap_servers, section) as running:
            self.until_ready(running)
            write_topic(broker.bootstrap_servers, TOPIC, [b"%d" % number for number in range(50)])
            with Puller(connect=place(section)) as puller, Pusher(connect=section["acks"], form="raw") as acks:
                came = [puller.receive(10) for _ in range(10)]
                assert puller.receive(0.5) is None  # ten at a time
                assert running.gateway.progress.waiting == "for acknowledgements"
                for message in [*came[:3], came[5]]:
                    acks.send(struct.pack(">QQ", message.session, message.sequence))
                acks.send(b"nonsense")
                acks.send(struct.pack(">QQ", 1, 0))  # of somebody else
                assert puller.receive(10).value == b"10"
                until(lambda: committed(broker) == 3, "behind the three first alone")
                until(lambda: running.gateway.progress.refused == 1, "nonsense is counted")

    test_a_slow_consumer_holds_it_up_or_loses_by_choice = None


def committed(broker, name="test"):
    with Cluster(parse_bootstrap(broker.bootstrap_servers), ConnectionSettings()) as cluster:
        found = committed_offsets(Coordinators(cluster), f"headrace-gateway-{name}")
        return sum(each.offset for each in found.values())


class TestPublish(OutwardGatewayContract):
    """Best effort: to those who are there."""

    kind = "zeromq"

    def values(self, topic, port):
        return {"socket": "pub", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"], "from": "start"}

    @contextmanager
    def receiving(self, section):
        came, stopping = [], threading.Event()
        with zmq.Context() as context, context.socket(zmq.SUB) as sub:
            sub.subscribe(topic_prefix(TOPIC))
            sub.connect(place(section))

            def receive():
                while not stopping.is_set():
                    if sub.poll(50):
                        came.append(decode(sub.recv()).value)

            thread = threading.Thread(target=receive)
            thread.start()
            self.is_heard = lambda running: running.gateway.progress.connections >= 1 and not time.sleep(0.2)
            try:
                yield lambda: list(came)
            finally:
                stopping.set()
                thread.join()

    def is_listening(self, running):
        return self.is_heard(running) if hasattr(self, "is_heard") else True

    # It publishes to nobody what comes before subscribers are there again.
    test_it_goes_on_where_it_was = None
    test_a_broker_that_goes_and_comes_back = None

    def test_a_subscriber_tells_what_it_missed(self, broker, port):
        section = self.section(port, high_water_mark=10)
        with (
            self.running(broker.bootstrap_servers, section) as running,
            Subscriber(TOPIC, connect=place(section), high_water_mark=10) as slow,
        ):
            until(lambda: running.gateway.progress.connections == 1, "it is connected")
            while slow.receive(0.1) is None:
                write_topic(broker.bootstrap_servers, TOPIC, [b"hello"])
            while slow.receive(0.5) is not None:
                pass
            seen, before = slow.received + slow.losses.before, running.gateway.progress.records
            write_topic(broker.bootstrap_servers, TOPIC, [bytes(20_000)] * 1_000)
            until(lambda: running.gateway.progress.records == before + 1_000, "all are published")
            while slow.receive(0.5) is not None:
                pass
            write_topic(broker.bootstrap_servers, TOPIC, [b"last"])
            assert slow.receive(10).value == b"last"
            assert slow.received + slow.losses.before + slow.missed == seen + 1_001
            assert slow.missed > 0


class TestSubscribe(InwardGatewayContract):
    """From a publisher, which does not wait: the gateway connects, and is told of what is published then."""

    kind = "zeromq"

    def values(self, topic, port):
        return {
            "socket": "sub", "topic": topic, "connect": [f"tcp://127.0.0.1:{port}"], "subscribe": ["orders.*"],
            "high_water_mark": 1000,
        }  # fmt: skip

    def send(self, section, messages):
        with Publisher(listen=place(section).replace("connect", ""), linger=5) as publisher:
            publisher.wait_for_subscriptions()
            for message in messages:
                publisher.send(message, topic="orders.eu")
            publisher.send(b"not subscribed to", topic="cash")

    def send_bad(self, section):
        with zmq.Context() as context, context.socket(zmq.XPUB) as pub:
            pub.linger = 5000
            pub.bind(place(section))
            assert pub.recv() == b"\x01orders."
            pub.send(b"orders.but nothing else")
        return 1


# --- deaths

CHILD = """
import sys
from threading import Event
from headrace.client.address import parse_bootstrap
from headrace.gateways.section import check_section, kind_of
from headrace.section_keys import with_defaults
kind, values, bootstrap = sys.argv[1], eval(sys.argv[2]), sys.argv[3]
section = {"kind": kind, **with_defaults(kind_of(kind).keys, values)}
check_section("test", section)
print("started", flush=True)
kind_of(kind).make("test", section, parse_bootstrap(bootstrap), Event()).run()
"""


@contextmanager
def process(kind, values, bootstrap):
    """A gateway in a process of its own."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, kind, repr(values), bootstrap], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"started\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_gateway_that_is_killed_pushes_again_what_was_not_acknowledged(tmp_path):
    """Killed three times in the middle: every record comes, at least once."""
    port, acks_at = free_port(), f"ipc://{tmp_path}/acks"
    values = {
        "socket": "push", "topic": TOPIC, "listen": [f"tcp://127.0.0.1:{port}"], "acks": acks_at, "high_water_mark": 50,
    }  # fmt: skip
    with Broker(tmp_path / "broker") as broker:
        wanted = [b"%d" % number for number in range(2_000)]
        write_topic(broker.bootstrap_servers, TOPIC, wanted)
        came = []
        with Puller(connect=values["listen"]) as puller, Pusher(connect=acks_at, form="raw", overload="fail") as acks:
            for turn in range(4):
                with process("zeromq", values, broker.bootstrap_servers) as child:
                    while len(set(came)) < (500 * (turn + 1) if turn < 3 else 2_000):
                        message = puller.receive(30)
                        came.append(message.value)
                        if not len(came) % 50:
                            time.sleep(0.02)
                        acks_or_not(acks, message)
                    if turn < 3:
                        child.send_signal(signal.SIGKILL)
        assert set(came) == set(wanted)
        assert came[-1] == b"1999" or len(came) > 2_000


def acks_or_not(acks, message):
    with suppress(HeadraceError):  # the gateway is gone: it is pushed again
        acks.send(struct.pack(">QQ", message.session, message.sequence))


def test_a_consumer_that_is_killed_has_its_messages_taken_over(tmp_path):
    port, acks_at = free_port(), f"ipc://{tmp_path}/acks"
    values = {
        "socket": "push", "topic": TOPIC, "listen": [f"tcp://127.0.0.1:{port}"], "acks": acks_at, "ack_timeout": 1.0,
    }  # fmt: skip
    with Broker(tmp_path / "broker") as broker, process("zeromq", values, broker.bootstrap_servers):
        code = f"import zmq, time\ns = zmq.Context().socket(zmq.PULL)\ns.connect({values['listen'][0]!r})\n"
        code += "s.recv()\nprint('has one', flush=True)\ntime.sleep(60)"
        first = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        wanted = [b"%d" % number for number in range(300)]
        write_topic(broker.bootstrap_servers, TOPIC, wanted)
        assert first.stdout.readline() == b"has one\n"
        first.kill()
        first.wait()
        first.stdout.close()
        came = set()
        with Puller(connect=values["listen"]) as puller, Pusher(connect=acks_at, form="raw") as acks:
            while len(came) < 300:
                message = puller.receive(30)
                came.add(message.value)
                acks.send(struct.pack(">QQ", message.session, message.sequence))
            until(lambda: committed(broker) == 300, "all are acknowledged")
        assert came == set(wanted)


def test_a_router_that_is_killed_has_written_what_it_answered(tmp_path):
    port = free_port()
    values = {"socket": "router", "topic": TOPIC, "listen": [f"tcp://127.0.0.1:{port}"]}
    with Broker(tmp_path / "broker") as broker, Requester(values["listen"], timeout=60) as requester:
        answered = []
        for turn in range(3):
            with process("zeromq", values, broker.bootstrap_servers) as child:
                futures = {number: requester.submit(b"%d" % number) for number in range(turn * 500, turn * 500 + 500)}
                for number, future in futures.items():
                    if turn < 2 and number == turn * 500 + 250:
                        child.send_signal(signal.SIGKILL)
                        break
                    answered.append((json.loads(future.result().value)["offset"], b"%d" % number))
                for future in futures.values():
                    future.cancel()
        held = [value for _, value in read_topic(broker.bootstrap_servers, TOPIC)]
        assert all(held[offset] == value for offset, value in answered)
        assert len(answered) >= 1_000


def test_a_pusher_that_is_killed_harms_nothing(tmp_path):
    port = free_port()
    values = {"socket": "pull", "topic": TOPIC, "listen": [f"tcp://127.0.0.1:{port}"]}
    code = f"""
from headrace import zeromq
with zeromq.Pusher(connect={values["listen"][0]!r}) as pusher:
    number = 0
    while True:
        pusher.send(b"%d" % number, KEY)
        number += 1
"""
    with Broker(tmp_path / "broker") as broker, process("zeromq", values, broker.bootstrap_servers):
        for key in (b"first", b"second"):
            child = subprocess.Popen([sys.executable, "-c", code.replace("KEY", repr(key))])
            before = count(broker)
            until(lambda: count(broker) > before + 2_000, "it pushes")  # noqa: B023
            child.kill()
            child.wait()
        held = read_topic(broker.bootstrap_servers, TOPIC)
        for wanted in (b"first", b"second"):
            numbers = [int(value) for key, value in held if key == wanted]
            assert numbers == list(range(len(numbers)))


def count(broker):
    try:
        return len(read_topic(broker.bootstrap_servers, TOPIC))
    except HeadraceError:
        return 0


# --- keys


def test_a_gateway_with_keys(tmp_path):
    server, client = Keys.new(), Keys.new()
    server.write(tmp_path / "server")
    (tmp_path / "clients").write_text(f"# who may push\n{client.public}\n")
    contract = TestPull()
    section = contract.section(free_port(), keys=str(tmp_path / "server"), clients=str(tmp_path / "clients"))
    with Broker(tmp_path / "broker") as broker, contract.running(broker.bootstrap_servers, section) as running:
        with Pusher(connect=place(section), curve=CurveClient(client, server.public), linger=10) as pusher:
            pusher.send(b"sealed")
        contract.expect(broker.bootstrap_servers, [b"sealed"], running)
        with Pusher(connect=place(section), linger=0.5) as pusher:
            pusher.send(b"open")
        assert contract.found(broker.bootstrap_servers) == [b"sealed"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"listen": []}, "nowhere to listen"),
        ({"listen": ["tcp://0.0.0.0:5"]}, "other machines"),
        ({"listen": ["udp://127.0.0.1:5"]}, "no endpoint"),
        ({"acks": "tcp://127.0.0.1:5"}, "acks says nothing"),
        ({"subscribe": ["a"]}, "subscribe says nothing"),
        ({"from": "end"}, "from says nothing"),
        ({"socket": "push", "overload": "drop-oldest"}, "where records stay"),
        ({"socket": "push", "form": "raw", "acks": "ipc:///tmp/x"}, "leave out form"),
        ({"server_key": "short"}, "not a key"),
        ({"clients": "/some/file"}, "no keys of its own"),
        ({"topics": ["a b"]}, "not legal"),
    ],
)
def test_what_is_wrong_with_a_section(more, says):
    with pytest.raises(HeadraceError, match=says):
        TestPull().section(5555, **more)


def test_the_same_name_twice(tmp_path):
    """Who begins later goes on; the one before ends with a sentence."""
    contract = TestPush()
    stopping = threading.Event()
    first = contract.section(free_port())

    def drain():
        with Puller(connect=place(first)) as puller:
            while not stopping.is_set():
                puller.receive(0.05)

    def take_over(servers):
        with contract.running(servers, first) as one:
            until(lambda: one.gateway._next, "it reads")
            with contract.running(servers, contract.section(free_port())) as other:
                until(lambda: other.gateway._next, "it has taken over")
                write_topic(servers, TOPIC, [b"x"] * 3_000)
                until(lambda: one.errors, "the first is fenced")

    with Broker(tmp_path / "broker") as broker:
        contract.prepare(broker.bootstrap_servers)
        thread = threading.Thread(target=drain)
        thread.start()
        try:
            with pytest.raises(HeadraceError, match="started elsewhere"):
                take_over(broker.bootstrap_servers)
        finally:
            stopping.set()
            thread.join()
