"""The HTTP gateway: what is produced is durable and where it says, read back as it was; bad input is one sentence."""

import base64
import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import describe_configs, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.errors import TakenOver
from headrace.gateways.http import idempotency
from headrace.serving.access import add_token
from headrace.serving.sessions import Role
from tests.integration.gateways.http_gateway import Client, Events, running
from tests.integration.gateways.running import wait_for


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with Broker(durability="os") as made:
        yield made.bootstrap_servers


@pytest.fixture(scope="module")
def web(broker: str) -> Iterator[Client]:
    with running(broker, body_mib=1) as client:
        yield client


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]
    with Cluster(parse_bootstrap(broker)) as cluster:
        ensure_topic(cluster, name, partitions=2)
    return name


def read_all(broker: str, topic: str) -> list[tuple[int, int, bytes | None, bytes | None, dict[str, bytes], int]]:
    """What is in a topic, by our own client."""
    with Cluster(parse_bootstrap(broker)) as cluster:
        held = bounds(cluster, cluster.partitions(topic))
        ends = {where: bound.end for where, bound in held.items() if bound.end}
        return [
            (
                read.partition.partition,
                read.record.offset,
                read.record.key,
                read.record.value,
                {header.key: bytes(header.value or b"") for header in read.record.headers},
                read.record.timestamp,
            )
            for found in read_records(cluster, dict.fromkeys(ends, 0), until=ends)
            for read in found
        ]


# --- produce


def test_records_are_where_the_answer_says(web: Client, broker: str, topic: str) -> None:
    one = {"key": "a", "value": {"n": 1}, "headers": {"trace": "17"}, "partition": 1, "timestamp": 1_790_000_000_000}
    assert web.produce(topic, one).json == {"partition": 1, "offset": 0}
    several = [{"value": "é", "partition": 0}, {"key": "gone", "value": None, "partition": 0}, {**one, "value": [1]}]
    assert web.produce(topic, several).json == {
        "records": [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}, {"partition": 1, "offset": 1}]
    }
    assert web.produce(topic, {"records": [{"key": {"id": 7}, "value": 1, "partition": 0}]}).json == {
        "records": [{"partition": 0, "offset": 2}]
    }
    found = {(partition, offset): each for partition, offset, *each in read_all(broker, topic)}
    assert found[1, 0] == [b"a", b'{"n":1}', {"trace": b"17"}, 1_790_000_000_000]
    assert [found[0, offset][:2] for offset in range(3)] == [
        [None, '"é"'.encode()],
        [b"gone", None],
        [b'{"id":7}', b"1"],
    ]


def test_numbers_and_bytes_stay_as_they_are(web: Client, broker: str, topic: str) -> None:
    number = "123456789012345678901234567890.12345678901234567890123E+400"
    sent = f'{{"value": {{"n": [{number}, -0, 1.10, 9007199254740993]}}, "partition": 0}}'
    assert web.produce(topic, sent.encode()).status == 200
    raw = bytes(range(256))
    path = f"{topic}/raw?key=k%20k&partition=0&header.a=b&timestamp=1790000000000"
    assert web.ask("POST", f"/produce/{path}", raw, content_type="image/png").json == {"partition": 0, "offset": 1}
    values = [each[3] for each in read_all(broker, topic)]
    assert values == [f'{{"n":[{number},-0,1.10,9007199254740993]}}'.encode(), raw]
    shown = web.ask("GET", f"/consume/{topic}").body.decode()
    assert f'"value":{{"n":[{number},-0,1.10,9007199254740993]}}' in shown
    (_, second) = json.loads(shown)["records"]
    assert second["value_encoding"] == "base64"
    assert base64.b64decode(second["value"]) == raw
    assert (second["key"], second["headers"], second["timestamp"]) == ("k k", {"a": "b"}, 1_790_000_000_000)
    # What was shown can be sent back, and is the same record.
    assert web.produce(topic, {"records": json.loads(shown)["records"][1:]}).status == 200
    again = read_all(broker, topic)[2]
    assert again[2:] == read_all(broker, topic)[1][2:]


def test_curl_produces_and_consumes(web: Client, topic: str) -> None:
    def curl(*arguments: str) -> str:
        return subprocess.run(
            ["curl", "-sS", *arguments], capture_output=True, text=True, check=True, timeout=30
        ).stdout

    json_type = ("-H", "content-type: application/json")
    assert json.loads(curl(*json_type, "-d", '{"value": 1, "partition": 0}', f"{web.url}/produce/{topic}")) == {
        "partition": 0, "offset": 0,
    }  # fmt: skip
    assert json.loads(curl("--data-binary", "hello", f"{web.url}/produce/{topic}/raw?partition=0"))["offset"] == 1
    found = json.loads(curl(f"{web.url}/consume/{topic}"))
    assert [each["value"] for each in found["records"]] == [1, base64.b64encode(b"hello").decode()]


BAD: dict[str, tuple[str, str, Any, int, str]] = {
    "not JSON": ("POST", "/produce/T", b'{"value": }', 400, "the body is not JSON: Expecting value at line 1"),
    "no value": ("POST", "/produce/T", {"key": "a"}, 400, "has no value: write null"),
    "misspelt": ("POST", "/produce/T", [{"value": 1}, {"vaule": 1}], 400, "record 2 has 'vaule', which is unknown"),
    "no object": ("POST", "/produce/T", b"17", 400, "the record is not a JSON object"),
    "empty batch": ("POST", "/produce/T", [], 400, "has no record"),
    "too many": ("POST", "/produce/T", [{"value": 1}] * 10_001, 400, "at most 10,000 records"),
    "too large": ("POST", "/produce/T", b" " * (2 << 20), 413, "at most 1 MiB"),
    "nested": ("POST", "/produce/T", b'{"value":' + b"[" * 100_000, 400, "nested too deeply"),
    "base64": ("POST", "/produce/T", {"value": "%", "value_encoding": "base64"}, 400, "is not base64"),
    "half": ("POST", "/produce/T", {"value": 1, "key": "\ud800"}, 400, "half a character"),
    "partition": ("POST", "/produce/T", {"value": 1, "partition": 2}, 404, "it has partitions 0 to 1"),
    "fraction": ("POST", "/produce/T", {"value": 1, "partition": 0.5}, 400, "is not a whole number"),
    "headers": ("POST", "/produce/T", {"value": 1, "headers": {"a": 7}}, 400, "header 'a' of the record is not a text"),
    "unknown topic": ("POST", "/produce/nobody-made-this", {"value": 1}, 404, "does not exist"),
    "illegal topic": ("POST", "/produce/a%2Fb%3F", {"value": 1}, 400, "is not legal"),
    "internal": ("POST", "/produce/__consumer_offsets", {"value": 1}, 403, "cannot be written to here"),
    "internal read": ("GET", "/consume/__consumer_offsets", None, 403, "cannot be read here"),
    "internal heard": ("GET", "/events/__headrace_gateway_status", None, 403, "cannot be read here"),
    "from": ("GET", "/consume/T?from=yesterday", None, 400, "write earliest, latest, an offset, a place"),
    "place": ("GET", "/events/T?from=0-x", None, 400, "from is '0-x'"),
    "slow": ("GET", "/events/T?slow=never", None, 400, "slow is skip, drop or replay"),
    "wait": ("GET", "/consume/T?max_wait=3600000", None, 400, "max_wait is a number from 0 to 60,000"),
    "unknown option": ("GET", "/consume/T?max_wiat=1", None, 400, "'max_wiat' is unknown here"),
    "filter": ("GET", "/consume/T?partition=one", None, 400, "partition is the number of one"),
    "method": ("GET", "/produce/T", None, 405, ""),
    "nothing": ("GET", "/nothing", None, 404, "nothing here"),
}


def test_bad_input_is_one_sentence_and_writes_nothing(web: Client, broker: str, topic: str) -> None:
    for name, (method, path, body, status, sentence) in BAD.items():
        found = web.ask(method, path.replace("T", topic, 1), body, content_type="application/json")
        assert found.status == status, (name, found)
        assert sentence in found.json["error"], (name, found)
        assert "\n" not in found.json["error"]
    assert web.ask("POST", f"/produce/{topic}", b"a=b", content_type="text/csv").status == 415
    assert web.ask("GET", f"/events/{topic}", last_event_id="seventeen").status == 400
    assert read_all(broker, topic) == []
    status = web.gateway.progress  # type: ignore[attr-defined]
    assert status.refused >= len(BAD)


def test_a_record_that_the_topic_refuses_harms_no_other(web: Client, broker: str, topic: str) -> None:
    with Cluster(parse_bootstrap(broker)) as cluster:
        ensure_topic(cluster, "small", configs={"max.message.bytes": "1000"})
    found = web.produce("small", {"value": "x" * 5_000})
    assert (found.status, found.json["may_be_written"]) == (413, False)
    together = [threading.Thread(target=web.produce, args=("small", {"value": "y" * 9_000})) for _ in range(3)]
    for each in together:
        each.start()
    assert web.produce("small", {"value": "fits"}).status == 200
    for each in together:
        each.join()
    assert [each[3] for each in read_all(broker, "small")] == [b'"fits"']


def test_of_a_batch_that_is_written_in_part_the_answer_says_which_records_are(
    web: Client, broker: str, topic: str
) -> None:
    with Cluster(parse_bootstrap(broker)) as cluster:
        ensure_topic(cluster, "narrow", partitions=2, configs={"max.message.bytes": "1000"})
    batch = [{"value": "x" * size, "partition": part} for size, part in ((10, 0), (5_000, 0), (10, 0), (10, 1))]
    found = web.produce("narrow", batch)
    assert (found.status, found.json["may_be_written"]) == (413, True), "whoever sends all again doubles some"
    assert ["error" in each for each in found.json["records"]] == [False, True, False, False]
    said = {(each["partition"], each["offset"]) for each in found.json["records"] if "offset" in each}
    assert said == {(partition, offset) for partition, offset, *_ in read_all(broker, "narrow")} != set()
    assert web.produce("narrow", batch, idempotency_key="1").status == 400, "of several partitions"
    found = web.produce("narrow", batch[:3], idempotency_key="2")
    assert (found.status, found.json["may_be_written"]) == (413, False)
    assert len(web.consume("narrow")["records"]) == len(said), "with a key all of it or nothing"


def test_a_request_with_an_idempotency_key_is_written_once(web: Client, broker: str, topic: str) -> None:
    records = [{"key": str(number), "value": number, "partition": 0} for number in range(3)]
    first = web.produce(topic, records, idempotency_key="order-17")
    assert first.status == 200
    again = web.produce(topic, records, idempotency_key="order-17")
    assert (again.json, again.headers.get("idempotency-replayed")) == (first.json, "true")
    assert web.produce(topic, records[:2], idempotency_key="order-17").status == 422
    answers: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda: answers.append(web.produce(topic, [{"value": "once", "partition": 1}], idempotency_key="k"))
        )
        for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {each.status for each in answers} <= {200, 409}
    assert {each.json["records"][0]["offset"] for each in answers if each.status == 200} == {0}
    assert [each[3] for each in read_all(broker, topic)] == [b"0", b"1", b"2", b'"once"']
    assert web.produce(topic, records, idempotency_key="x" * 300).status == 400


def test_a_key_of_one_user_is_not_that_of_another(broker: str, topic: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    users = [{"authorization": f"Bearer {add_token(tokens, name, Role.ADMIN)}"} for name in ("shop", "bank")]
    with running(broker, "users", tokens=str(tokens)) as web:
        for _ in range(2):
            assert [web.produce(topic, {"value": 1}, idempotency_key="1", **user).status for user in users] == [
                200,
                200,
            ]
    assert len(read_all(broker, topic)) == 2


def test_a_key_is_of_all_that_is_written_and_not_of_the_body_alone(web: Client, broker: str, topic: str) -> None:
    event = {"ce_specversion": "1.0", "ce_source": "/test", "ce_type": "test", "idempotency_key": "event"}
    assert [web.ask("POST", f"/produce/{topic}", b"1", ce_id=each, **event).status for each in "aab"] == [200, 200, 422]
    raw = [f"/produce/{topic}/raw?key={each}" for each in "aab"]
    assert [web.ask("POST", each, b"1", idempotency_key="raw").status for each in raw] == [200, 200, 422]
    assert len(read_all(broker, topic)) == 2


def test_a_key_that_comes_again_after_its_time_is_remembered_anew(
    broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0
    monkeypatch.setattr(idempotency.time, "time_ns", lambda real=time.time_ns: real() + passed_s * 10**9)

    def ask(key: str) -> bool:
        answer = web.produce(topic, {"value": key, "partition": 0}, idempotency_key=key)
        assert answer.status == 200
        return "idempotency-replayed" in answer.headers

    with running(broker, "hourly", idempotency_hours=1) as web:
        assert [ask(each) for each in ("first", "second", "first")] == [False, False, True]
        passed_s = 3_601
        assert [ask(each) for each in ("first", "third", "first")] == [False, False, True]
        passed_s += 3_601
        assert not ask("fourth")
    kept: dict[str, list[bool]] = {}
    for _, _, key, value, _, _ in read_all(broker, idempotency.MEMORY):
        _, of_topic, _, name = json.loads(key or b"")
        if of_topic == topic:
            kept.setdefault(name, []).append(value is not None)
    # Each is kept, and kept again with its place; whoever wrote it anew has not forgotten it by that.
    once = [True, True]
    assert kept == {"first": [*once, *once, False], "second": [*once, False], "third": [*once, False], "fourth": once}


def test_where_as_many_keys_are_known_as_may_be_there_is_room_once_their_time_is_over(
    broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0
    monkeypatch.setattr(idempotency.time, "time_ns", lambda real=time.time_ns: real() + passed_s * 10**9)
    monkeypatch.setattr(idempotency, "MOST_REMEMBERED", 3)

    def statuses(web: Client, *keys: str) -> list[int]:
        return [web.produce(topic, {"value": key, "partition": 0}, idempotency_key=key).status for key in keys]

    with running(broker, "crowded", idempotency_hours=1) as web:
        assert statuses(web, "1", "2", "3", "4", "3") == [200, 200, 200, 503, 200]
        passed_s = 3_601
        assert statuses(web, "4", "5") == [200, 200]
    passed_s += 3_601
    with running(broker, "crowded", idempotency_hours=1) as web:
        assert statuses(web, "6", "7", "8", "9") == [200, 200, 200, 503]
    with Cluster(parse_bootstrap(broker)) as cluster:
        told = {each.name: each.value for each in describe_configs(cluster, idempotency.MEMORY)}
        assert int(told["segment.bytes"] or 0) <= 2**20, "what is forgotten is compacted soon: it is read at each start"


def test_of_two_gateways_of_one_name_the_earlier_ends(broker: str, topic: str) -> None:
    with contextlib.suppress(TakenOver), running(broker, "one") as earlier:
        assert earlier.produce(topic, {"value": 1}, idempotency_key="1").status == 200
        with running(broker, "one") as later:
            assert later.produce(topic, {"value": 1}, idempotency_key="1").headers["idempotency-replayed"] == "true"
            assert earlier.produce(topic, {"value": 2}, idempotency_key="2").status == 503
            wait_for(lambda: not earlier.thread.is_alive(), "the end of the earlier")  # type: ignore[attr-defined]
            assert later.produce(topic, {"value": 2}, idempotency_key="2").status == 200
    assert isinstance(earlier.failed[0], TakenOver)  # type: ignore[attr-defined]
    assert [each[3] for each in read_all(broker, topic)] == [b"1", b"2"]


# --- CloudEvents


def test_events_of_each_mode_come_back_by_the_sdk(web: Client, broker: str, topic: str) -> None:
    from cloudevents.core.bindings import http as binding
    from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
    from cloudevents.core.v1.event import CloudEvent

    def event(number: int, data: Any, kind: str) -> CloudEvent:
        return CloudEvent(
            attributes={
                "id": f"{number} ü%", "source": "/shop", "type": "order.placed", "specversion": "1.0",
                "datacontenttype": kind, "subject": "o-1", "partitionkey": "k",
            },
            data=data,
        )  # fmt: skip

    sent = [
        binding.to_binary_event(event(0, {"n": 1}, "application/json")),
        binding.to_structured_event(event(1, {"n": 2}, "application/json")),
        binding.to_structured_event(event(2, "plain", "text/plain")),
        binding.to_binary_event(event(3, b"\x00\xff", "application/octet-stream")),
        binding.to_structured_event(event(4, b"\x00\xff", "application/octet-stream")),
    ]
    for message in sent:
        found = web.ask("POST", f"/produce/{topic}", message.body, **message.headers)
        assert found.status == 200, found
    usual = {"specversion": "1.0", "source": "/s", "type": "t"}
    batch = [{**usual, "id": str(5 + each), "data": each} for each in range(2)]
    found = web.ask("POST", f"/produce/{topic}", batch, content_type="application/cloudevents-batch+json")
    assert len(found.json["records"]) == 2
    stored = [each for each in read_all(broker, topic) if each[2] == b"k"]
    read = [
        from_kafka_event(KafkaMessage(headers=headers, key=key, value=value or b""))
        for _, _, key, value, headers, _ in sorted(stored, key=lambda each: each[4]["ce_id"])
    ]
    assert [each.get_id() for each in read] == [f"{number} ü%" for number in range(5)]
    assert {each.get_subject() for each in read} == {"o-1"}
    assert [each.get_data() for each in read] == [{"n": 1}, {"n": 2}, "plain", b"\x00\xff", b"\x00\xff"]
    shown = web.ask("GET", f"/consume/{topic}", accept="application/cloudevents-batch+json")
    assert shown.headers["content-type"] == "application/cloudevents-batch+json"
    assert {each["id"] for each in shown.json} == {*(f"{number} ü%" for number in range(5)), "5", "6"}
    for bad in ({}, {"specversion": "0.3"}, {"id": ""}, {"data": 1, "data_base64": "AA=="}, {"Upper": "x"}, {"a": [1]}):
        wrong = {**usual, "id": "1", **bad} if bad else {}
        found = web.ask("POST", f"/produce/{topic}", wrong, content_type="application/cloudevents+json")
        assert (found.status, "\n" in found.json["error"]) == (400, False), found


# --- long poll


def test_a_long_poll_goes_on_where_the_last_one_ended(web: Client, topic: str) -> None:
    web.produce(topic, [{"value": number, "partition": number % 2} for number in range(40)])
    place, seen = "earliest", []
    while True:
        found = web.consume(topic, f"from={place}&max_records=7")
        place = found["next"]
        if not found["records"]:
            break
        assert len(found["records"]) <= 7
        seen += [each["value"] for each in found["records"]]
    assert sorted(seen) == list(range(40))
    assert web.consume(topic, f"from={place}")["next"] == place
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(web.consume(topic, f"from={place}&max_wait=20000")))
    waiting.start()
    began = time.monotonic()
    web.produce(topic, {"value": "news", "partition": 0})
    waiting.join()
    assert [each["value"] for each in answers[0]["records"]] == ["news"]
    assert time.monotonic() - began < 10
    nothing = web.consume(topic, f"from={answers[0]['next']}&max_wait=200")
    assert nothing["records"] == []
    large = web.consume(topic, "from=earliest&max_bytes=1")
    assert len(large["records"]) == 1, "one at least, however small the answer is to be"
    assert {each["value"] for each in web.consume(topic, "from=earliest&partition=1")["records"]} == set(
        range(1, 40, 2)
    )


def test_a_poll_begins_where_it_is_told(web: Client, topic: str) -> None:
    base = 1_790_000_000_000
    web.produce(topic, [{"value": n, "partition": 0, "timestamp": base + n * 1000} for n in range(10)])
    for start, first in (
        ("earliest", 0), ("7", 7), ("0-3,1-0", 3), (f"@{base + 4500}", 5), ("2026-09-21T14:13:26Z", 6),
    ):  # fmt: skip
        assert web.consume(topic, f"from={start}&partition=0")["records"][0]["value"] == first, start
    assert web.consume(topic, "from=latest")["records"] == []
    for before in ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.997Z", "0001-01-01T00:00:00Z"):
        found = web.consume(topic, f"from={before}&partition=0&max_wait=0")
        assert found["records"][0]["offset"] == 0, f"{before} is before the first of all"


# --- server-sent events


def test_events_come_live_and_who_comes_back_misses_none(web: Client, topic: str) -> None:
    web.produce(topic, {"value": "before", "partition": 0})
    everything, some = Events(web, f"/events/{topic}"), Events(web, f"/events/{topic}?key=a&header.kind=x")
    assert [each.next()[0] for each in (everything, some)] == ["live", "live"]
    web.produce(topic, [
        {"key": "a", "value": 1, "headers": {"kind": "x"}, "partition": 0}, {"key": "a", "value": 2, "partition": 1},
        {"key": "b", "value": 3, "headers": {"kind": "x"}, "partition": 0},
    ])  # fmt: skip
    assert sorted(each["value"] for each in everything.records(3)) == [1, 2, 3]
    assert [each["value"] for each in some.records(1)] == [1]
    everything.close()
    web.produce(topic, [{"value": number, "partition": number % 2} for number in range(10, 30)])
    back = Events(web, f"/events/{topic}", last_event_id=everything.last)
    assert sorted(each["value"] for each in back.records(20)) == list(range(10, 30))
    whole = Events(web, f"/events/{topic}?from=earliest")
    assert len(whole.records(24)) == 24
    web.produce(topic, {"value": "line\nbreak", "partition": 0})
    assert [each.records(1)[0]["value"] for each in (back, whole)] == ["line\nbreak"] * 2
    for each in (some, back, whole):
        each.close()


def test_a_heartbeat_tells_how_far_a_listener_is_whom_nothing_concerns(web: Client, topic: str) -> None:
    listener = Events(web, f"/events/{topic}?key=nobody&heartbeat=1")
    assert listener.next()[0] == "live"
    web.produce(topic, [{"key": "somebody", "value": 1, "partition": 0}] * 5)
    while not listener.last.startswith("0-5,1-0~"):
        assert listener.next()[0] == "heartbeat"
    listener.close()


# --- who may


def test_only_who_may_reads_and_writes(broker: str, topic: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    looks, changes = (add_token(tokens, role.value, role) for role in (Role.READ_ONLY, Role.ADMIN))
    with running(broker, tokens=str(tokens), origins=["https://shop.example"], consume=[f"{topic[:9]}*"]) as web:
        assert web.produce(topic, {"value": 1}).status == 401
        assert web.ask("GET", f"/consume/{topic}").status == 401
        reader, writer = ({"authorization": f"Bearer {each}"} for each in (looks, changes))
        assert web.produce(topic, {"value": 1}, **reader).status == 403
        assert web.produce(topic, {"value": 1}, **writer).status == 200
        assert len(web.ask("GET", f"/consume/{topic}", **reader).json["records"]) == 1
        assert web.ask("GET", "/consume/other", **reader).status == 403
        assert web.ask("POST", "/consumers/g", {"name": "c"}, **reader).status == 200
        # Pages of a named origin may ask, pages of others not.
        preflight = {"access_control_request_method": "POST", "access_control_request_headers": "authorization"}
        allowed = web.ask("OPTIONS", f"/produce/{topic}", origin="https://shop.example", **preflight)
        assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (204, "https://shop.example")
        assert web.ask("OPTIONS", f"/produce/{topic}", origin="https://evil.example", **preflight).status == 403
        found = web.produce(topic, {"value": 2}, origin="https://shop.example", **writer)
        assert (found.status, found.headers["access-control-allow-origin"]) == (200, "https://shop.example")
        foreign = web.produce(topic, {"value": 3}, origin="https://evil.example", **writer)
        assert (foreign.status, foreign.headers.get("access-control-allow-origin")) == (403, None)
        assert web.ask("GET", "/healthz", host="evil.example").status == 421


def test_ready_says_whether_the_broker_is_there(web: Client) -> None:
    assert web.ask("GET", "/readyz").status == 200
    assert web.ask("GET", "/healthz").status == 200
