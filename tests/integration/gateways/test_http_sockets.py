"""The WebSocket: records live and from the log, produced and answered, credit, and who may open one."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.serving.access import add_token
from headrace.serving.sessions import Role
from tests.integration.gateways.http_gateway import Client, running


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with Broker(durability="os") as made:
        yield made.bootstrap_servers


@pytest.fixture(scope="module")
def web(broker: str) -> Iterator[Client]:
    with running(broker, body_mib=1, origins=["https://shop.example"]) as client:
        yield client


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]
    with Cluster(parse_bootstrap(broker)) as cluster:
        ensure_topic(cluster, name, partitions=2)
    return name


def opened(web: Client, path: str, **settings: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{web.port}{path}", max_size=2**24, **settings)


def hear(socket: ClientConnection, *kinds: str) -> Any:
    """The next message, of one of these types; others than heartbeats fail."""
    while True:
        said = json.loads(socket.recv(timeout=30))
        if said["type"] in kinds:
            return said
        assert said["type"] == "heartbeat", said


def place(said: Any) -> str:
    """The place in a message, without the topic that it is in."""
    return str(said["place"].partition("~")[0])


def closed_with(act: Callable[[], object]) -> int:
    """The code with which the server closes a connection while something is done."""
    with pytest.raises(ConnectionClosed) as closed:
        act()
    assert closed.value.rcvd is not None
    return int(closed.value.rcvd.code)


def say(socket: ClientConnection, **said: Any) -> None:
    socket.send(json.dumps(said))


def test_records_come_and_go_over_one_connection(web: Client, topic: str) -> None:
    with opened(web, f"/ws/{topic}", subprotocols=["headrace.v1"]) as socket:
        assert socket.subprotocol == "headrace.v1"
        assert place(hear(socket, "live")) == "0-0,1-0"
        say(socket, type="produce", id=7, records=[{"key": "a", "value": {"n": 1}, "partition": 0}])
        say(socket, type="produce", id="x", record={"value": 2, "partition": 0})
        heard = [hear(socket, "produced", "record") for _ in range(4)]
        answers = [each for each in heard if each["type"] == "produced"]
        assert [(each["id"], each["records"]) for each in answers] == [
            (7, [{"partition": 0, "offset": 0}]), ("x", [{"partition": 0, "offset": 1}]),
        ]  # fmt: skip
        records = [each for each in heard if each["type"] == "record"]
        assert [(each["record"]["value"], place(each)) for each in records] == [({"n": 1}, "0-1,1-0"), (2, "0-2,1-0")]
    with opened(web, f"/ws/{topic}?from={records[0]['place']}") as socket:
        assert hear(socket, "record")["record"]["value"] == 2
        assert place(hear(socket, "live")) == "0-2,1-0"


def test_order_is_kept_of_what_one_client_produces(web: Client, topic: str) -> None:
    with opened(web, f"/ws/{topic}?listen=no") as socket:
        hear(socket, "live")
        for number in range(300):
            say(socket, type="produce", id=number, records=[{"value": number, "partition": 0}])
        offsets = {}
        for _ in range(300):
            answer = hear(socket, "produced")
            offsets[answer["id"]] = answer["records"][0]["offset"]
    assert offsets == {number: number for number in range(300)}


def test_only_as_much_comes_as_was_asked_for(web: Client, topic: str) -> None:
    web.produce(topic, [{"value": number, "partition": 0} for number in range(10)])
    with opened(web, f"/ws/{topic}?from=earliest&credit=3&heartbeat=1") as socket:
        assert [hear(socket, "record")["record"]["value"] for _ in range(3)] == [0, 1, 2]
        assert json.loads(socket.recv(timeout=30))["type"] == "heartbeat", "nothing more comes by itself"
        say(socket, type="credit", records=2)
        assert [hear(socket, "record")["record"]["value"] for _ in range(2)] == [3, 4]
        assert json.loads(socket.recv(timeout=30))["type"] == "heartbeat"
        say(socket, type="credit", records=100)
        assert [hear(socket, "record")["record"]["value"] for _ in range(5)] == [5, 6, 7, 8, 9]


def test_bad_messages_are_answered_and_harm_nothing(web: Client, topic: str) -> None:
    bad = [
        ("{", "not JSON"), ("[]", "a message is a JSON object"), ('{"type":"shout"}', "produce or credit"),
        ('{"type":"produce"}', '"records"'), ('{"type":"produce","records":[{}]}', "has no value"),
        ('{"type":"credit","records":5}', "no credit to add to"), ('{"type":"credit","records":-1}', "from 1"),
        ('{"type":"produce","id":{},"records":[{"value":1}]}', "an id is"), ("[" * 10_000, "JSON"),
    ]  # fmt: skip
    with opened(web, f"/ws/{topic}") as socket:
        hear(socket, "live")
        for text, sentence in bad:
            socket.send(text)
            assert sentence in hear(socket, "refused")["error"], text
        say(socket, type="produce", id=1, records=[{"value": 1, "partition": 7}])
        assert "has no partition 7" in hear(socket, "refused")["error"]
        say(socket, type="produce", id=2, records=[{"value": 1, "partition": 0}])
        assert {hear(socket, "produced", "record")["type"] for _ in range(2)} == {"produced", "record"}
        socket.send(b'{"type":"produce","id":3,"records":[{"value":2,"partition":0}]}')
        assert {hear(socket, "produced", "record")["type"] for _ in range(2)} == {"produced", "record"}
    with opened(web, f"/ws/{topic}") as socket:
        hear(socket, "live")
        assert closed_with(lambda: [(socket.send("{"), hear(socket, "refused")) for _ in range(1000)]) == 1008
    with opened(web, f"/ws/{topic}") as socket:
        hear(socket, "live")
        assert closed_with(lambda: (socket.send("x" * (2 << 20)), socket.recv(timeout=30))) == 1009
    for path, status in (("/ws/nobody", 404), ("/ws/__consumer_offsets", 403), (f"/ws/{topic}?from=x", 400)):
        with pytest.raises(InvalidStatus) as refused:
            opened(web, path)
        assert refused.value.response.status_code == status
        assert b"error" in (refused.value.response.body or b"")


def test_only_who_may_opens_one(web: Client, broker: str, topic: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidStatus) as refused:
        opened(web, f"/ws/{topic}", origin="https://evil.example")
    assert refused.value.response.status_code == 403
    with opened(web, f"/ws/{topic}", origin="https://shop.example") as socket:
        hear(socket, "live")
    tokens = tmp_path / "tokens"
    looks, changes = (add_token(tokens, role.value, role) for role in (Role.READ_ONLY, Role.ADMIN))
    with running(broker, tokens=str(tokens)) as guarded:
        for settings in ({}, {"subprotocols": ["headrace.v1", "headrace.bearer.wrong"]}):
            with pytest.raises(InvalidStatus) as refused:
                opened(guarded, f"/ws/{topic}", **settings)
            assert refused.value.response.status_code == 401
        with opened(guarded, f"/ws/{topic}", subprotocols=["headrace.v1", f"headrace.bearer.{looks}"]) as socket:
            assert socket.subprotocol == "headrace.v1"
            hear(socket, "live")
            say(socket, type="produce", id=1, records=[{"value": 1}])
            assert "a token of an admin is needed" in hear(socket, "refused")["error"]
        headers = {"Authorization": f"Bearer {changes}"}
        with opened(guarded, f"/ws/{topic}?listen=no", additional_headers=headers) as socket:
            hear(socket, "live")
            say(socket, type="produce", id=1, records=[{"value": 1}])
            hear(socket, "produced")


# --- slow ones, under each policy


def values(count: int) -> list[dict[str, Any]]:
    return [{"value": {"n": number, "pad": "x" * 50_000}, "partition": 0} for number in range(count)]


def behind(web: Client, topic: str, policy: str, count: int) -> tuple[list[int], dict[str, int]]:
    """What a client gets that read nothing while many records came: the numbers, and how many it was told it missed."""
    numbers: list[int] = []
    told = {"missed": 0, "dropped": 0}
    with opened(web, f"/ws/{topic}?slow={policy}", max_queue=1) as socket:
        hear(socket, "live")
        for start in range(0, count, 20):
            web.produce(topic, values(count)[start : start + 20])
        with opened(web, f"/ws/{topic}?from=0-{count - 1},1-0") as quick:
            said = hear(quick, "record", "live")  # it is live already where the gateway has not read the last one yet
            said = hear(quick, "record") if said["type"] == "live" else said
            assert said["record"]["value"]["n"] == count - 1, "others are not held up"
        while numbers[-1:] != [count - 1]:
            said = hear(socket, "record", "missed", "dropped")
            if said["type"] == "record":
                numbers.append(said["record"]["value"]["n"])
            elif said["type"] == "missed":
                told["missed"] += said["missed"]
            else:
                told["dropped"] += said["behind"]
                told["place"] = int(said["place"].partition("-")[2].partition(",")[0])
                assert closed_with(lambda: socket.recv(timeout=30)) == 4000
                break
    return numbers, told


@pytest.mark.parametrize("policy", ["skip", "drop", "replay"])
def test_a_slow_client_gets_what_its_policy_says(broker: str, topic: str, policy: str) -> None:
    count = 400  # 20 MB: more than sockets, a page and what is kept hold
    with running(broker, kept_mib=1) as web:
        numbers, told = behind(web, topic, policy, count)
        assert numbers == sorted(set(numbers)), "each once, in order"
        if policy == "replay":
            assert (numbers, told) == (list(range(count)), {"missed": 0, "dropped": 0})
        elif policy == "skip":
            assert told["missed"] > 0
            assert len(numbers) + told["missed"] == count
        else:
            assert told["dropped"] > 0
            assert numbers == list(range(len(numbers)))
            assert told["place"] == len(numbers)
            with opened(web, f"/ws/{topic}?from=0-{told['place']},1-0&slow=replay") as back:
                rest = [hear(back, "record")["record"]["value"]["n"] for _ in range(count - len(numbers))]
            assert numbers + rest == list(range(count))


def test_the_server_ends_with_a_client_that_does_not_read(broker: str, topic: str) -> None:
    with contextlib.ExitStack() as stack:
        with running(broker) as web:
            socket = stack.enter_context(opened(web, f"/ws/{topic}", max_queue=1))
            web.produce(topic, values(100))
            began = time.monotonic()
        assert time.monotonic() - began < 6
        socket.socket.close()


def test_those_who_take_nothing_of_what_is_in_the_log_hold_up_nobody_else(web: Client, topic: str) -> None:
    web.produce(topic, values(10))
    with contextlib.ExitStack() as stack:
        for _ in range(16):  # all that may read logs at once
            socket = stack.enter_context(opened(web, f"/ws/{topic}?from=earliest&credit=0"))
            say(socket, type="credit", records=1)
            assert hear(socket, "record")["record"]["value"]["n"] == 0
        found = web.consume(topic, "from=earliest&max_wait=5000")
        assert [each["value"]["n"] for each in found["records"]] == list(range(10))
        say(socket, type="credit", records=9)
        assert [hear(socket, "record")["record"]["value"]["n"] for _ in range(9)] == list(range(1, 10))
