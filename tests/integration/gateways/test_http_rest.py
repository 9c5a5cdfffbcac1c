"""The paths of Kafka's REST proxy: produce, and consumers in real groups, with its codes."""

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from tests.integration.gateways.http_gateway import Answer, Client, running

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
PLAIN = "application/vnd.kafka.v2+json"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with Broker(durability="os") as made:
        yield made.bootstrap_servers


@pytest.fixture(scope="module")
def web(broker: str) -> Iterator[Client]:
    with running(broker, instances=4) as client:
        yield client


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]
    with Cluster(parse_bootstrap(broker)) as cluster:
        ensure_topic(cluster, name, partitions=2)
    return name


def post(web: Client, path: str, body: Any, kind: str = PLAIN) -> Answer:
    return web.ask("POST", path, body, content_type=kind)


class RestConsumer:
    """A consumer, as a program that knows the REST proxy uses one."""

    def __init__(self, web: Client, group: str, name: str, form: str = "json", **settings: Any) -> None:
        self._web, self._form = web, form
        said = {"name": name, "format": form, "auto.offset.reset": "earliest"}
        said |= {key.replace("_", "."): value for key, value in settings.items()}
        made = post(web, f"/consumers/{group}", said)
        assert made.status == 200, made
        assert made.json["instance_id"] == name
        self.path = made.json["base_uri"].removeprefix(web.url)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return self._web.ask(method, self.path + path, body, content_type=PLAIN)

    def records(self, timeout_ms: int = 500, question: str = "") -> list[Any]:
        accept = f"application/vnd.kafka.{self._form}.v2+json"
        found = self._web.ask("GET", f"{self.path}/records?timeout={timeout_ms}{question}", accept=accept)
        assert (found.status, found.headers["content-type"]) == (200, accept), found
        return list(found.json)

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        until = time.monotonic() + 30
        while len(found) < count and time.monotonic() < until:
            found += self.records()
        return found

    def delete(self) -> None:
        assert self.ask("DELETE", "").status == 204


def test_topics_are_shown(web: Client, topic: str) -> None:
    names = web.ask("GET", "/topics")
    assert topic in names.json
    assert not [name for name in names.json if name.startswith("__")]
    assert names.headers["content-type"] == PLAIN
    shown = web.ask("GET", f"/topics/{topic}").json
    assert (shown["name"], [each["partition"] for each in shown["partitions"]]) == (topic, [0, 1])
    assert shown["partitions"][0]["replicas"][0]["leader"] is True
    assert len(web.ask("GET", f"/topics/{topic}/partitions").json) == 2
    assert web.ask("GET", f"/topics/{topic}/partitions/1").json["partition"] == 1
    post(web, f"/topics/{topic}/partitions/1", {"records": [{"value": 1}]}, JSON)
    assert web.ask("GET", f"/topics/{topic}/partitions/1/offsets").json == {"beginning_offset": 0, "end_offset": 1}


def test_records_of_each_form_are_written(web: Client, broker: str, topic: str) -> None:
    number = "12345678901234567890.1234567890123456789"
    exact = f'{{"key": "k", "value": {{"n": {number}}}, "partition": 0}}'
    body = f'{{"records": [{exact}, {{"value": null, "partition": 0}}]}}'
    found = post(web, f"/topics/{topic}", body.encode(), JSON)
    assert found.status == 200
    assert found.json["offsets"] == [
        {"partition": 0, "offset": offset, "error_code": None, "error": None} for offset in range(2)
    ]
    encoded = base64.b64encode(b"\xff\x00").decode()
    assert post(web, f"/topics/{topic}/partitions/1", {"records": [{"value": encoded}]}, BINARY).status == 200
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[Any] = []
    while len(read) < 3:
        read += consumer.consume(3, 1.0)
    consumer.close()
    assert sorted((each.partition(), each.key(), each.value()) for each in read if each.value()) == [
        (0, b'"k"', f'{{"n":{number}}}'.encode()), (1, None, b"\xff\x00"),
    ]  # fmt: skip


def test_a_group_shares_partitions_and_commits(web: Client, broker: str, topic: str) -> None:
    records = [{"key": str(number), "value": number, "partition": number % 2} for number in range(20)]
    assert post(web, f"/topics/{topic}", {"records": records}, JSON).status == 200
    first = RestConsumer(web, "g1", "one", auto_commit_enable="false")
    assert first.ask("POST", "/subscription", {"topics": [topic]}).status == 204
    assert first.ask("GET", "/subscription").json == {"topics": [topic]}
    found = first.read(20)
    assert sorted(each["value"] for each in found) == list(range(20))
    for partition in range(2):
        assert [each["offset"] for each in found if each["partition"] == partition] == list(range(10))
    assert first.ask("POST", "/offsets", {"offsets": [{"topic": topic, "partition": 0, "offset": 4}]}).status == 200
    places = {"partitions": [{"topic": topic, "partition": partition} for partition in range(2)]}
    assert first.ask("GET", "/offsets", places).json["offsets"] == [
        {"topic": topic, "partition": 0, "offset": 4, "metadata": ""}
    ]
    second = RestConsumer(web, "g1", "two", auto_commit_enable="false")
    second.ask("POST", "/subscription", {"topics": [topic]})
    until = time.monotonic() + 30
    shares: list[int] = []
    while shares != [1, 1] and time.monotonic() < until:
        shares = [len(each.ask("GET", "/assignments").json["partitions"]) for each in (first, second)]
        for each in (first, second):
            each.records(50)
    assert shares == [1, 1]
    first.delete()
    until = time.monotonic() + 30
    while len(second.ask("GET", "/assignments").json["partitions"]) < 2 and time.monotonic() < until:
        second.records(50)
    assert second.ask("POST", "/positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 7}]}).status == 204
    assert [each["offset"] for each in second.read(3) if each["partition"] == 0] == [7, 8, 9]
    assert second.ask("POST", "/positions/beginning", places).status == 204
    assert len(second.read(20)) == 20
    assert second.ask("POST", "/positions/end", places).status == 204
    assert second.records() == []
    assert second.ask("POST", "/offsets").status == 200, "of all that was handed out"
    second.delete()
    assert second.ask("GET", "/records").json["error_code"] == 40403


def test_what_was_handed_out_is_committed_with_the_next_request(web: Client, topic: str) -> None:
    post(web, f"/topics/{topic}", {"records": [{"value": n, "partition": 0} for n in range(10)]}, JSON)
    one = RestConsumer(web, "g2", "one")
    one.ask("POST", "/subscription", {"topic_pattern": f"{topic[:20]}.*"})
    assert one.ask("GET", "/subscription").json == {"topics": [topic]}
    assert len(one.read(10)) == 10
    one.delete()
    again = RestConsumer(web, "g2", "one")
    again.ask("POST", "/subscription", {"topics": [topic]})
    post(web, f"/topics/{topic}", {"records": [{"value": "news", "partition": 0}]}, JSON)
    assert [each["value"] for each in again.read(1)] == ["news"]
    again.delete()


def test_partitions_are_assigned_by_hand_and_answers_bounded(web: Client, topic: str) -> None:
    post(web, f"/topics/{topic}", {"records": [{"value": "x" * 100, "partition": 1} for _ in range(10)]}, JSON)
    web.ask("POST", f"/produce/{topic}/raw?partition=1", b"not JSON")
    one = RestConsumer(web, "g3", "one")
    assert one.ask("POST", "/assignments", {"partitions": [{"topic": topic, "partition": 1}]}).status == 204
    assert one.ask("GET", "/assignments").json == {"partitions": [{"topic": topic, "partition": 1}]}
    found = one.records(2_000, "&max_bytes=250")
    assert [each["offset"] for each in found] == [0, 1]
    rest = one.read(9)
    assert [each["offset"] for each in rest] == list(range(2, 11))
    assert (rest[-1]["value"], rest[-1]["value_encoding"]) == (base64.b64encode(b"not JSON").decode(), "base64")
    found = one.ask("POST", "/subscription", {"topics": [topic]})
    assert (found.status, found.json["error_code"]) == (409, 40903)
    one.delete()


def test_codes_are_those_of_the_proxy(web: Client, topic: str) -> None:
    ok = {"records": [{"value": 1}]}
    cases = [
        (web.ask("GET", "/topics/nobody"), 40401),
        (web.ask("GET", f"/topics/{topic}/partitions/9"), 40402),
        (post(web, "/topics/nobody", ok, JSON), 40401),
        (post(web, f"/topics/{topic}/partitions/9", ok, JSON), 40402),
        (post(web, f"/topics/{topic}", {"records": [{"value": 1, "partition": 9}]}, JSON), 40402),
        (post(web, "/topics/__consumer_offsets", ok, JSON), 40301),
        (post(web, f"/topics/{topic}", b"[", JSON), 422),
        (post(web, f"/topics/{topic}", {"records": []}, JSON), 422),
        (post(web, f"/topics/{topic}", {"records": [{"value": "%%"}]}, BINARY), 422),
        (post(web, f"/topics/{topic}", ok, "text/csv"), 415),
        (post(web, f"/topics/{topic}", ok, "application/vnd.kafka.avro.v2+json"), 415),
        (web.ask("GET", "/consumers/g/instances/nobody/records"), 40403),
        (post(web, "/consumers/g", {"format": "xml"}), 42204),
        (post(web, "/consumers/g", {"auto.offset.reset": "soon"}), 42204),
        (post(web, "/consumers/g", {"format": "avro"}), 42204),
    ]
    for answer, code in cases:
        assert answer.json["error_code"] == code, (answer, code)
        assert answer.status == int(str(code)[:3])
        assert "\n" not in answer.json["message"]
    one = RestConsumer(web, "g4", "one")
    hidden = {"partitions": [{"topic": "__consumer_offsets", "partition": 0}]}
    assert one.ask("GET", "/offsets", hidden).json["error_code"] == 40301
    assert post(web, "/consumers/g4", {"name": "one"}).json["error_code"] == 40902
    wrong = web.ask("GET", f"{one.path}/records", accept=BINARY)
    assert (wrong.status, wrong.json["error_code"]) == (406, 40601)
    assert web.ask("GET", f"{one.path}/records", accept=JSON).json["error_code"] == 40903
    others = [RestConsumer(web, "g4", f"more{number}") for number in range(3)]
    assert post(web, "/consumers/g4", {}).status == 503, "no more than were allowed"
    for each in (one, *others):
        each.delete()


def test_a_consumer_that_nobody_asks_is_removed(broker: str, topic: str) -> None:
    with running(broker, instance_s=1.0) as web:
        post(web, f"/topics/{topic}", {"records": [{"value": 1}]}, JSON)
        one = RestConsumer(web, "g5", "one")
        one.ask("POST", "/subscription", {"topics": [topic]})
        assert len(one.read(1)) == 1
        until = time.monotonic() + 30
        while web.gateway.progress.more.get("consumers") != 0 and time.monotonic() < until:  # type: ignore[attr-defined]
            time.sleep(0.1)
        assert one.ask("GET", "/records").json["error_code"] == 40403
        other = RestConsumer(web, "g5", "two")
        other.ask("POST", "/subscription", {"topics": [topic]})
        post(web, f"/topics/{topic}", {"records": [{"value": 2}]}, JSON)
        assert [each["value"] for each in other.read(1)] == [2], "it left its group, and had committed"


class Registry(BaseHTTPRequestHandler):
    """A schema registry of one topic: it numbers what it is given."""

    schemas: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["content-length"])))["schema"]
        if text not in self.schemas:
            self.schemas.append(text)
        self._answer({"id": self.schemas.index(text) + 1})

    def do_GET(self) -> None:
        self._answer({"schema": self.schemas[int(self.path.rpartition("/")[2]) - 1]})

    def _answer(self, said: Any) -> None:
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_avro_by_a_registry(broker: str, topic: str, registry: str) -> None:
    with running(broker, registry=registry) as web:
        schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
        body = {"value_schema": schema, "records": [{"value": {"id": 7}, "partition": 0}]}
        found = post(web, f"/topics/{topic}", body, "application/vnd.kafka.avro.v2+json")
        assert found.status == 200, found
        body = {"value_schema_id": found.json["value_schema_id"], "records": [{"value": {"id": 8}, "partition": 0}]}
        assert post(web, f"/topics/{topic}", body, "application/vnd.kafka.avro.v2+json").status == 200
        body["records"][0]["value"] = {"id": "x"}  # type: ignore[index]
        assert post(web, f"/topics/{topic}", body, "application/vnd.kafka.avro.v2+json").json["error_code"] == 42203
        body.pop("value_schema_id")
        assert post(web, f"/topics/{topic}", body, "application/vnd.kafka.avro.v2+json").json["error_code"] == 42202
        one = RestConsumer(web, "g6", "one", "avro")
        one.ask("POST", "/subscription", {"topics": [topic]})
        assert [each["value"] for each in one.read(2)] == [{"id": 7}, {"id": 8}]


def test_what_comes_for_somebody_who_went_away_is_for_the_next_request(web: Client, topic: str) -> None:
    one = RestConsumer(web, "gone", "one")
    assert one.ask("POST", "/subscription", {"topics": [topic]}).status == 204
    assert one.records() == []
    with closing(socket.create_connection(("127.0.0.1", web.port))) as waiting:
        asked = f"GET {one.path}/records?timeout=20000 HTTP/1.1\r\nHost: localhost\r\nAccept: {JSON}\r\n\r\n"
        waiting.sendall(asked.encode())
        time.sleep(1)  # it is on its way
    began = time.monotonic()
    assert one.records(0) == [], "and does not wait for the one before"
    assert time.monotonic() - began < 10
    assert web.produce(topic, [{"value": number, "partition": 0} for number in range(3)]).status == 200
    assert [each["value"] for each in one.read(3)] == [0, 1, 2]
    assert one.ask("DELETE", "").status == 204
