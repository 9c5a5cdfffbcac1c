"""`headrace.changes` of a materialized view, over HTTP."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace.connect.changes import changes
from headrace.connect.errors import InvalidConnectSetting, SourceRefused, SourceUnavailable
from headrace.pipelines.views import sqlite
from headrace.pipelines.views.serving.app import ViewServer
from headrace.pipelines.views.sink import ViewSink
from headrace.testing.contracts.changes import ChangesContract, Replica, ids, read, rest
from headrace.testing.contracts.view import batch
from tests.ports import free_port

COLUMNS = T.StructType([T.StructField("id", T.LongType()), T.StructField("v", T.StringType())])


class ViewStand:
    def __init__(self, path: Path) -> None:
        self.tables: list[str] = []
        self.settings: dict[str, Any] = {}
        self.store = sqlite(path)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/views/rows"
        self._rows: dict[int, str] = {}
        self._batches, self._query = 0, 1
        self._lock = threading.Lock()
        self._write([], [])
        self.start()

    def start(self) -> None:
        self.server = ViewServer({"rows": ViewSink("rows", ("id",), self.store, ("posts",))}, port=self.port)
        self.server.__enter__()

    def stop(self) -> None:
        self.server.__exit__(None, None, None)

    def _write(self, put: list[dict[str, Any]], taken: list[tuple[int]], **more: Any) -> None:
        known = [(row["id"],) for row in put if row["id"] in self._rows]
        made = batch(
            self.store, self._batches, put, taken, known=known, view="rows", columns=COLUMNS, key=("id",),
            query=f"query-{self._query}", **more,
        )  # fmt: skip
        assert self.store.write(made) is not None
        self._batches += 1

    def put(self, rows: dict[int, str]) -> None:
        threading.Event().wait(0.025)  # the store remembers some hundred batches, and a reader takes a second to begin
        with self._lock:
            self._write([{"id": id_, "v": text} for id_, text in rows.items()], [])
            self._rows |= rows

    def remove(self, id_: int) -> None:
        with self._lock:
            self._write([], [(id_,)])
            self._rows.pop(id_, None)

    def lose(self) -> None:
        """Another query takes the view's place."""
        self._query += 1
        self._batches = 0
        rows, self._rows = self._rows, {}
        self._write([{"id": id_, "v": text} for id_, text in rows.items()], [], on_new_query="replace")
        self._rows = rows


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[ViewStand]:
    made = ViewStand(tmp_path / "views.db")
    yield made
    made.stop()


class TestView(ChangesContract):
    """A view hands out whole batches, several as one to who is slow: what is told is its rows, not each write."""

    tells_creates = False
    many = 300

    def test_changes_come_in_order_from_where_it_was_opened(self, stand: ViewStand) -> None:  # type: ignore[override]
        stand.put({1: "before"})
        with changes(stand.url) as stream:
            stand.put({2: "a", 3: "b"})
            first = read(stream, 2)
            stand.put({2: "c"})
            second = read(stream, 1)
            stand.remove(3)
            third = read(stream, 1)
        assert ids(first) == [2, 3]
        assert [(change.op, change.after) for change in (*second, *third)] == [("u", {"id": 2, "v": "c"}), ("d", None)]
        assert third[0].key == {"id": 3}

    def test_a_token_of_each_change_goes_on_right_behind_it(self, stand: ViewStand) -> None:  # type: ignore[override]
        with changes(stand.url) as stream:
            stand.put({id_: f"v{id_}" for id_ in range(4)})
            found = read(stream, 4)
            stand.put({0: "again"})
            found += read(stream, 1)
            tokens = [change.position for change in found]
        stand.put({9: "while away", 2: "other"})
        told = [[1, 2, 3, 0, 9], [2, 3, 0, 9], [2, 3, 0, 9], [0, 2, 9], [2, 9]]
        for number, token in enumerate(tokens):
            with changes(stand.url, resume=token) as stream:
                assert sorted(ids(rest(stream))) == sorted(told[number]), number

    def test_changes_are_chosen(self, stand: ViewStand) -> None:  # type: ignore[override]
        with changes(f"{stand.url}?id.ge=2", columns=("v",), operations=("u",)) as stream:
            stand.put({1: "a"})
            stand.put({2: "b", 3: "c"})
            found = read(stream, 2)
        assert ids(found) == [2, 3]
        assert found[0].after == {"v": "b"}

    def test_two_readers_see_the_same(self, stand: ViewStand) -> None:  # type: ignore[override]
        with changes(stand.url, snapshot=True) as one, changes(stand.url) as other:
            for number in range(20):
                stand.put({number % 5: str(number)})
            stand.remove(4)
            for stream in (one, other):
                replica = Replica()
                for change in rest(stream, 2.0):
                    replica.take(change)
                assert replica.rows == {id_: str(15 + id_) for id_ in range(4)}

    def resumed(self, count: int) -> Iterable[int]:
        return range(count)


def test_a_state_that_was_not_read_to_its_end_comes_again_behind_a_truncate(stand: ViewStand) -> None:
    stand.put(dict.fromkeys(range(20), "x"))
    with changes(stand.url, snapshot=True) as stream:
        token = read(stream, 3)[-1].position
    stand.remove(0)
    with changes(stand.url, resume=token) as stream:
        found = rest(stream)
    assert [change.op for change in found] == ["t"] + ["r"] * 19


def test_a_server_that_restarts_is_waited_for(stand: ViewStand) -> None:
    with changes(stand.url) as stream:
        stand.put({1: "a"})
        assert ids(read(stream, 1)) == [1]
        stand.stop()
        stand.put({2: "b"})
        stand.start()
        assert ids(read(stream, 1)) == [2]


def test_mistakes_are_refused(stand: ViewStand) -> None:
    with pytest.raises(SourceRefused, match=r"there is no view 'nothing' \(there is rows\)"):
        changes(stand.url.replace("/rows", "/nothing")).open()
    for url in ("http://127.0.0.1:1/", "http://127.0.0.1:1/views/", "http://user:secret@127.0.0.1:1/rows"):
        with pytest.raises(InvalidConnectSetting) as refused:
            changes(url)
        assert "secret" not in str(refused.value)
    with pytest.raises(SourceUnavailable, match="does not answer"):
        changes(f"http://127.0.0.1:{free_port()}/views/rows").open()
    with pytest.raises(InvalidConnectSetting, match="a view is one table"):
        changes(stand.url, ["rows"])
