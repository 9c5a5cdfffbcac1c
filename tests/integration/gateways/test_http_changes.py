"""Changes over server-sent events and WebSocket: of a topic and of a database, resumed by the token of a change."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from tests.integration.gateways.http_gateway import Client, Events, running


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as there:
        there.execute("pragma journal_mode=wal")
        there.execute("create table orders (id integer primary key, total text)")
    return path


@pytest.fixture
def web(tmp_path: Path, database: Path) -> Iterator[Client]:
    with Broker(tmp_path / "broker", durability="os") as broker:
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            ensure_topic(cluster, "prices", configs={"cleanup.policy": "compact"})
        urls = {"prices": f"kafka://{broker.bootstrap_servers}/prices", "shop": f"sqlite:///{database}"}
        with running(broker.bootstrap_servers, changes=urls) as client:
            yield client


def next_change(events: Events) -> Any:
    while True:
        kind, told = events.next()
        if kind == "change":
            return told
        assert kind == "heartbeat", (kind, told)


def hear_change(socket: Any) -> Any:
    while True:
        said = json.loads(socket.recv(timeout=30))
        if said["type"] == "change":
            return said
        assert said["type"] == "heartbeat", said


def opened(web: Client, path: str) -> Any:
    return connect(f"ws://127.0.0.1:{web.port}{path}")


def test_changes_of_a_topic_are_heard_and_resumed(web: Client) -> None:
    events = Events(web, "/changes/prices?heartbeat=1")
    assert events.next()[0] == "heartbeat", "it is open: what comes now is told"
    web.produce("prices", [{"key": "a", "value": {"price": 1}}, {"key": "b", "value": {"price": 2}}])
    first = next_change(events)
    place = events.last
    assert (first["after"], first["position"]) == ({"price": 1}, place)
    assert next_change(events)["after"] == {"price": 2}
    events.close()
    web.produce("prices", {"key": "a", "value": None})
    back = Events(web, "/changes/prices", last_event_id=place)
    assert [next_change(back)["op"] for _ in range(2)][1] == "d"
    back.close()
    with opened(web, f"/changes/prices?from={place}") as socket:
        said = hear_change(socket)
        assert said["change"]["after"] == {"price": 2}
        assert said["place"] == said["change"]["position"]


def test_changes_of_a_database_are_heard_by_a_socket(web: Client, database: Path) -> None:
    with opened(web, "/changes/shop?table=orders") as socket:
        assert json.loads(socket.recv(timeout=30))["type"] == "heartbeat"
        with closing(sqlite3.connect(database, isolation_level=None)) as there:
            there.execute("insert into orders values (1, '9.50')")
        said = hear_change(socket)
        assert (said["change"]["op"], said["change"]["after"]) == ("c", {"id": 1, "total": "9.50"})


def test_only_what_was_named_can_be_heard(web: Client) -> None:
    for path, status, sentence in (
        ("/changes/price", 404, "did you mean 'prices'?"),
        ("/changes/prices?from=hr1.x.y.z", 400, ""),
        ("/changes/prices?url=sqlite:///etc/passwd", 400, "'url' is unknown here"),
    ):
        found = web.ask("GET", path)
        assert found.status == status, found
        assert sentence in found.json["error"]
        with pytest.raises(InvalidStatus) as refused:
            opened(web, path)
        assert refused.value.response.status_code == status
