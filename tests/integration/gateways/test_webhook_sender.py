"""Records to registered endpoints, over real sockets: signed, in order, again, logged; who is slow, dead or killed."""

import contextlib
import gzip
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import LostConnection
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.errors import HeadraceError
from headrace.gateways.section import check_section
from headrace.gateways.webhook_sender import courier
from headrace.gateways.webhook_sender.kind import KIND
from headrace.gateways.webhook_sender.registry import as_record, endpoint_key, request_key, state_key
from headrace.gateways.webhooks.signatures import SCHEMES, standard_key, verify
from headrace.records import Header
from headrace.section_keys import with_defaults
from headrace.stores.compacted_topic import CompactedTopic
from headrace.testing.contracts.gateway import OutwardGatewayContract, free_port, read_topic
from tests.certificates import make_authority, make_certificate
from tests.integration.gateways.running import running, values_of, wait_for

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    """What somebody else's server got, and how it answers."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.answer: Callable[[bytes], tuple[int, dict[str, str]]] = lambda _: (200, {})
        self.at: list[float] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(length := int(self.headers["content-length"]))
                if len(body) < length:  # whoever sent it was killed in the middle
                    return
                receiver.at.append(time.monotonic())
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status, headers = receiver.answer(body)
                self.send_response(status)
                for name, value in {**headers, "content-length": "0"}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in list(self.got)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def endpoint(receiver: Receiver | int, topic: str, **others: Any) -> dict[str, Any]:
    port = receiver if isinstance(receiver, int) else receiver.port
    given = {"topic": topic, "url": f"http://127.0.0.1:{port}/in", "unsigned": True, "from": "start",
             "first_pause": "50 ms", "longest_pause": "200 ms"}  # fmt: skip
    return {**given, **others}


LOOPBACK = {"allow_private": ["127.0.0.1"]}


class TestWebhookSender(OutwardGatewayContract):
    kind = "webhook-sender"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"endpoints": {"mine": endpoint(port, topic)}, **LOOPBACK}

    @contextmanager
    def receiving(self, section: Mapping[str, Any]) -> Iterator[Callable[[], list[bytes]]]:
        port = int(section["endpoints"]["mine"]["url"].split(":")[2].split("/")[0])
        with Receiver(port) as receiver:
            yield lambda: receiver.bodies


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


def write(
    bootstrap: str, topic: str, records: Sequence[tuple[str | None, bytes]], partitions: int = 1, **headers: str
) -> None:
    carried = tuple(Header(name.replace("_", "-"), value.encode()) for name, value in headers.items())
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        ensure_topic(cluster, topic, partitions=partitions)
        writer = Writer(cluster, topic)
        for key, value in records:
            writer.add(NewRecord(None if key is None else key.encode(), value, time.time_ns() // 1_000_000, carried))
        writer.flush()


def register(bootstrap: str, endpoint_id: str, said: Mapping[str, Any] | None, topic: str) -> None:
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        CompactedTopic(cluster, topic).write(endpoint_key(endpoint_id), None if said is None else as_record(said))


def log_of(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in read_topic(bootstrap, topic)]


def sending(bootstrap: str, name: str, **values: Any) -> Any:
    own = {"endpoints_topic": f"{name}-endpoints", "log_topic": f"{name}-log"}
    return running(KIND, bootstrap, name, **{**LOOPBACK, **own, **values})


# --- what is sent


def test_a_request_is_signed_and_carries_what_it_should(bootstrap: str, tmp_path: Path) -> None:
    secret = tmp_path / "shop"
    secret.write_text(f"{SECRET}\nwhsec_AAAA\n")
    secret.chmod(0o600)
    write(bootstrap, "signed", [("a", b'{"n": 1}')], content_type="application/vnd.x+json", x_trace="7", x_no="8")
    with Receiver() as receiver:
        said = endpoint(receiver, "signed", unsigned=False, secret_name="shop", forward_headers=["X-Trace"],
                        headers={"Authorization": "Bearer t"})  # fmt: skip
        with sending(bootstrap, "signing", endpoints={"shop": said}, secrets=str(tmp_path)) as gateway:
            wait_for(lambda: receiver.got, "it comes")
            assert "shop" not in gateway.progress.problem
        ((headers, body),) = receiver.got
    assert body == b'{"n": 1}'
    for key in (SECRET, "whsec_AAAA"):
        found = [(name, headers[name]) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")]
        verify(SCHEMES["standard"], [standard_key(key)], found, body, time.time(), 60)
    assert headers["content-type"] == "application/vnd.x+json"
    assert (headers["x-trace"], headers["authorization"]) == ("7", "Bearer t")
    assert "x-no" not in headers
    assert headers["webhook-id"].startswith("msg_")


def filter_of(gateway: Any, endpoint_id: str) -> str:
    courier = gateway._all._couriers.get(endpoint_id)
    return courier.endpoint.filter.text if courier else ""


def test_endpoints_come_change_pause_and_go_while_it_runs(bootstrap: str) -> None:
    topic = "live-endpoints"
    write(bootstrap, "orders", [(None, b'{"n": %d}' % n) for n in range(6)])
    with Receiver() as one, Receiver() as two, sending(bootstrap, "live") as gateway:
        wait_for(lambda: not gateway.progress.waiting, "it runs")
        register(bootstrap, "big", endpoint(one, "orders", filter="value.n >= 4"), topic)
        wait_for(lambda: len(one.got) == 2, "those that match come")
        assert one.bodies == [b'{"n": 4}', b'{"n": 5}']
        register(bootstrap, "bad", {"topic": "orders"}, topic)
        wait_for(lambda: "endpoint bad cannot be" in gateway.progress.problem, "it is said")
        register(bootstrap, "bad", None, topic)
        with Cluster(parse_bootstrap(bootstrap)) as cluster:
            states = CompactedTopic(cluster, topic)
            states.write(state_key("big"), as_record({"paused": True}))
            wait_for(lambda: gateway.progress.more.get("paused") == 1, "it is paused")
            write(bootstrap, "orders", [(None, b'{"n": 7}')])
            register(bootstrap, "all", endpoint(two, "orders"), topic)
            wait_for(lambda: len(two.got) == 7, "another endpoint has them all")
            assert len(one.got) == 2
            states.write(state_key("big"), as_record({"paused": False}))
            wait_for(lambda: len(one.got) == 3, "it goes on")
        register(bootstrap, "big", endpoint(one, "orders", filter="value.n = 9"), topic)
        wait_for(lambda: filter_of(gateway, "big") == "value.n = 9", "it is changed")
        write(bootstrap, "orders", [(None, b'{"n": 8}'), (None, b'{"n": 9}')])
        wait_for(lambda: one.bodies[-1] == b'{"n": 9}', "the new filter counts")
        assert len(one.got) == 4, "it went on where it was"
        register(bootstrap, "all", None, topic)
        wait_for(lambda: gateway.progress.more.get("endpoints") == 1, "it is gone")
        write(bootstrap, "orders", [(None, b'{"n": 9, "last": true}')])
        wait_for(lambda: len(one.got) == 5, "the other one has it")
        assert len(two.got) == 9


def test_a_slow_and_a_dead_endpoint_hold_up_nobody(bootstrap: str) -> None:
    write(bootstrap, "many", [(str(n), b"%d" % n) for n in range(200)])
    never = threading.Event()
    with Receiver() as quick, Receiver() as slow:
        slow.answer = lambda _: (200 + never.wait(20), {})
        endpoints = {
            "slow": endpoint(slow, "many"),
            "dead": endpoint(free_port(), "many"),
            "nowhere": endpoint(quick, "many", url="http://does-not-exist.invalid/x"),
            "quick": endpoint(quick, "many"),
        }
        with sending(bootstrap, "crowd", endpoints=endpoints) as gateway:
            wait_for(lambda: len(quick.got) == 200, "the quick one has them all")
            assert quick.bodies == [b"%d" % n for n in range(200)], "in order"
            wait_for(lambda: gateway.progress.more.get("failing") == 2, "two fail")
            assert len(slow.got) == 1
            began = time.monotonic()
        assert time.monotonic() - began < 3, "it stops though a request is under way"
        never.set()


def test_order_of_all_of_a_key_and_of_none(bootstrap: str) -> None:
    """One record is not taken at first: what waits behind it is what was chosen."""
    records = [("a", b"a1"), ("b", b"b1"), ("a", b"a2"), ("b", b"b2"), (None, b"c1")]
    write(bootstrap, "ordered", records)
    expected = {
        "all": [b"a1", b"b1", b"a2", b"b2", b"c1"],
        "key": [b"b1", b"c1", b"b2", b"a1", b"a2"],
        "none": [b"b1", b"a2", b"b2", b"c1", b"a1"],
    }
    for order, wanted in expected.items():
        with Receiver() as receiver:
            taken: list[bytes] = []
            failed = threading.Event()

            def answer(body: bytes, taken: list[bytes] = taken, failed: threading.Event = failed) -> tuple[int, Any]:
                if body == b"a1" and not failed.is_set():
                    failed.set()
                    return 500, {}
                taken.append(body)
                return 200, {}

            receiver.answer = answer
            said = endpoint(
                receiver, "ordered", order=order, concurrency=1, first_pause="300 ms", longest_pause="300 ms"
            )
            with sending(bootstrap, f"order-{order}", endpoints={"e": said}):
                wait_for(lambda taken=taken: len(taken) == 5, "all are taken")
            assert taken == wanted, order


def test_what_is_never_taken_is_a_dead_letter_and_what_the_receiver_asks_for_is_done(bootstrap: str) -> None:
    write(bootstrap, "hard", [("k", b"never"), ("k", b"bad"), ("k", b"good"), ("k", b"later"), ("k", b"last")])
    with Receiver() as receiver:
        seen: dict[bytes, int] = {}

        def answer(body: bytes) -> tuple[int, dict[str, str]]:
            seen[body] = seen.get(body, 0) + 1
            if body == b"never":
                return 500, {}
            if body == b"bad":
                return 422, {}
            return (503, {"Retry-After": "1"}) if body == b"later" and seen[body] == 1 else (200, {})

        receiver.answer = answer
        said = endpoint(receiver, "hard", give_up_after="500 ms")
        with sending(bootstrap, "hardly", endpoints={"e": said}) as gateway:
            wait_for(lambda: seen.get(b"last") == 1, "the last one came")
            wait_for(lambda: gateway.progress.refused == 2, "two were given up")
        at = {body: when for (_, body), when in zip(receiver.got, receiver.at, strict=True)}
        assert at[b"later"] - at[b"good"] >= 0.8, "the receiver's pause was kept"
        assert seen[b"never"] > 2
        ids = {headers["webhook-id"] for headers, body in receiver.got if body == b"never"}
        assert len(ids) == 1, "one id, however often"
    letters = read_topic(bootstrap, "hard.dead-letters")
    assert [value for _, value in letters] == [b"never", b"bad"]
    assert all(b"webhook:e" in (key or b"") for key, _ in letters)
    log = log_of(bootstrap, "hardly-log")
    assert [entry["outcome"] for entry in log if entry["offset"] == 1] == ["refused"]
    assert [entry["outcome"] for entry in log if entry["offset"] == 0][-1] == "given-up"
    assert [(entry["attempt"], entry["status"]) for entry in log if entry["offset"] == 3] == [(1, 503), (2, 200)]
    assert all({"at_ms", "id", "ms", "topic", "partition"} <= entry.keys() for entry in log)


def test_an_endpoint_that_takes_nothing_is_disabled_until_it_is_resumed(bootstrap: str) -> None:
    write(bootstrap, "off", [(None, b"1"), (None, b"2")])
    with Receiver() as receiver:
        receiver.answer = lambda _: (500, {})
        said = {"e": endpoint(receiver, "off", disable_failures=3)}
        with sending(bootstrap, "disabling", endpoints=said) as gateway:
            wait_for(lambda: "endpoint e is disabled" in gateway.progress.problem, "it is disabled")
            assert len(receiver.got) == 3
            assert gateway.progress.more["disabled"] == 1
            assert "headrace webhook resume e" in gateway.progress.problem
        receiver.answer = lambda _: (200, {})
        with sending(bootstrap, "disabling", endpoints=said) as gateway:
            wait_for(lambda: gateway.progress.more.get("disabled") == 1, "also after a restart")
            assert len(receiver.got) == 3
            with Cluster(parse_bootstrap(bootstrap)) as cluster:
                now_ms = time.time_ns() // 1_000_000
                CompactedTopic(cluster, "disabling-endpoints").write(state_key("e"), as_record({"resumed_ms": now_ms}))
            wait_for(lambda: receiver.bodies[3:] == [b"1", b"2"], "nothing is missing")
        receiver.answer = lambda _: (410, {})
        write(bootstrap, "off", [(None, b"3")])
        with sending(bootstrap, "disabling", endpoints=said) as gateway:
            wait_for(lambda: "status 410" in gateway.progress.problem, "who says that he is gone is believed")
            assert len(receiver.got) == 6


def test_an_endpoint_is_resumed_by_somebody_whose_clock_is_behind(bootstrap: str) -> None:
    write(bootstrap, "behind", [(None, b"1")])
    with Receiver() as receiver:
        receiver.answer = lambda _: (500, {})
        with sending(bootstrap, "clock", endpoints={"e": endpoint(receiver, "behind", disable_failures=1)}) as gateway:
            wait_for(lambda: gateway.progress.more.get("disabled") == 1, "it is disabled")
            receiver.answer = lambda _: (200, {})
            with Cluster(parse_bootstrap(bootstrap)) as cluster:
                early_ms = time.time_ns() // 1_000_000 - 60_000
                CompactedTopic(cluster, "clock-endpoints").write(state_key("e"), as_record({"resumed_ms": early_ms}))
            wait_for(lambda: receiver.bodies == [b"1", b"1"], "it is resumed")
        with sending(bootstrap, "clock", endpoints={"e": endpoint(receiver, "behind", disable_failures=1)}) as gateway:
            write(bootstrap, "behind", [(None, b"2")])
            wait_for(lambda: receiver.bodies == [b"1", b"1", b"2"], "and stays so")


def test_what_was_under_way_when_an_endpoint_was_disabled_does_not_enable_it(bootstrap: str) -> None:
    write(bootstrap, "gone", [(None, b"slow"), (None, b"gone")])
    with Receiver() as receiver:
        refused = threading.Event()

        def answer(body: bytes) -> tuple[int, dict[str, str]]:
            if body == b"gone":
                refused.set()
                return 410, {}
            refused.wait(20)
            threading.Event().wait(0.1)  # so that it is known by then
            return 200, {}

        receiver.answer = answer
        said = {"e": endpoint(receiver, "gone", order="none", concurrency=2)}
        with sending(bootstrap, "leaving", endpoints=said) as gateway:
            wait_for(lambda: len(values_of(bootstrap, "leaving-log")) == 2, "both are answered")
            wait_for(lambda: gateway.progress.more.get("disabled") == 1, "it is disabled")
            write(bootstrap, "gone", [(None, b"more")])
            wait_for(lambda: not gateway._all._couriers and not gateway._all._leaving, "nobody is at work")
        with sending(bootstrap, "leaving", endpoints=said) as gateway:
            wait_for(lambda: gateway.progress.more.get("disabled") == 1, "it stays so")
        assert sorted(receiver.bodies) == [b"gone", b"slow"]


def test_a_topic_that_is_made_after_its_endpoint_is_sent_from_its_first_record_on(bootstrap: str) -> None:
    with Receiver() as receiver:
        said = {"e": endpoint(receiver, "made-later", **{"from": "end"})}
        with sending(bootstrap, "early", endpoints=said) as gateway:
            wait_for(lambda: gateway._all._couriers and gateway._all._couriers["e"].waiting, "it waits for the topic")
            write(bootstrap, "made-later", [(None, b"%d" % n) for n in range(5)])
            wait_for(lambda: len(receiver.got) == 5, "all come")


def test_records_that_are_sent_again_come_once_though_the_broker_goes_away(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(bootstrap, "twice", [(None, b"%d" % n) for n in range(3)])
    failed = threading.Event()

    def read(*values: Any, **named: Any) -> Iterator[Any]:
        for found in read_records(*values, **named):
            yield found
            if "until" in named and found and not failed.is_set():
                failed.set()
                raise LostConnection("it is away")

    tries: list[object] = []
    resend = courier.Courier._resend
    monkeypatch.setattr(courier.Courier, "_resend", lambda *given: (tries.append(given), resend(*given)))
    monkeypatch.setattr(courier, "read_records", read)
    with Receiver() as receiver:
        said = {"e": endpoint(receiver, "twice")}
        with sending(bootstrap, "resending", endpoints=said) as gateway:
            wait_for(lambda: len(receiver.got) == 3, "they come")
            go_on = threading.Event()
            receiver.answer = lambda _: (200 if go_on.wait(20) else 500, {})
            with Cluster(parse_bootstrap(bootstrap)) as cluster:
                request = as_record({"do": "resend", "partition": 0, "from": 0, "to": 3})
                CompactedTopic(cluster, "resending-endpoints").write(request_key("e", "r"), request)
            wait_for(failed.is_set, "the broker is away")
            wait_for(lambda: len(tries) == 2, "it tries again")
            lanes = gateway._all._couriers["e"]._lanes
            go_on.set()
            wait_for(lambda: not gateway._all._registry.requests, "it is done")
            assert (len(receiver.got), lanes.open) == (6, 0)


def test_a_rate_is_kept(bootstrap: str) -> None:
    write(bootstrap, "paced", [(None, b"%d" % n) for n in range(30)])
    with Receiver() as receiver, sending(bootstrap, "pacing", endpoints={"e": endpoint(receiver, "paced", rate=20)}):
        wait_for(lambda: len(receiver.got) == 30, "all came")
        assert receiver.at[-1] - receiver.at[0] >= 0.4


def test_several_are_under_way_at_once_but_never_two_of_a_key(bootstrap: str) -> None:
    write(bootstrap, "wide", [(str(n % 8), b"%d" % n) for n in range(40)], partitions=3)
    running_keys: list[int] = []
    lock, most, clash = threading.Lock(), [0], [False]

    def answer(body: bytes) -> tuple[int, dict[str, str]]:
        key = int(body) % 8
        with lock:
            clash[0] |= key in running_keys
            running_keys.append(key)
            most[0] = max(most[0], len(running_keys))
        threading.Event().wait(0.05)
        with lock:
            running_keys.remove(key)
        return 200, {}

    with Receiver() as receiver:
        receiver.answer = answer
        said = endpoint(receiver, "wide", order="key", concurrency=4)
        with sending(bootstrap, "parallel", endpoints={"e": said}):
            wait_for(lambda: len(receiver.got) == 40, "all came")
    assert most[0] == 4
    assert not clash[0]
    for key in range(8):
        of_key = [int(body) for body in receiver.bodies if int(body) % 8 == key]
        assert of_key == sorted(of_key)


# --- where requests go


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
        "http://0.0.0.0:{port}/", "http://[::1]:{port}/", "http://169.254.169.254/latest/meta-data/",
        "http://localtest.invalid:{port}/",
    ],
)  # fmt: skip
def test_private_addresses_are_refused_unless_they_are_allowed(
    bootstrap: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *values: Any, **named: Any) -> Any:
        return real("127.0.0.1" if host == "localtest.invalid" else host, *values, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    name = f"ssrf-{abs(hash(url))}"
    write(bootstrap, name, [(None, b"x")])
    with Receiver() as receiver:
        said = endpoint(receiver, name, url=url.format(port=receiver.port))
        with sending(bootstrap, name, endpoints={"e": said}, allow_private=[]) as gateway:
            wait_for(lambda: "not public" in gateway.progress.problem, "it is refused")
            assert receiver.got == []


@pytest.mark.parametrize(
    "url", ["http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "ftp://x/", "http://a b/"]
)
def test_urls_that_can_be_misread_are_refused_at_once(url: str) -> None:
    given = {"endpoints": {"e": {"topic": "t", "url": url, "unsigned": True}}}
    with pytest.raises(HeadraceError, match=r"gateways\.out\.endpoints\.e") as raised:
        check_section("out", {"kind": "webhook-sender", **with_defaults(KIND.keys, given)})
    assert url not in str(raised.value), "a URL may hold a secret"


def test_tls_is_believed_by_the_name_whatever_the_address(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_authority(tmp_path, "authority")
    make_certificate(tmp_path, "server", "authority", alternative="DNS:hooks.example")
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *values: Any, **named: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(".example") else host, *values, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    write(bootstrap, "safe", [(None, b"1"), (None, b"2")])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with Receiver(tls=context) as receiver:
        endpoints = {
            name: endpoint(receiver, "safe", url=f"https://{host}:{receiver.port}/{name}", timeout="5 seconds", **trust)
            for name, host, trust in (
                ("good", "hooks.example", {"ca_file": str(tmp_path / "authority.pem")}),
                ("other", "other.example", {"ca_file": str(tmp_path / "authority.pem")}),
                ("unknown", "hooks.example", {}),
            )
        }
        with sending(bootstrap, "safely", endpoints=endpoints) as gateway:
            wait_for(lambda: len(receiver.got) == 2, "the one that believes sends")
            wait_for(lambda: gateway.progress.more.get("failing") == 2, "the others do not")
        assert len(receiver.got) == 2


def test_an_answer_of_any_kind_does_no_harm(bootstrap: str) -> None:
    """Endless, dripping, packed a thousand times, no HTTP at all: over in time, in little memory, and tried again."""
    bomb = gzip.compress(b"\0" * 64 * 1024 * 1024)
    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb,
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000,
        b"",
    ]
    write(bootstrap, "odd", [(None, b"%d" % n) for n in range(len(answers) + 1)])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def serve() -> None:
            for answer in [*answers, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(answer)
            is_over.wait(20)

        thread = threading.Thread(target=serve)
        thread.start()
        said = endpoint(listener.getsockname()[1], "odd", timeout="2 seconds", disable_failures=20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with sending(bootstrap, "oddly", endpoints={"e": said}) as gateway:
            wait_for(lambda: gateway.progress.records >= 2, "what was an answer was one")
            wait_for(lambda: len(log_of(bootstrap, "oddly-log")) >= len(answers), "each was an attempt")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024
        is_over.set()
        thread.join()


# --- kill -9


@pytest.mark.parametrize("step", ["answered", "before", "added", "sent", "committed"])
def test_killed_at_each_step_all_come_in_order_with_one_id(step: str) -> None:
    """The process dies with an answer in its hand, or in the commit of what came of it."""
    # Places of all gateways are in one topic, where a transaction that is left open holds up those of other names.
    with Broker() as broker, Receiver() as receiver:
        bootstrap, topic = broker.bootstrap_servers, f"step-{step}"
        write(bootstrap, topic, [(None, b"%d" % n) for n in range(5)])
        command = [
            sys.executable,
            "-m",
            "tests.integration.gateways.webhook_sender_worker",
            bootstrap,
            receiver.url,
            topic,
        ]
        assert subprocess.run([*command, step], timeout=60).returncode == -signal.SIGKILL
        worker = subprocess.Popen([*command, "never"])
        try:
            wait_for(lambda: set(receiver.bodies) == {b"%d" % n for n in range(5)}, "all came")
        finally:
            worker.terminate()
            worker.wait()
        assert list(dict.fromkeys(receiver.bodies)) == [b"%d" % n for n in range(5)]
        assert len({(headers["webhook-id"], body) for headers, body in receiver.got}) == 5


def test_killed_again_and_again_all_come_in_order_at_least_once(tmp_path: Path) -> None:
    at = free_port()
    bootstrap = f"127.0.0.1:{at}"

    def broker() -> Broker:
        return Broker(tmp_path / "data", listen=bootstrap, own_process=True).start()

    serving = broker()
    write(bootstrap, "killed", [(str(n % 3), b"%d" % n) for n in range(3_000)])
    with Receiver() as receiver:
        failed: set[bytes] = set()

        def answer(body: bytes) -> tuple[int, dict[str, str]]:
            is_good = int(body) % 40 != 7 or body in failed
            failed.add(body)
            return (200 if is_good else 500), {}

        receiver.answer = answer
        command = [sys.executable, "-m", "tests.integration.gateways.webhook_sender_worker", bootstrap, receiver.url]
        worker = subprocess.Popen(command)
        try:
            for kill in range(int(os.environ.get("HEADRACE_KILLS", "4"))):
                then = len(set(receiver.bodies))
                wait_for(lambda then=then: len(set(receiver.bodies)) > then + 40, "they come")
                if kill % 2:
                    os.kill(serving.pid, signal.SIGKILL)
                    serving.stop()
                    serving = broker()
                else:
                    worker.kill()
                    worker.wait()
                    worker = subprocess.Popen(command)
            wait_for(lambda: len(set(receiver.bodies)) == 3_000, "all came")
        finally:
            worker.terminate()
            worker.wait()
        first = list(dict.fromkeys(int(body) for body in receiver.bodies))
        assert first == list(range(3_000)), "in the order of the log, whatever came twice"
        ids: dict[bytes, set[str]] = {}
        for headers, body in receiver.got:
            ids.setdefault(body, set()).add(headers["webhook-id"])
        assert all(len(each) == 1 for each in ids.values()), "one id for each record"
        assert len(receiver.got) < 3_000 + 1_500, "what was committed is not sent again"
    serving.stop()


def test_of_two_gateways_of_one_name_one_goes_on(bootstrap: str) -> None:
    write(bootstrap, "twice", [(None, b"1")])

    def run_two() -> None:
        with Receiver() as receiver:
            said = {"e": endpoint(receiver, "twice")}
            with sending(bootstrap, "twins", endpoints=said):
                wait_for(lambda: receiver.got, "the first sends")
                with sending(bootstrap, "twins", endpoints=said) as second:
                    wait_for(lambda: not second.progress.waiting, "the second has taken over")
                    write(bootstrap, "twice", [(None, b"2")])
                    wait_for(lambda: len(set(receiver.bodies)) == 2, "it comes")
                    wait_for(lambda: second.progress.records, "the second counts")

    with pytest.raises(AssertionError, match="TakenOver"):
        run_two()


def test_memory_is_bounded_where_nothing_is_taken(bootstrap: str) -> None:
    write(bootstrap, "heavy", [(None, b"x" * 100_000) for _ in range(200)])
    with Receiver() as receiver:
        receiver.answer = lambda _: (500, {})
        said = {"e": endpoint(receiver, "heavy", order="none", concurrency=2)}
        with sending(bootstrap, "heavily", endpoints=said) as gateway:
            wait_for(lambda: len(receiver.got) > 20, "they are tried")
            courier = gateway._all._couriers["e"]
            assert courier._lanes._bytes <= 4 * 1024 * 1024 + 100_400
            assert courier._lanes.open < 60


# --- settings

GOOD: dict[str, Any] = {"topic": "t", "url": "https://hooks.example.com/x", "unsigned": True}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"topic": None}, "has no 'topic'"),
    ({"url": None}, "has no 'url'"),
    ({"unsigned": False}, "has no secret_name"),
    ({"secret_name": "x"}, "is unsigned and has a secret"),
    ({"unsigned": False, "secret_name": "../etc/passwd"}, "cannot be a secret's name"),
    ({"unsigned": False, "secret_name": "x"}, "write secrets ="),
    ({"filter": "value.n >"}, "filter"),
    ({"order": "some"}, "order"),
    ({"timeout": "soon"}, "timeout is 'soon'"),
    ({"headers": {"Webhook-Id": "1"}}, "cannot be set"),
    ({"headers": {"X": "a\r\nb"}}, "not the text of a header"),
    ({"forward_headers": ["host"]}, "cannot be set"),
    ({"concurrency": 65}, "at most 64"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_an_endpoint_that_cannot_be(change: dict[str, Any], sentence: str) -> None:
    said = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(HeadraceError) as raised:
        check_section("out", {"kind": "webhook-sender", **with_defaults(KIND.keys, {"endpoints": {"e": said}})})
    assert sentence in str(raised.value)
