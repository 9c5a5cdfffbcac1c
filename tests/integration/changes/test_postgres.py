"""`headrace.changes` of PostgreSQL."""

from collections.abc import Iterator
from typing import Any

import psycopg
import psycopg.rows
import pytest

from headrace.connect.changes import BadToken, PositionLost, RowChange, changes
from headrace.connect.changes.token import Base, Token
from headrace.connect.errors import SourceRefused
from headrace.testing.contracts.changes import ChangesContract, ids, read, rest
from tests.integration.cdc_postgres_server import VERSIONS, CdcPostgres
from tests.integration.waiting import wait_until


class PostgresStand:
    def __init__(self, server: CdcPostgres) -> None:
        self.server = server
        self.url = server.url
        self.tables = ["t"]
        self.settings: dict[str, Any] = {"slot": "mine"}
        self.db = psycopg.connect(server.url, autocommit=True)
        self.db.execute("create table t (id int primary key, v text)")
        self.db.execute("alter table t replica identity full")

    def put(self, rows: dict[int, str]) -> None:
        with psycopg.connect(self.url) as db, db.cursor() as cursor:
            cursor.executemany(
                "insert into t values (%s, %s) on conflict (id) do update set v = excluded.v", list(rows.items())
            )

    def remove(self, id_: int) -> None:
        self.db.execute("delete from t where id = %s", [id_])

    def free(self) -> None:
        wait_until(
            lambda: self.db.execute("select count(*) from pg_replication_slots where active").fetchone() == (0,),
            "a slot stays in use",
        )

    def lose(self) -> None:
        self.free()
        self.db.execute("select pg_drop_replication_slot('mine')")

    def end(self) -> None:
        self.free()
        self.db.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        for (name,) in self.db.execute("select pubname from pg_publication").fetchall():
            self.db.execute(f'drop publication "{name}"')
        self.db.execute("drop schema public cascade")
        self.db.execute("create schema public")
        self.db.close()


@pytest.fixture(scope="module")
def server() -> Iterator[CdcPostgres]:
    made = CdcPostgres(VERSIONS[-1])
    yield made
    made.end()


@pytest.fixture
def stand(server: CdcPostgres) -> Iterator[PostgresStand]:
    made = PostgresStand(server)
    yield made
    made.end()


class TestPostgres(ChangesContract):
    pass


def test_a_slot_that_went_on_without_the_token_is_refused(stand: PostgresStand) -> None:
    with changes(stand.url, ["t"], slot="mine") as stream:
        stand.put({1: "a"})
        first = read(stream, 1)[0].position
        stand.put({2: "b"})
        assert ids(rest(stream)) == [2]
    with changes(stand.url, ["t"], slot="mine") as stream:  # without the token: what it reads is forgotten
        assert stream.next(0.5) is None or True
        stand.put({3: "c"})
        rest(stream)
    with pytest.raises(PositionLost, match="another reader used it"):
        changes(stand.url, ["t"], slot="mine", resume=first).open()
    with pytest.raises(BadToken, match="of slot mine"):
        changes(stand.url, ["t"], slot="other", resume=first)


def test_the_log_is_kept_until_it_is_acknowledged(stand: PostgresStand) -> None:
    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        stand.put({1: "a"})
        stand.put({2: "b"})
        found = read(stream, 2)
        token = found[0].position
        rest(stream)
    with changes(stand.url, ["t"], slot="mine", acknowledge=False, resume=token) as stream:
        found = read(stream, 1)
        assert ids(found) == [2]
        stream.acknowledge(found[0].position)
        assert stream.next(0.5) is None
    stand.put({3: "c"})
    with changes(stand.url, ["t"], slot="mine") as stream:
        assert ids(rest(stream))[-1] == 3


def test_a_server_that_restarts_is_waited_for(stand: PostgresStand) -> None:
    with changes(stand.url, ["t"], slot="mine") as stream:
        stand.put({1: "a"})
        assert ids(read(stream, 1)) == [1]
        stand.db.close()
        stand.server.restart("immediate")
        stand.db = psycopg.connect(stand.url, autocommit=True)
        stand.put({2: "b"})
        assert ids(read(stream, 1)) == [2]


def test_a_table_that_is_altered_while_it_is_read_and_while_it_is_not_comes_out_right(stand: PostgresStand) -> None:
    replica: dict[int, dict[str, Any]] = {}

    def take(found: list[RowChange]) -> None:
        for change in found:
            if change.op == "t":
                replica.clear()
            elif change.key is not None:
                replica.pop(change.key["id"], None)
                if change.after is not None:
                    replica[change.key["id"]] = change.after

    def is_right() -> bool:
        with psycopg.connect(stand.url, row_factory=psycopg.rows.dict_row) as db:
            return replica == {row["id"]: row for row in db.execute("select * from t").fetchall()}

    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        stand.put({1: "a", 2: "b"})
        token = read(stream, 1)[0].position
        stand.db.execute("alter table t add column w int default 7")
        stand.db.execute("insert into t values (3, 'c', 8)")
        while not is_right():
            take(rest(stream, 0.3))
    replica.clear()
    stand.db.execute("alter table t drop column v, add column x text")
    stand.db.execute("insert into t values (4, 9, 'x')")
    stand.db.execute("delete from t where id = 2")
    with changes(stand.url, ["t"], slot="mine", resume=token) as stream:
        replica[1] = {"id": 1, "v": "a"}
        while not is_right():
            take(rest(stream, 0.3))


def test_a_slot_of_somebody_else_is_not_dropped_for_a_snapshot(stand: PostgresStand) -> None:
    stand.db.execute("select pg_create_physical_replication_slot('mine')")
    with pytest.raises(SourceRefused, match="a physical one"):
        changes(stand.url, ["t"], slot="mine", snapshot=True).open()
    assert stand.db.execute("select slot_type from pg_replication_slots").fetchall() == [("physical",)]


@pytest.mark.parametrize("count", [1, 2, 500])
def test_a_table_without_a_key_is_read_again_whole(stand: PostgresStand, count: int) -> None:
    stand.db.execute("create table bag (v int)")
    stand.db.execute("insert into bag select generate_series(1, 600)")
    with changes(stand.url, ["bag"], slot="mine", snapshot=True) as stream:
        token = read(stream, count)[-1].position
    for _ in range(2):
        with changes(stand.url, ["bag"], slot="mine", resume=token) as stream:
            found = rest(stream, 2.0)
            token = found[min(count, 300)].position
        assert [change.op for change in found] == ["t", *["r"] * 600]


def test_a_stream_without_a_slot_leaves_no_publication_that_refuses_updates(stand: PostgresStand) -> None:
    stand.db.execute("create table log (what text)")
    for tables in (["log"], []):
        with changes(stand.url, tables) as stream:
            with changes(stand.url, tables) as other:
                stand.db.execute("insert into log values ('a')")
                assert read(other, 1)[0].after == {"what": "a"}
            # What the other one needed no more, this one still does.
            stand.db.execute("insert into log values ('b')")
            assert [change.after for change in read(stream, 2)] == [{"what": "a"}, {"what": "b"}]
        stand.db.execute("update log set what = 'c'")
        assert stand.db.execute("select pubname from pg_publication").fetchall() == []


def test_a_publication_may_be_named_and_stays(stand: PostgresStand) -> None:
    for slot in (None, "mine"):
        with changes(stand.url, ["t"], slot=slot, publication="by_hand") as stream:
            stand.put({1: str(slot)})
            assert read(stream, 1)[0].after == {"id": 1, "v": str(slot)}
        assert stand.db.execute("select pubname from pg_publication").fetchall() == [("by_hand",)]


def test_a_log_that_ends_before_the_token_is_noticed(stand: PostgresStand) -> None:
    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        stand.put({1: "a"})
        read(stream, 1)
        stand.put({2: "b"})
        token = Token.parsed(read(stream, 1)[0].position)
    stand.free()
    # As it looks once a copy of the server's disk was put back.
    later = Token(Base(token.base.of, {**token.base.position, "lsn": "7F/0"}), token.tail).as_text()
    with pytest.raises(PositionLost, match="log ends before"):
        changes(stand.url, ["t"], slot="mine", resume=later).open()


@pytest.mark.parametrize("slot", [None, "mine"])
def test_a_reader_that_takes_nothing_more_keeps_no_more_log_than_it_may(
    stand: PostgresStand, slot: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.connect.changes.stream._KEEP_ALIVE_S", 0.1)
    with changes(stand.url, ["t"], slot=slot, lag_cap_bytes=500_000, heartbeat_s=0.1) as stream:
        stand.put({1: "a"})
        read(stream, 1)
        for number in range(2, 6):
            stand.put({number: "a"})  # read ahead, and then waited with

        def is_dropped() -> bool:
            stand.put({1: "x" * 100_000})
            return stand.db.execute("select slot_name from pg_replication_slots").fetchall() == []

        wait_until(is_dropped, "the slot stays, and with it the log")
        with pytest.raises(SourceRefused, match="more than lag_cap_bytes"):
            rest(stream)
