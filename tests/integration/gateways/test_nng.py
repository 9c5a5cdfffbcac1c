"""Gateways of nng: the contract of all gateways, plain programs, surveys of a topic, and deaths."""

import json
import threading
from contextlib import contextmanager, suppress

import pynng
import pytest

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import add_partitions, create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.writer import NewRecord, Writer
from headrace.errors import HeadraceError
from headrace.gateways.messaging.message import decode, encode
from headrace.gateways.messaging.outward import ACK
from headrace.gateways.nng import Puller, Pusher, RemoteError, Requester, Surveyor
from headrace.testing.contracts.gateway import (
    TOPIC,
    InwardGatewayContract,
    OutwardGatewayContract,
    free_port,
    until,
    write_topic,
)
from tests.integration.gateways.test_zeromq import committed, process


def place(section):
    return section["listen"][0]


class TestPull(InwardGatewayContract):
    kind = "nng"

    def values(self, topic, port):
        return {"socket": "pull", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"]}

    def send(self, section, messages):
        with Pusher(connect=place(section), linger=10, timeout=10) as pusher:
            for message in messages:
                pusher.send(message)

    def send_bad(self, section):
        with pynng.Push0(dial=place(section), send_timeout=10_000) as push:
            for frame in (b"", b"plain", b"x" * 1000, encode(b"v")[:20]):
                push.send(frame)
            threading.Event().wait(0.2)  # nng forgets what is on its way when it is closed
        return 4


class TestPlainReq(InwardGatewayContract):
    """A plain program of pynng asks, and is answered when it is durable."""

    kind = "nng"
    bad_input = False

    def values(self, topic, port):
        return {"socket": "rep", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"], "form": "raw"}

    def send(self, section, messages):
        with pynng.Req0(dial=place(section), recv_timeout=20_000, send_timeout=20_000, block_on_dial=False) as ask:
            for message in messages:
                ask.send(message)
                assert json.loads(ask.recv())["topic"] == TOPIC


class TestRep(InwardGatewayContract):
    kind = "nng"

    def values(self, topic, port):
        return {"socket": "rep", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"]}

    def send(self, section, messages):
        with Requester(connect=place(section), timeout=20) as requester:
            for message in messages:
                assert json.loads(requester.call(message).value)["topic"] == TOPIC

    def send_bad(self, section):
        with pynng.Req0(dial=place(section), recv_timeout=10_000, send_timeout=10_000) as ask:
            ask.send(b"nonsense")
            assert decode(ask.recv()).header("headrace-error") == b"InvalidMessage"
        return 1

    def test_a_refusal_is_raised_where_it_was_asked(self, broker, port):
        section = self.section(port)
        with (
            self.running(broker.bootstrap_servers, section) as running,
            Requester(connect=place(section), timeout=20) as asks,
        ):
            self.until_ready(running)
            assert json.loads(asks.call(b"fine").value) == {"topic": TOPIC, "partition": 0, "offset": 0}
            with pytest.raises(RemoteError, match="contract"):
                asks.call(bytes(3_000_000))
            assert json.loads(asks.call(b"fine").value)["offset"] == 1


class TestPush(OutwardGatewayContract):
    """Pushed to a plain program, and acknowledged by it."""

    kind = "nng"

    def values(self, topic, port):
        return {
            "socket": "push",
            "topic": topic,
            "listen": [f"tcp://127.0.0.1:{port}"],
            "acks": f"ipc:///tmp/headrace-nng-acks-{port}",
            "ack_timeout": 1.0,
        }

    @contextmanager
    def receiving(self, section):
        came, stopping = [], threading.Event()

        def pull():
            with pynng.Pull0(recv_timeout=50) as pull, pynng.Push0(send_timeout=50) as acks:
                pull.dial(place(section), block=False)
                acks.dial(section["acks"], block=False)
                while not stopping.is_set():
                    with suppress(pynng.Timeout):
                        message = decode(pull.recv())
                        came.append(message.value)
                        acks.send(ACK.pack(message.session, message.sequence))

        thread = threading.Thread(target=pull)
        thread.start()
        try:
            yield lambda: sorted(set(came))
        finally:
            stopping.set()
            thread.join()

    def test_a_slow_consumer_loses_by_choice(self, broker, port):
        values = [b"%06d" % number + bytes(20_000) for number in range(600)]
        write_topic(broker.bootstrap_servers, TOPIC, [])
        section = self.section(port, overload="drop-newest", high_water_mark=5)
        del section["acks"]
        with (
            self.running(broker.bootstrap_servers, section) as running,
            Puller(connect=place(section), high_water_mark=5) as puller,
        ):
            progress = running.gateway.progress
            until(lambda: progress.connections == 1, "it is connected")
            write_topic(broker.bootstrap_servers, TOPIC, values)
            until(lambda: progress.records + progress.dropped == 600, "it has passed all")
            came = []
            while (message := puller.receive(1.0)) is not None:
                came.append(message.value)
            assert len(came) + progress.dropped == 600
            assert progress.dropped > 0


def test_a_gateway_that_is_killed_pushes_again_what_was_not_acknowledged(tmp_path):
    port, acks_at = free_port(), f"ipc://{tmp_path}/acks"
    values = {
        "socket": "push", "topic": TOPIC, "listen": [f"tcp://127.0.0.1:{port}"], "acks": acks_at, "high_water_mark": 50,
        "ack_timeout": 2.0,
    }  # fmt: skip
    with Broker(tmp_path / "broker") as broker:
        wanted = [b"%d" % number for number in range(1_000)]
        write_topic(broker.bootstrap_servers, TOPIC, wanted)
        came = set()
        with Puller(connect=values["listen"]) as puller, Pusher(connect=acks_at, form="raw", overload="fail") as acks:
            for turn in range(3):
                with process("nng", values, broker.bootstrap_servers):
                    while len(came) < (350 * (turn + 1) if turn < 2 else 1_000):
                        message = puller.receive(30)
                        came.add(message.value)
                        with suppress(HeadraceError):
                            acks.send(ACK.pack(message.session, message.sequence))
                    if turn == 2:
                        until(lambda: committed(broker) == 1_000, "all are acknowledged")
        assert came == set(wanted)


def put(broker, topic, pairs):
    with Cluster(parse_bootstrap(broker.bootstrap_servers), ConnectionSettings()) as cluster:
        writer = Writer(cluster, topic)
        for key, value in pairs:
            writer.add(NewRecord(key, value, 0))
        writer.flush()


def test_a_survey_of_a_topic_answers_the_latest_value(tmp_path):
    contract = TestRespondent()
    with Broker(tmp_path / "broker") as broker, Surveyor(listen=f"ipc://{tmp_path}/s") as surveyor:
        for topic in ("prices", "stocks"):
            write_topic(broker.bootstrap_servers, topic, [])
        put(broker, "prices", [(b"tea", b"3"), (b"tea", b"4"), (b"gone", b"1"), (b"gone", None), (None, b"no key")])
        put(broker, "stocks", [(b"tea", b"100")])
        with (
            contract.running(broker.bootstrap_servers, contract.over("prices", tmp_path)) as prices,
            contract.running(broker.bootstrap_servers, contract.over("stocks", tmp_path)) as stocks,
        ):
            for each in (prices, stocks):
                until(lambda: each.gateway.progress.more.get("keys") == 1, "it has read all")  # noqa: B023
            until(lambda: surveyor.connections == 2, "both are there")
            assert sorted(m.value for m in surveyor.ask(b"tea", deadline=10, most=2)) == [b"100", b"4"]
            assert list(surveyor.ask(b"gone", deadline=0.3)) == []
            put(broker, "prices", [(b"tea", b"5"), (b"gone", b"2")])
            until(lambda: prices.gateway.progress.more.get("keys") == 2, "it follows")
            assert sorted(m.value for m in surveyor.ask(b"tea", deadline=10, most=2)) == [b"100", b"5"]
            assert [m.value for m in surveyor.ask(b"gone", deadline=10, most=1)] == [b"2"]
            until(lambda: prices.gateway.progress.records == 3, "it counts its answers")


def test_a_survey_of_a_topic_that_is_made_again_and_grows(tmp_path):
    contract = TestRespondent()
    with Broker(tmp_path / "broker") as broker, Surveyor(listen=f"ipc://{tmp_path}/s") as surveyor:

        def answered(key):
            return [message.value for message in surveyor.ask(key, deadline=0.5, most=1)]

        write_topic(broker.bootstrap_servers, "prices", [])
        put(broker, "prices", [(b"tea", b"3"), (b"gone", b"1")])
        with contract.running(broker.bootstrap_servers, contract.over("prices", tmp_path)):
            until(lambda: answered(b"gone") == [b"1"], "it has read all")
            with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
                delete_topics(cluster, ["prices"])
                create_topic(cluster, "prices", partitions=1)
            put(broker, "prices", [(b"tea", b"4"), *((b"%d" % number, b"new") for number in range(20))])
            until(lambda: answered(b"tea") == [b"4"] and not answered(b"gone"), "it has read the one that is there now")
            with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
                add_partitions(cluster, "prices", 4)
            put(broker, "prices", [(b"%d" % number, b"newer") for number in range(20)])
            until(
                lambda: all(answered(b"%d" % number) == [b"newer"] for number in range(20)), "it reads all partitions"
            )


class TestRespondent(OutwardGatewayContract):
    kind = "nng"

    def values(self, topic, port):
        return {"socket": "respondent", "topic": topic, "listen": [f"tcp://127.0.0.1:{port}"]}

    def over(self, topic, tmp_path):
        section = self.section(1, topic=topic, connect=[f"ipc://{tmp_path}/s"])
        del section["listen"]
        return section

    # What comes is asked for: see above.
    test_what_is_in_the_topic_comes = None
    test_a_record_that_cannot_be_sent_holds_up_no_other = None
    test_of_a_topic_that_is_made_again_all_comes = None
    test_it_goes_on_where_it_was = None
    test_a_broker_that_goes_and_comes_back = None

    def test_more_than_there_is_room_for_is_a_sentence(self, broker, port):
        write_topic(broker.bootstrap_servers, "large", [])
        put(broker, "large", [(b"%d" % number, bytes(300_000)) for number in range(6)])
        section = self.section(port, topic="large", buffer_mb=1)
        with (
            pytest.raises(HeadraceError, match="buffer_mb"),
            self.running(broker.bootstrap_servers, section) as running,
        ):
            until(lambda: running.errors, "it says so")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"listen": []}, "nowhere to listen"),
        ({"listen": ["tls+tcp://127.0.0.1:5"]}, "no certificate"),
        ({"authorities": "/a"}, "for who connects"),
        ({"socket": "pub", "overload": "block"}, "drops the oldest"),
        ({"socket": "respondent", "topics": ["a"]}, "topics says nothing"),
    ],
)
def test_what_is_wrong_with_a_section(more, says):
    with pytest.raises(HeadraceError, match=says):
        TestPull().section(5555, **more)
