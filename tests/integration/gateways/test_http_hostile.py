"""The HTTP gateway and clients that send what nobody should: no log is filled, no memory, and nobody else waits."""

import json
import resource
import socket
import struct
import threading
import time
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.serving.record_feed import RecordFeed
from tests.integration.gateways.http_gateway import Client, Events, running
from tests.integration.gateways.running import values_of, wait_for

UPGRADE = (
    b"GET /ws/%s HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with Broker(durability="os") as made:
        yield made.bootstrap_servers


@pytest.fixture(scope="module")
def web(broker: str) -> Iterator[Client]:
    with running(broker, body_mib=1, limit_mib=4, followed=1) as client:
        yield client


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]
    with Cluster(parse_bootstrap(broker)) as cluster:
        ensure_topic(cluster, name)
    return name


@contextmanager
def raw(web: Client, sent: bytes) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=30)) as connection:
        connection.sendall(sent)
        yield connection


def answered(web: Client, sent: bytes) -> bytes:
    """The beginning of an answer."""
    with raw(web, sent) as connection:
        return connection.recv(4096)


def refused(web: Client) -> int:
    return int(web.gateway.progress.refused)  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_an_origin_that_is_none_is_another_sites(
    web: Client, topic: str, method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    origin = b"Origin: http://[\r\n\r\n"
    if method == "POST":
        sent = b"POST /produce/%s HTTP/1.1\r\nHost: localhost\r\ncontent-length: 0\r\n" % topic.encode()
    else:
        sent = UPGRADE % topic.encode()
    assert answered(web, sent + origin).startswith(b"HTTP/1.1 403 ")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["produce", "topics"])
def test_clients_that_go_in_the_middle_of_a_body_are_counted_and_fill_no_log(
    web: Client, topic: str, path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = refused(web)
    begin = f"POST /{path}/{topic} HTTP/1.1\r\nHost: localhost\r\ncontent-length: 100\r\n\r\n{{".encode()
    for _ in range(3):
        with raw(web, begin):
            pass
    wait_for(lambda: refused(web) == before + 3, "all are counted")
    assert capfd.readouterr().err == ""


def test_a_listener_of_one_topic_too_many_is_refused_before_the_answer_begins(
    web: Client, topic: str, broker: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with Cluster(parse_bootstrap(broker)) as cluster:
        ensure_topic(cluster, "another")
    events = Events(web, f"/events/{topic}")
    found = web.ask("GET", "/events/another")
    assert (found.status, found.headers["retry-after"]) == (503, "2")
    assert "topics are listened to already" in found.json["error"]
    with pytest.raises(InvalidStatus) as denied:
        connect(f"ws://127.0.0.1:{web.port}/ws/another")
    assert denied.value.response.status_code == 503
    with connect(f"ws://127.0.0.1:{web.port}/ws/another?listen=no") as only_produces:
        assert json.loads(only_produces.recv(timeout=30))["type"] == "live"
    events.close()
    wait_for(lambda: web.gateway.progress.connections == 0, "it is gone")  # type: ignore[attr-defined]
    Events(web, "/events/another").close()
    assert capfd.readouterr().err == ""


def test_what_is_sent_over_a_socket_is_written_in_that_order(web: Client, topic: str, broker: str) -> None:
    count = 120
    with connect(f"ws://127.0.0.1:{web.port}/ws/{topic}?listen=no") as socket:
        for number in range(count):
            if number == count // 2:
                time.sleep(5.1)  # what is known of the topic is too old then, so that the next ones ask for it
            socket.send(json.dumps({"type": "produce", "id": number, "record": {"value": number}}))
        answers = 0
        while answers < count:
            answers += json.loads(socket.recv(timeout=30))["type"] == "produced"
    assert list(map(int, values_of(broker, topic))) == list(range(count))


def test_half_a_character_in_an_answer_is_escaped(web: Client, topic: str) -> None:
    with connect(f"ws://127.0.0.1:{web.port}/ws/{topic}?listen=no") as socket:
        assert json.loads(socket.recv(timeout=30))["type"] == "live"
        socket.send('{"type": "produce", "id": "\\ud800", "record": {"value": 1}}')
        assert json.loads(socket.recv(timeout=30))["id"] == "\ud800"
        socket.send('{"type": "produce", "id": "\\ud800", "record": {}}')
        said = json.loads(socket.recv(timeout=30))
        assert (said["type"], said["id"]) == ("refused", "\ud800")


def frame(opcode: int, payload: bytes) -> bytes:
    return bytes([0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload


@pytest.mark.parametrize("opcode", [1, 2])
def test_a_message_that_is_not_utf_8_closes_its_connection(
    web: Client, topic: str, broker: str, opcode: int, capfd: pytest.CaptureFixture[str]
) -> None:
    before = refused(web)
    with raw(web, UPGRADE % f"{topic}?listen=no".encode() + b"\r\n") as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 101 ")
        connection.sendall(frame(opcode, b'{"type":"produce","record":{"value":"\xff"}}'))
        told = b""
        while chunk := connection.recv(65536):
            told += chunk
            if b"\x88\x02" in told:
                break
        assert told.endswith(b"\x88\x02" + struct.pack("!H", 1007))
    assert refused(web) == before + 1
    assert values_of(broker, topic) == []
    assert capfd.readouterr().err == ""


def test_answers_to_pings_that_nobody_reads_are_not_kept(web: Client, topic: str) -> None:
    with raw(web, UPGRADE % f"{topic}?listen=no".encode() + b"\r\n") as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
        pings = frame(9, b"x" * 125) * 500
        before_mb = memory_mb()
        for _ in range(400):  # 26 MB; the machine's buffers take a few
            connection.sendall(pings)
        assert web.ask("GET", "/healthz").status == 200
        assert memory_mb() - before_mb < 12
        connection.sendall(frame(9, b"the last"))
        told = b""
        while not told.endswith(b"the last"):
            told = told[-100:] + connection.recv(65536)


def memory_mb() -> int:
    """What is in memory of this process just now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


def test_bodies_that_do_not_end_are_bounded_together(web: Client, topic: str) -> None:
    begin = f"POST /produce/{topic}/raw HTTP/1.1\r\nHost: localhost\r\ncontent-length: 1000000\r\n\r\n".encode()
    with ExitStack() as stack:
        slow = [stack.enter_context(raw(web, begin + b"x" * 999_000)) for _ in range(4)]
        wait_for(lambda: web.ask("POST", f"/produce/{topic}/raw", b"x" * 900_000).status == 503, "they are there")
        found = web.ask("POST", f"/produce/{topic}/raw", b"x" * 900_000)
        assert (found.status, found.headers["retry-after"]) == (503, "2")
        assert web.ask("POST", f"/produce/{topic}/raw", b"small").status == 200
        for each in slow:
            each.sendall(b"x" * 1_000)
            assert each.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert web.ask("POST", f"/produce/{topic}/raw", b"x" * 900_000).status == 200


def test_no_place_is_no_answer_while_the_broker_hangs(broker: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(broker) as web:
        assert web.produce(topic, {"value": 1}).status == 200
        with monkeypatch.context() as hanging:
            hanging.setattr(RecordFeed, "_follow", lambda feed, _: feed._stopping.wait(3))
            found = web.ask("GET", f"/consume/{topic}?from=0-0")
            assert (found.status, found.headers["retry-after"], found.json["next"]) == (503, "2", None)
        wait_for(lambda: web.ask("GET", f"/consume/{topic}?from=0-0").status == 200, "it goes on")


# --- changes


def forged(raw: bytes) -> str:
    def text(data: bytes) -> str:
        return urlsafe_b64encode(data).rstrip(b"=").decode()

    body = f"hr1.{text(zlib.compress(raw, 9))}.{text(b'[]')}"
    return f"{body}.{text(sha256(body.encode()).digest())[:22]}"


def test_a_token_that_holds_far_more_than_it_has_bytes_is_refused(broker: str, topic: str) -> None:
    with running(broker, changes={"it": f"kafka://{broker}/{topic}"}) as web:
        token = forged(b'{"of":{},"at":{"x":[' + b"{}," * 2_000_000 + b"{}]}}")
        assert len(token) < 10_000
        found = web.ask("GET", f"/changes/it?from={token}")
        assert found.status == 400
        assert "more than 4 MiB" in found.json["error"]


def test_a_token_with_numbers_that_are_none_is_said_to_make_no_sense(broker: str, topic: str) -> None:
    of = {"source": "topic", "topic": topic, "tables": []}
    with running(broker, changes={"it": f"kafka://{broker}/{topic}"}) as web:
        for at in ({"offsets": {"0": float("inf")}}, {"at_ms": "soon"}, {"at_ms": [1]}):
            position = {"id": "", "offsets": {"0": 0}, "ends": {}, "deleted": {}, **at}
            events = Events(web, "/changes/it", last_event_id=forged(json.dumps({"of": of, "at": position}).encode()))
            kind, told = events.next()
            assert kind == "problem"
            assert "makes no sense" in told["error"]
            events.close()


def test_a_database_that_does_not_answer_holds_up_nobody_else(broker: str, topic: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=200)) as silent:
        silent_url = f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/db"
        changes = {"it": f"kafka://{broker}/{topic}", "silent": silent_url}
        with running(broker, changes=changes) as web, ExitStack() as stack:
            begin = b"GET /changes/silent HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for _ in range(40):
                stack.enter_context(raw(web, begin))
            gateway = web.gateway  # type: ignore[attr-defined]
            wait_for(lambda: gateway.progress.connections == 40, "all wait")
            events = Events(web, "/changes/it?heartbeat=1", timeout_s=5)
            assert events.next() == ("heartbeat", None)
            events.close()
            stack.close()
            wait_for(lambda: gateway.progress.connections == 0, "they are gone")
            silent.close()
            with suppress(OSError):
                while True:  # and the server is, too: what they held is let go of
                    silent.accept()[0].close()
            wait_for(lambda: not _at_work(), "nothing is left of them")


def _at_work() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "headrace-changes"]
