"""What is special about single stores: tables that were there before, expiry, invalidation, HTTP answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import redis as redis_driver

from headrace import Broker
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import Runner, connector
from headrace.connect.sync.settings import SyncSettings
from headrace.stores.delta.derived import delta
from headrace.stores.derived import Place
from headrace.stores.errors import RowRefused, SinkRefused, SinkUnavailable
from headrace.stores.mariadb.derived import mariadb
from headrace.stores.opensearch.derived import opensearch
from headrace.stores.postgres.derived import postgres
from headrace.stores.redis.derived import redis
from headrace.stores.tantivy.derived import search, tantivy
from headrace.testing.contracts.sink import TOPIC, batch, change, opened
from tests.integration.sync_topics import delete, make_topic, upsert, write
from tests.integration.table_sink_stores import PostgresServer
from tests.servers.index_server import IndexServer
from tests.servers.mariadb import DATABASE, PASSWORD, USER, MariadbServer
from tests.servers.redis import RedisServer

ROW = {
    "price": "12.50", "at": "2024-05-01T12:00:00+02:00", "day": 19_000, "local": 1_500_000_001_500_000, "data": "AAEC",
    "doc": '{"b": 1, "a": [1, 2]}', "tags": ["x", "y, z", None], "ref": "0e37df36-f698-11e6-8dd4-cb9ced3df976",
    "span": "[1,5)", "yes": True, "large": 1.5,
}  # fmt: skip


# --- tables that were there before


@pytest.mark.parametrize("rows", [2, 50])  # few are inserted, many are copied
def test_a_postgres_table_with_types_of_its_own(postgres_server: PostgresServer, rows: int) -> None:
    table = f"typed{rows}"
    with psycopg.connect(postgres_server.url, autocommit=True) as db:
        db.execute(
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, price numeric(10,2), at timestamptz, day date, "
            "local timestamp, data bytea, doc jsonb, tags text[], ref uuid, span int4range, yes boolean, large real, "
            "twice bigint GENERATED ALWAYS AS (id * 2) STORED, note text DEFAULT 'own')"
        )
        sink = postgres("typed", TOPIC, postgres_server.url, table)
        with opened(sink):
            sink.apply(batch(*(change(key, ROW, key) for key in range(rows)), up_to=rows))
            sink.apply(batch(change(0, {**ROW, "price": "3"}, rows), change(1, None, rows + 1), up_to=rows + 2))
        db.execute("SET timezone = 'UTC'")
        found = db.execute(
            "SELECT price::text, at::text, day::text, local::text, data, doc, tags, ref::text, span::text, yes, large, "
            f"twice, note FROM {table} WHERE id = 0"
        ).fetchone()
        assert found == (
            "3.00", "2024-05-01 10:00:00+00", "2022-01-08", "2017-07-14 02:40:01.5", b"\x00\x01\x02",
            {"a": [1, 2], "b": 1}, ["x", "y, z", None], ROW["ref"], "[1,5)", True, 1.5, 0, "own",
        )  # fmt: skip
        assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows - 1,)
    (stored,) = sink.look_up([{"id": 0}])
    expected = sink.comparable({"id": 0}, {"id": 0, **ROW, "price": "3"}).values
    assert {name: stored.values[name] for name in expected} == expected


def test_a_postgres_row_that_does_not_fit(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as db:
        db.execute("CREATE TABLE narrow (id bigint PRIMARY KEY, t varchar(3))")
    sink = postgres("narrow", TOPIC, postgres_server.url, "narrow")
    with opened(sink):
        sink.apply(batch(change(1, {"t": "abc"}, 0), up_to=1))
        with pytest.raises(RowRefused, match="too long"):
            sink.apply(batch(change(2, {"t": "x"}, 1), change(3, {"t": "abcd"}, 2), up_to=3))
        assert sink.place() == Place(TOPIC, {0: 1})
        assert sink.look_up([{"id": 2}]) == []
        sink.apply(batch(change(2, {"t": "x"}, 1), up_to=3))
    assert sink.place() == Place(TOPIC, {0: 3})


def test_what_a_person_must_mend_is_said_in_a_sentence(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as db:
        db.execute("CREATE TABLE keyless (id bigint, n bigint)")
    sink = postgres("keyless", TOPIC, postgres_server.url, "keyless")
    with opened(sink), pytest.raises(SinkRefused, match="ADD PRIMARY KEY"):
        sink.apply(batch(change(1, {"n": 1}, 0), up_to=1))
    strict = postgres("strict", TOPIC, postgres_server.url, "narrow2", new_columns="refuse")
    with opened(strict):
        strict.apply(batch(change(1, {"n": 1}, 0), up_to=1))
        with pytest.raises(SinkRefused, match="has no column 'more'"):
            strict.apply(batch(change(1, {"n": 1, "more": 2}, 1), up_to=2))


def test_a_postgres_that_is_not_there() -> None:
    sink = postgres("away", TOPIC, "postgresql://u:secret@127.0.0.1:1/d", "t")
    with pytest.raises(SinkUnavailable) as caught:
        sink.open()
    assert "secret" not in str(caught.value)


def test_a_mariadb_table_with_types_of_its_own() -> None:
    server = MariadbServer()
    try:
        connection = pymysql.connect(
            host="127.0.0.1", port=server.port, user=USER, password=PASSWORD, database=DATABASE, autocommit=True
        )
        with connection as db, db.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(
                "CREATE TABLE typed (id bigint PRIMARY KEY, price decimal(10,2), at timestamp(6) NULL, day date, "
                "local datetime(6), data blob, doc json, tags text, ref varchar(36), span text, yes boolean, "
                "large float)"
            )
            sink = mariadb("typed", TOPIC, server.url, "typed")
            with opened(sink):
                sink.apply(batch(change(1, ROW, 0), change(2, ROW, 1), up_to=2))
                with pytest.raises(RowRefused, match="price"):
                    sink.apply(batch(change(3, {**ROW, "price": "123456789012"}, 2), up_to=3))
            cursor.execute("SELECT price, at, day, local, data, doc, yes, large FROM typed WHERE id = 1")
            price, at, day, local, data, doc, yes, large = cursor.fetchone()
            assert (str(price), str(at), str(day), str(local)) == (
                "12.50", "2024-05-01 10:00:00", "2022-01-08", "2017-07-14 02:40:01.500000",
            )  # fmt: skip
            assert (data, json.loads(doc), yes, large) == (b"\x00\x01\x02", {"a": [1, 2], "b": 1}, 1, 1.5)
        (stored,) = sink.look_up([{"id": 2}])
        expected = sink.comparable({"id": 2}, {"id": 2, **ROW}).values
        assert {name: stored.values[name] for name in expected} == expected
        server.kill()
        with pytest.raises(SinkUnavailable):
            sink.open()
    finally:
        server.end()


# --- Redis


def test_rows_expire_and_are_not_brought_back_in_part(redis_server: RedisServer) -> None:
    sink = redis("expiring", TOPIC, redis_server.url, "expiring:", ttl_s=100)
    client = redis_driver.Redis.from_url(redis_server.url, decode_responses=True)
    with opened(sink):
        sink.apply(batch(change(1, {"n": 1}, 0), change(2, {"n": 2}, 1), up_to=2))
        assert 90 < client.ttl("expiring:1") <= 100
        client.delete("expiring:2")
        sink.apply(batch(*(change(key, {"n": 5}, 2 + key, partial=True) for key in (1, 2)), up_to=5))
    assert client.hgetall("expiring:1") == {"id": "1", "n": "5"}
    assert not client.exists("expiring:2")
    assert sink.forgets
    client.close()


def test_invalidation_removes_what_changed(redis_server: RedisServer) -> None:
    sink = redis("dropping", TOPIC, redis_server.url, "dropping:", mode="invalidate")
    client = redis_driver.Redis.from_url(redis_server.url)
    for key in (1, 2, 3):
        client.set(f"dropping:{key}", "as the application cached it")
    with opened(sink):
        sink.apply(batch(change(1, {"n": 1}, 0), change(2, None, 1), up_to=2))
    assert [key for key in (1, 2, 3) if client.exists(f"dropping:{key}")] == [3]
    with pytest.raises(SinkRefused, match="nothing to compare"):
        list(sink.scan())
    client.close()


def test_a_redis_that_lost_everything_is_filled_from_the_beginning(redis_server: RedisServer) -> None:
    sink = redis("lost", TOPIC, redis_server.url, "lost:")
    with opened(sink):
        sink.apply(batch(change(1, {"n": 1}, 0), up_to=1))
        with redis_driver.Redis.from_url(redis_server.url) as client:
            client.delete("headrace:sync:lost")
        with pytest.raises(SinkUnavailable, match="filled from the beginning"):
            sink.apply(batch(change(2, {"n": 2}, 1), up_to=2))
    with opened(sink) as place:
        assert place is None


# --- search, warehouse


def test_a_row_can_be_searched_for(tmp_path: Path) -> None:
    sink = tantivy("books", TOPIC, tmp_path / "index", text_fields=["title"])
    with opened(sink):
        sink.apply(
            batch(
                change(1, {"title": "The Coffee Trader", "year": 2003, "tags": ["novel"]}, 0),
                change(2, {"title": "Tea and Empire", "year": 2019, "tags": ["history"]}, 1),
                up_to=2,
            )
        )
        assert [row["id"] for row in search(tmp_path / "index", "coffee")] == [1]
        assert [row["id"] for row in search(tmp_path / "index", "row.year:2019 AND row.tags:history")] == [2]
        sink.apply(batch(change(1, {"title": "Cocoa"}, 2), up_to=3))
        assert search(tmp_path / "index", "coffee") == []


def test_opensearch_answers(tmp_path: Path) -> None:
    server = IndexServer()
    try:
        sink = opensearch("answers", TOPIC, server.url, "answers")
        with opened(sink):
            sink.apply(batch(change(1, {"t": "good"}, 0), up_to=1))
            server.statuses[:] = [503]
            with pytest.raises(SinkUnavailable, match="status 503"):
                sink.apply(batch(change(1, {"t": "later"}, 1), up_to=2))
            server.refused_values.add("bad")
            with pytest.raises(RowRefused, match="failed to parse") as caught:
                sink.apply(batch(change(2, {"t": "fine"}, 1), change(3, {"t": "bad"}, 2), up_to=3))
            assert caught.value.offset == 2
            # The topic grows: a key may go on in another partition, at a lower offset.
            sink.apply(batch(change(1, {"t": "at 50"}, 50), up_to=51))
            moved = change(1, {"t": "moved"}, 3)._replace(partition=1)
            grown = batch(moved, up_to=51)
            sink.apply(type(grown)(grown.changes, Place(TOPIC, {0: 51, 1: 4})))
        assert [row.values["t"] for row in sink.look_up([{"id": 1}])] == ["moved"]
    finally:
        server.end()


def test_types_that_a_user_names_for_delta(tmp_path: Path) -> None:
    import deltalake

    sink = delta("typed", TOPIC, tmp_path / "rows", types={"price": "decimal(10,2)", "at": "instant", "day": "date"})
    with opened(sink):
        sink.apply(batch(change(1, {"price": "12.50", "at": "2024-05-01T12:00:00Z", "day": 19_000}, 0), up_to=1))
        with pytest.raises(RowRefused, match="column 'price'"):
            sink.apply(batch(change(2, {"price": "cheap"}, 1), up_to=2))
    found = deltalake.DeltaTable(str((tmp_path / "rows").resolve())).to_pyarrow_table().to_pylist()
    assert (str(found[0]["price"]), found[0]["at"].isoformat(), str(found[0]["day"])) == (
        "12.50", "2024-05-01T12:00:00+00:00", "2022-01-08",
    )  # fmt: skip


# --- webhook


class Receiver:
    """Remembers what it was told, and answers as the test wishes."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[int, list[int]] = {}  # by the key's id, used up one by one
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    answers = outer.answers.get(body.get("key", {}).get("id"), [])
                    status = answers.pop(0) if answers else 200
                    if status == 200:
                        outer.told.append((self.headers["Idempotency-Key"], body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook?token=secret"

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_webhook_hears_every_change_in_the_order_of_its_key(tmp_path: Path) -> None:
    receiver = Receiver()
    try:
        with Broker(tmp_path / "broker") as broker:
            make_topic(broker.bootstrap_servers, "events")
            changes = [upsert(key, {"n": turn}) for turn in range(3) for key in range(20)]
            write(broker.bootstrap_servers, "events", [*changes, *delete(4), upsert(99, {"n": 0})])
            receiver.answers = {5: [503, 500], 99: [422] * 10}
            settings = SyncSettings("hook", "events", "webhook", {"url": receiver.url}, first_pause_s=0.02)
            runner = Runner(
                settings,
                make_sink(settings, broker.bootstrap_servers),
                connector(broker.bootstrap_servers, settings.name),
            )
            failures = []
            for _ in range(3):
                try:
                    runner.catch_up()
                except SinkUnavailable as error:
                    failures.append(str(error))
            assert failures
            assert not any("secret" in text for text in failures)
            assert runner.catch_up().offsets  # nothing is left to tell
            receiver.answers = {key: [422] * 100 for key in range(100, 120)}
            rows = ((100 + key, key) for key in range(20))
            write(broker.bootstrap_servers, "events", [upsert(key, {"n": 3}) for pair in rows for key in pair])
            runner.catch_up()
    finally:
        receiver.end()
    by_key: dict[int, list[Any]] = {}
    for _, told in receiver.told:
        by_key.setdefault(told["key"]["id"], []).append(told["row"] and told["row"]["n"])
    assert by_key == {key: [0, 1, 2, *([None] if key == 4 else []), 3] for key in range(20)}
    assert len({key for key, _ in receiver.told}) == len(receiver.told) == 81
