"""Random schedules of work and of readers that come and go, against a plain model: a list of what was done."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.connect.changes import changes
from headrace.testing.contracts.changes import ids, read, rest
from tests.integration.cdc_postgres_server import VERSIONS, CdcPostgres
from tests.integration.changes.test_mysql import MysqlStand
from tests.integration.changes.test_postgres import PostgresStand
from tests.integration.changes.test_sqlite import SqliteStand
from tests.servers.mysql import binlog_server

# A step: rows put in one transaction, a row removed, a reader that reads so many and goes away, the shape altered.
PUT = st.tuples(st.just("put"), st.dictionaries(st.integers(0, 8), st.text("ab€", max_size=3), min_size=1, max_size=6))
STEPS = st.lists(
    st.one_of(
        PUT,
        st.tuples(st.just("remove"), st.integers(0, 8)),
        st.tuples(st.just("read"), st.integers(0, 7)),
        st.tuples(st.just("alter"), st.just(0)),
    ),
    min_size=1,
    max_size=14,
)


class Model:
    """What a reader of all changes has to see: operation, key and the row's text, in order."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}
        self.told: list[tuple[str, int, str | None]] = []

    def put(self, rows: dict[int, str]) -> None:
        for id_, text in rows.items():
            if self.rows.get(id_) != text:
                self.told.append(("u" if id_ in self.rows else "c", id_, text))
            self.rows[id_] = text

    def remove(self, id_: int) -> None:
        if self.rows.pop(id_, None) is not None:
            self.told.append(("d", id_, None))


def run(stand: Any, steps: list[tuple[str, Any]]) -> None:
    """Readers share one place: each goes on where the one before was, at whichever change that is."""
    model, columns = Model(), 0
    seen: list[tuple[str, int, str | None]] = []
    with changes(stand.url, stand.tables, acknowledge=False, **stand.settings) as stream:
        token = stream.position

    def take(count: int) -> None:
        nonlocal token
        with changes(stand.url, stand.tables, resume=token, acknowledge=False, **stand.settings) as stream:
            found = read(stream, min(count, len(model.told) - len(seen)))
            if len(seen) + len(found) == len(model.told):
                assert rest(stream, 0.1) == []
        seen.extend((one.op, ids([one])[0], None if one.after is None else one.after["v"]) for one in found)
        token = found[-1].position if found else token

    for what, value in steps:
        if what == "put":
            # What changes nothing is no change to some, and one to others.
            value = {id_: text for id_, text in value.items() if model.rows.get(id_) != text}
            if value:
                model.put(value)
                stand.put(value)
        elif what == "remove":
            model.remove(value)
            stand.remove(value)
        elif what == "read":
            take(value)
        elif columns < 3 and stand.can_alter:
            columns += 1
            stand.alter(f"ALTER TABLE t ADD COLUMN w{columns} INT")
    take(len(model.told))
    assert seen == model.told


class _Postgres(PostgresStand):
    can_alter = False  # what was altered while nobody read may be read again, to be sure

    def put(self, rows: dict[int, str]) -> None:
        with self.db.transaction(), self.db.cursor() as cursor:
            for row in rows.items():
                statement = "insert into t (id, v) values (%s, %s) on conflict (id) do update set v = excluded.v"
                cursor.execute(statement, row)

    def anew(self) -> None:
        self.free()
        self.db.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        self.db.execute("drop table t")
        self.db.execute("create table t (id int primary key, v text)")


class _Mysql(MysqlStand):
    can_alter = True

    def put(self, rows: dict[int, str]) -> None:
        self.db.execute("BEGIN")
        for row in rows.items():
            self.db.execute("INSERT INTO t (id, v) VALUES (%s, %s) ON DUPLICATE KEY UPDATE v = VALUES(v)", row)
        self.db.execute("COMMIT")

    def alter(self, statement: str) -> None:
        self.db.execute(statement)

    def anew(self) -> None:
        self.db.execute("DROP TABLE t")
        self.db.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")


class _Sqlite(SqliteStand):
    can_alter = False  # what is written before a new column is noticed comes as an update behind

    def anew(self) -> None: ...


@pytest.fixture(scope="module")
def postgres() -> Iterator[_Postgres]:
    server = CdcPostgres(VERSIONS[-1])
    stand = _Postgres(server)
    yield stand
    with contextlib.suppress(Exception):
        stand.end()
    server.end()


@pytest.fixture(scope="module")
def mysql() -> Iterator[_Mysql]:
    server = binlog_server()
    yield _Mysql(server)
    server.end()


SOME = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


@SOME
@given(STEPS)
def test_sqlite(steps: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        run(_Sqlite(Path(folder) / "t.db"), steps)


@SOME
@given(steps=STEPS)
def test_mysql(mysql: _Mysql, steps: list[tuple[str, Any]]) -> None:
    mysql.anew()
    run(mysql, steps)


@SOME
@given(steps=STEPS)
def test_postgres(postgres: _Postgres, steps: list[tuple[str, Any]]) -> None:
    postgres.anew()
    run(postgres, steps)
