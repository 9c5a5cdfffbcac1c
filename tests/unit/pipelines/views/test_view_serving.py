"""Views over HTTP: rows, pages, freshness, errors in a sentence, and live events."""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.views import sqlite
from headrace.pipelines.views.serving.app import ViewServer
from headrace.pipelines.views.sink import ViewSink
from headrace.testing.contracts.view import KEY, batch, row


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return sqlite(tmp_path / "views.db")


@pytest.fixture
def server(store: Any) -> Iterator[ViewServer]:
    views = {name: ViewSink(name, KEY, store, ("posts",)) for name in ("feed", "later")}
    with ViewServer(views, port=0) as server:
        yield server


def ask(server: ViewServer, path: str, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


class Events:
    """Reads server-sent events, one at a time."""

    def __init__(self, server: ViewServer, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        self._connection.request("GET", path, headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.headers["content-type"].startswith("text/event-stream")

    def next(self) -> tuple[str, Any, str | None]:
        fields: dict[str, str] = {}
        while True:
            line = self._answer.readline().decode().rstrip("\n")
            if not line and fields:
                return fields["event"], json.loads(fields["data"]), fields.get("id")
            name, colon, value = line.partition(": ")
            if colon and name:
                fields[name] = value

    def close(self) -> None:
        self._connection.close()


def test_rows_pages_and_freshness(store: Any, server: ViewServer) -> None:
    status, listed = ask(server, "/views")
    assert status == 200
    assert [one["view"] for one in listed["views"]] == ["feed", "later"]
    assert "never been written" in listed["views"][0]["problem"]
    store.write(batch(store, 0, [row(user, f"p{post}", likes=post) for user in (1, 2) for post in range(5)]))
    _, listed = ask(server, "/views")
    first = listed["views"][0]
    assert first["key"] == list(KEY)
    assert first["columns"]["likes"] == "int"
    assert first["freshness"]["offsets"] == {"posts-0": 1}
    assert first["freshness"]["rows"] == 10
    status, found = ask(server, "/views/feed/1/p3")
    assert (status, found["row"]["likes"]) == (200, 3)
    assert found["freshness"]["watermark"] == "2023-11-14T22:13:20.000+00:00"
    _, page = ask(server, "/views/feed?user=2&likes.ge=1&order=-likes&limit=3")
    assert [one["likes"] for one in page["rows"]] == [4, 3, 2]
    _, page = ask(server, f"/views/feed?user=2&likes.ge=1&order=-likes&limit=3&after={page['next']}")
    assert [one["likes"] for one in page["rows"]] == [1]
    assert page["next"] is None


def test_a_key_may_hold_anything(store: Any, server: ViewServer) -> None:
    store.write(batch(store, 0, [row(1, "a/b c?ü", likes=1), row(1, "live")]))
    assert ask(server, "/views/feed/1/a%2Fb%20c%3F%C3%BC")[1]["row"]["likes"] == 1
    assert ask(server, "/views/feed/1/live")[1]["row"]["post"] == "live"


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/views/none", 404, "there is no view 'none': there is feed, later"),
        ("/views/later/1/a", 404, "view 'later' has never been written"),
        ("/views/feed/1/zzz", 404, "view 'feed' has no row with the key 1/zzz"),
        ("/views/feed/1", 400, "the key has 2 columns, and 1 in the path: write <user>/<post>"),
        ("/views/feed/x/a", 400, "user is bigint, and 'x' is not a whole number"),
        ("/views/feed?colour=red", 400, "there is no column 'colour'"),
        ("/views/feed?likes.near=2", 400, "compares by 'near': choose one of eq, ne"),
        ("/views/feed?at.gt=soon", 400, "'soon' is not a time such as 2026-01-31T12:00:00Z"),
        ("/views/feed?limit=0", 400, "limit is '0': write a number from 1 to 1000"),
        ("/views/feed?order=nothing", 400, "order names 'nothing'"),
        ("/views/feed?after=xyz", 400, "after is not a cursor of this order"),
        ("/views/feed?tags=a", 400, "tags is array<string>, which cannot be compared"),
        ("/elsewhere", 404, "there is nothing here: ask for /views"),
    ],
)
def test_a_mistake_is_a_sentence(store: Any, server: ViewServer, path: str, status: int, sentence: str) -> None:
    store.write(batch(store, 0, [row(1, "a")]))
    found = ask(server, path)
    assert found[0] == status
    assert sentence in found[1]["error"]


def test_a_name_of_another_site_is_not_answered(server: ViewServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/views", headers={"Host": "evil.example"})
    assert connection.getresponse().status == 421
    connection.close()


def test_live_is_a_state_then_each_change_and_goes_on_where_it_was(store: Any, server: ViewServer) -> None:
    store.write(batch(store, 0, [row(1, "a", likes=1), row(2, "b")]))
    events = Events(server, "/views/feed/live")
    kind, data, _ = events.next()
    assert kind == "state"
    assert [one["post"] for one in data["rows"]] == ["a", "b"]
    assert events.next()[0::2] == ("live", "1")
    store.write(batch(store, 1, [row(1, "a", likes=2)], [(2, "b")], known=[(1, "a")]))
    kind, data, last = events.next()
    assert (kind, last) == ("change", "2")
    assert [one["likes"] for one in data["upserts"]] == [2]
    assert data["deletes"] == [{"user": 2, "post": "b"}]
    assert data["freshness"]["batch"] == 1
    events.close()
    store.write(batch(store, 2, [row(3, "c")]))
    again = Events(server, "/views/feed/live", **{"Last-Event-ID": "2"})
    kind, data, last = again.next()
    assert (kind, last, [one["post"] for one in data["upserts"]]) == ("change", "3", ["c"])
    again.close()


def test_live_for_some_rows_and_for_one_key(store: Any, server: ViewServer) -> None:
    store.write(batch(store, 0, [row(1, "a", likes=1), row(2, "b", likes=5)]))
    some = Events(server, "/views/feed/live?likes.gt=3")
    one = Events(server, "/views/feed/1/a/live")
    assert [found["post"] for found in some.next()[1]["rows"]] == ["b"]
    assert [found["post"] for found in one.next()[1]["rows"]] == ["a"]
    assert some.next()[0] == one.next()[0] == "live"
    store.write(batch(store, 1, [row(1, "a", likes=9), row(2, "b", likes=0)], known=[(1, "a"), (2, "b")]))
    _, data, _ = some.next()
    assert ([found["post"] for found in data["upserts"]], data["deletes"]) == (["a"], [{"user": 2, "post": "b"}])
    _, data, _ = one.next()
    assert ([found["likes"] for found in data["upserts"]], data["deletes"]) == ([9], [])
    some.close()
    one.close()


def test_the_server_follows_the_switch_to_a_new_version(store: Any, server: ViewServer) -> None:
    store.write(batch(store, 0, [row(1, "a", likes=1)]))
    events = Events(server, "/views/feed/live")
    assert [events.next()[0] for _ in range(2)] == ["state", "live"]
    store.write(batch(store, 0, [row(1, "a", likes=7)], query="query-2", version=2))
    assert ask(server, "/views/feed/1/a")[1]["row"]["likes"] == 1
    store.switch("feed", 2)
    assert ask(server, "/views/feed/1/a")[1]["row"]["likes"] == 7
    kind, data, _ = events.next()
    assert (kind, data["first"], data["rows"][0]["likes"]) == ("state", True, 7)
    events.close()


def test_readers_see_whole_batches_while_they_are_written(store: Any, server: ViewServer) -> None:
    users = range(20)
    store.write(batch(store, 0, [row(user, "a", likes=0) for user in users]))

    def write() -> None:
        for number in range(1, 16):
            rows = [row(user, "a", likes=number) for user in users]
            store.write(batch(store, number, rows, known=[(user, "a") for user in users]))

    writing = threading.Thread(target=write)
    writing.start()
    seen = -1
    while seen < 15:
        found = ask(server, "/views/feed")[1]
        assert {one["likes"] for one in found["rows"]} == {found["freshness"]["batch"]}
        assert found["freshness"]["batch"] >= seen
        seen = found["freshness"]["batch"]
    writing.join()
