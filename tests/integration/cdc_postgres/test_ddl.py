"""DDL in every form, while a capture runs and while it is stopped: the topic folded by key equals the table.

Or the capture of that table stopped, and says why. Every case has a table of its own, so one capture goes through all.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from headrace.connect.change import Change
from headrace.connect.postgres.connection import connect
from headrace.connect.table import UNCHANGED
from tests.integration.cdc_postgres.reading import Reading, reading
from tests.integration.cdc_postgres_server import CdcPostgres
from tests.integration.cdc_postgres_topics import wait_for

PLAIN = (
    "create table {t} (id int primary key, v varchar(20) not null, n int)",
    "insert into {t} select i, 'v' || i, i from generate_series(1, 9) i",
)
PARTED = (
    "create table {t} (id int, day int, v text, primary key (id, day)) partition by range (day)",
    "create table {t}_p1 partition of {t} for values from (0) to (10)",
    "create table {t}_p2 partition of {t} for values from (10) to (20)",
    "insert into {t} select i, i, 'v' || i from generate_series(1, 19) i",
)
WRITES = ("insert into {t} (id, v) values (100, 'after')", "delete from {t} where id = 2")
PARTED_WRITES = ("insert into {t} values (100, 5, 'after')", "delete from {t} where id = 2")
NEW_PART = "create table {t}_new (id int, day int, v text, primary key (id, day))"
ATTACH = "alter table {t} attach partition {t}_new for values from (20) to (30)"


class Case(NamedTuple):
    """What is made, what happens to it, and what is written afterwards; `is_seen` if the log tells it all."""

    name: str
    ddl: tuple[str, ...]
    after: tuple[str, ...] = WRITES
    made: tuple[str, ...] = PLAIN
    is_seen: bool = False


CASES = [
    Case("add_column", ("alter table {t} add c text",), is_seen=True),
    Case("add_default", ("alter table {t} add c text default 'x'",)),
    Case("add_volatile", ("alter table {t} add c uuid default gen_random_uuid()",)),
    Case("add_serial", ("alter table {t} add c serial",)),
    Case("add_generated", ("alter table {t} add c int generated always as (n * 2) stored",), is_seen=True),
    Case("drop_column", ("alter table {t} drop n",), is_seen=True),
    Case("drop_add_column", ("alter table {t} drop n", "alter table {t} add n int default 7")),
    Case("rename_column", ("alter table {t} rename n to m",)),
    Case("type_using", ("alter table {t} alter n type int using n * 100",)),
    Case("type_changed", ("alter table {t} alter n type text",)),
    Case("type_widened", (
        "alter table {t} alter v type varchar(40)", "alter table {t} alter v type text",
    ), is_seen=True),
    Case("constraints", (
        "alter table {t} alter n set default 5", "create index on {t} (n)", "alter table {t} alter n set statistics 50",
        "alter table {t} add check (id > 0)", "analyze {t}", "grant select on {t} to public",
    ), is_seen=True),
    Case("vacuum_full", ("vacuum full {t}",), is_seen=True),
    Case("cluster", ("cluster {t} using {t}_pkey",), is_seen=True),
    Case("truncate", ("truncate {t}",), is_seen=True),
    Case("truncate_insert", (
        "truncate {t} restart identity cascade", "insert into {t} values (50, 'x', 1)",
    ), is_seen=True),
    Case("dropped", ("drop table {t}",), ()),
    Case("recreated", ("drop table {t}", *PLAIN, "update {t} set n = 77")),
    Case("recreated_at_once", ("drop table {t}; create table {t} (id int primary key, v varchar(20), n int)",)),
    Case("recreated_otherwise", (
        "drop table {t}", "create table {t} (id bigint primary key, v text, more numeric)",
        "insert into {t} values (3, 'x', 1)",
    )),
    Case("renamed", ("alter table {t} rename to {t}_moved",), ("delete from {t}_moved where id = 3",)),
    Case("swapped", (
        "create table {t}_next (like {t} including all)", "insert into {t}_next select id + 5, 'new', n from {t}",
        "begin; alter table {t} rename to {t}_old; alter table {t}_next rename to {t}; commit",
    )),
    Case("swapped_and_dropped", (
        "create table {t}_next (like {t} including all)", "insert into {t}_next select id + 5, 'new', n from {t}",
        "drop table {t}", "alter table {t}_next rename to {t}",
    )),
    Case("moved_schema", (
        "create schema {t}", "alter table {t} set schema {t}",
    ), ("delete from {t}.{t} where id = 2",)),
    Case("moved_and_back", (
        "alter table {t} rename to {t}_away", "delete from {t}_away", "alter table {t}_away rename to {t}",
    )),
    Case("moved_and_back_at_once", (
        ("begin; alter table {t} rename to {t}_away; update {t}_away set n = 0 where id = 4; "
        "alter table {t}_away rename to {t}; commit"),
    )),
    Case("lent_its_name", (
        ("begin; alter table {t} rename to {t}_away; alter table {t}_other rename to {t}; "
        "insert into {t} values (500, 'of the other', 1); "
        "alter table {t} rename to {t}_other; alter table {t}_away rename to {t}; commit"),
    ), (), (*PLAIN, "create table {t}_other (like {t} including all)")),
    Case("drop_add_empty_column", ("alter table {t} drop n; alter table {t} add n int",)),
    Case("rename_column_and_back", (
        "begin; alter table {t} rename n to m; update {t} set m = 5 where m = 4; alter table {t} rename m to n; commit",
    )),
    Case("key_changed_and_back", (
        ("begin; alter table {t} drop constraint {t}_pkey; alter table {t} add primary key (v); "
        "delete from {t} where id = 5; "
        "alter table {t} drop constraint {t}_pkey; alter table {t} add primary key (id); commit"),
    )),
    Case("key_changed", ("alter table {t} drop constraint {t}_pkey", "alter table {t} add primary key (v)")),
    Case("identity_full", ("alter table {t} replica identity full",), is_seen=True),
    Case("identity_index", (
        "create unique index {t}_by_v on {t} (v)", "alter table {t} replica identity using index {t}_by_v",
    )),
    Case("unpublished", (
        "alter publication s drop table {t}", "update {t} set n = 0", "alter publication s add table {t}",
    )),
    Case("part_made", (
        "create table {t}_new partition of {t} for values from (20) to (30)", "insert into {t} values (25, 25, 'x')",
    ), PARTED_WRITES, PARTED, is_seen=True),
    Case("attached", (
        NEW_PART, "insert into {t}_new values (21, 21, 'x'), (22, 22, 'y')", ATTACH,
    ), PARTED_WRITES, PARTED, is_seen=True),
    Case("attached_at_once", (
        f"begin; {NEW_PART}; insert into {{t}}_new values (21, 21, 'x'); {ATTACH}; commit",
    ), PARTED_WRITES, PARTED, is_seen=True),
    Case("detached", ("alter table {t} detach partition {t}_p2",), PARTED_WRITES, PARTED),
    Case("detached_and_back", (
        "alter table {t} detach partition {t}_p2", "update {t}_p2 set v = 'beside'",
        "alter table {t} attach partition {t}_p2 for values from (10) to (20)",
    ), PARTED_WRITES, PARTED),
    Case("part_dropped", ("drop table {t}_p2",), PARTED_WRITES, PARTED),
    Case("part_truncated", ("truncate {t}_p2",), PARTED_WRITES, PARTED),
    Case("parted_truncated", (
        "truncate {t}", "insert into {t} values (7, 7, 'x')",
    ), PARTED_WRITES, PARTED, is_seen=True),
    Case("part_swapped", (
        "alter table {t} detach partition {t}_p2", NEW_PART, "insert into {t}_new values (11, 11, 'other')",
        "alter table {t} attach partition {t}_new for values from (10) to (20)",
    ), PARTED_WRITES, PARTED),
    Case("parted_default", ("alter table {t} add c text default 'x'",), PARTED_WRITES, PARTED),
]  # fmt: skip


class Folded:
    """The tables as a reader of the topics has them."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self.emptied: set[str] = set()
        self._taken = 0

    def take(self, found: Reading) -> None:
        for change in found.changes[self._taken :]:
            self._apply(change)
        self._taken = len(found.changes)

    def begin_again(self) -> None:
        self._taken = 0

    def _apply(self, change: Change) -> None:
        table = change.table
        rows = self.rows.setdefault(table.full_name, {})
        names = [column.name for column in table.columns]
        if change.op == "t":
            rows.clear()
            self.emptied.add(table.full_name)
            return
        old: dict[str, Any] = {}
        if change.before is not None:
            old = rows.pop(table.key_of(change.before), {})
        if change.after is not None:
            key = table.key_of(change.after)
            old = rows.get(key, old)
            rows[key] = {
                name: old.get(name) if value is UNCHANGED else value
                for name, value in zip(names, change.after, strict=True)
            }


def tables_of(database: CdcPostgres) -> dict[str, list[dict[str, Any]]]:
    """Every captured table as it is, as text."""
    with connect(database.url) as connection:
        names = connection.execute(
            "select n.nspname, c.relname, array_agg(a.attname::text) from pg_class c "
            "join pg_namespace n on n.oid = c.relnamespace "
            "join pg_attribute a on a.attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = '' "
            "where c.relkind in ('r', 'p') and not c.relispartition "
            "and n.nspname not in ('pg_catalog', 'information_schema') group by 1, 2"
        ).fetchall()
        found = {}
        for schema, name, columns in names:
            listed = ", ".join(f'"{column}"::text' for column in columns)
            execute: Any = connection.execute
            rows = execute(f'select {listed} from "{schema}"."{name}"').fetchall()
            found[f"{schema}.{name}"] = [dict(zip(columns, row, strict=True)) for row in rows]
        return found


def differing(folded: Folded, tables: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The tables whose topics hold something else; a column that a row does not have is null."""
    wrong: dict[str, Any] = {}
    for name in folded.rows.keys() | tables.keys():
        there = sorted(tables.get(name, []), key=str)
        columns = list(there[0]) if there else ["id"]
        held = sorted(
            ({column: row.get(column) for column in columns} for row in folded.rows.get(name, {}).values()), key=str
        )
        if held != there:
            wrong[name] = (held, there)
    return wrong


def follow(found: Reading, folded: Folded, database: CdcPostgres, excused: Any = lambda: set()) -> None:
    """Read until all topics are right, but for tables that are excused."""
    deadline = time.monotonic() + 90
    while True:
        for _ in range(4):
            found.step(0.1)
        folded.take(found)
        wrong = {name: it for name, it in differing(folded, tables_of(database)).items() if name not in excused()}
        if not wrong:
            return
        assert time.monotonic() < deadline, wrong


def run(database: CdcPostgres, statements: tuple[str, ...], name: str) -> None:
    database.execute(*(statement.format(t=name) for statement in statements))


def stopped_in(found: Reading) -> set[str]:
    return set(found.source.facts().get("stopped_tables", {}))


@pytest.fixture(autouse=True)
def _without_schema(database: CdcPostgres) -> Iterator[None]:
    yield
    database.execute("drop schema if exists moved_schema cascade")


@pytest.mark.parametrize("when", ["running", "stopped"])
def test_after_any_ddl_the_topic_equals_the_table(database: CdcPostgres, when: str) -> None:
    for case in CASES:
        run(database, case.made, case.name)
    folded = Folded()
    with reading(database, heartbeat_s=0.2) as found:
        follow(found, folded, database)
        folded.emptied.clear()
        if when == "running":
            for case in CASES:
                run(database, case.ddl, case.name)
            follow(found, folded, database)
    if when == "stopped":
        for case in CASES:
            run(database, case.ddl, case.name)
    with reading(database, found.position, heartbeat_s=0.2) as again:
        folded.begin_again()
        for case in CASES:
            run(database, case.after, case.name)
        follow(again, folded, database)
    needless = {case.name for case in CASES if case.is_seen and "truncate" not in case.name} & {
        name.removeprefix("public.") for name in folded.emptied
    }
    assert not needless, "what the log tells needs no second reading"
    assert not stopped_in(again)


@pytest.mark.parametrize("when", [pytest.param("running", marks=pytest.mark.long), "stopped"])
def test_or_that_table_stops_and_the_others_go_on(database: CdcPostgres, when: str) -> None:
    for case in CASES:
        run(database, case.made, case.name)
    folded = Folded()
    settings = {"heartbeat_s": 0.2, "unseen_changes": "stop"}
    with reading(database, **settings) as found:
        follow(found, folded, database)
        if when == "running":
            for case in CASES:
                run(database, case.ddl, case.name)
            follow(found, folded, database, lambda: stopped_in(found))
    if when == "stopped":
        for case in CASES:
            run(database, case.ddl, case.name)
    with reading(database, found.position, **settings) as again:
        folded.begin_again()
        for case in CASES:
            run(database, case.after, case.name)
        follow(again, folded, database, lambda: stopped_in(again))
        stopped = stopped_in(again)
        assert not stopped & {f"public.{case.name}" for case in CASES if case.is_seen}
        for sentence in again.source.facts()["stopped_tables"].values():
            assert "stopped, because" in sentence
            assert "headrace cdc snapshot" in sentence
    with reading(database, again.position, heartbeat_s=0.2) as mended:
        folded.begin_again()
        follow(mended, folded, database)
        assert not stopped_in(mended)


def test_a_look_ahead_of_the_log_waits_for_its_truncates(database: CdcPostgres) -> None:
    """The catalog is looked at before the log has told that all partitions were truncated together."""
    run(database, PARTED, "t")
    folded = Folded()
    settings = {"heartbeat_s": 0.2, "unseen_changes": "stop"}
    with reading(database, **settings) as found:
        follow(found, folded, database)
    much = "begin; insert into {t} select i, 1, 'undone' from generate_series(100, 100000) i; rollback"
    run(database, (much, "truncate {t}", "insert into {t} values (7, 7, 'x')"), "t")
    with reading(database, found.position, **settings) as again:
        folded.begin_again()
        again.step(0)  # a start looks at once, and the server is still reading its log
        follow(again, folded, database)
        for _ in range(6):
            again.step(0.1)
        assert not stopped_in(again)
        run(database, ("truncate {t}_p2",), "t")
        wait_for(lambda: again.step(0.1) is not None or bool(stopped_in(again)))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_column_that_comes_back_is_empty(database: CdcPostgres, is_restarted: bool) -> None:
    """Dropped and, much later, made again: rows that nobody wrote since still have its old values in the topic."""
    run(database, PLAIN, "back")
    folded = Folded()
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(reading(database, heartbeat_s=0.2))
        follow(found, folded, database)
        run(database, ("alter table {t} drop n", "update {t} set v = 'x' where id = 1"), "back")
        follow(found, folded, database)
        if is_restarted:
            stack.pop_all().close()
            found = stack.enter_context(reading(database, found.position, heartbeat_s=0.2))
            folded.begin_again()
        run(database, ("alter table {t} add n int", "update {t} set v = 'y' where id = 2"), "back")
        follow(found, folded, database)


def test_names_of_every_kind(database: CdcPostgres) -> None:
    names = ['Mixed"Case', "with.dot", "with space", "żółć 🦉", "per%cent", "back\\slash", "o'clock", "n" * 63]
    with psycopg.connect(database.url, autocommit=True) as connection:
        for name in names:
            quoted = '"' + name.replace('"', '""') + '"'
            execute: Any = connection.execute
            execute(f"create table {quoted} ({quoted} int primary key, v text)")
            execute(f"insert into {quoted} values (1, 'x')")
        with reading(database, publication='My "Pub" o\'clock', heartbeat_s=0.2) as found:
            found.until(len(names))
            for name in names:
                quoted = '"' + name.replace('"', '""') + '"'
                execute(f"update {quoted} set v = 'y'")
            found.until(2 * len(names))
            for name in names:
                quoted = '"' + name.replace('"', '""') + '"'
                execute(f"drop table {quoted}")
                execute(f"create table {quoted} ({quoted} int primary key, v text)")
                execute(f"insert into {quoted} values (2, 'z')")
            found.until(4 * len(names))
    seen = {(change.table.name, change.op) for change in found.changes}
    assert seen == {(name, op) for name in names for op in "rut"}


def test_the_key_is_what_the_log_tells_of_a_deleted_row(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, code text not null, v text)",
        "create unique index by_code on t (code)",
        "alter table t replica identity using index by_code",
        "insert into t values (1, 'a', 'x'), (2, 'b', 'x')",
    )
    folded = Folded()
    with reading(database) as found:
        follow(found, folded, database)
        assert set(folded.rows["public.t"]) == {("a",), ("b",)}
        database.execute("delete from t where id = 1", "update t set code = 'c' where id = 2")
        follow(found, folded, database)
        assert set(folded.rows["public.t"]) == {("c",)}
        database.execute("drop index by_code")
        wait_for(lambda: found.step(0.1) is not None or bool(stopped_in(found)))
        (sentence,) = found.source.facts()["stopped_tables"].values()
    assert "has no index of its replica identity any more" in sentence


def test_rows_of_a_transaction_that_began_before_the_table_was_published(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    folded = Folded()
    with reading(database, heartbeat_s=0.1) as found, psycopg.connect(database.url) as early:
        follow(found, folded, database)
        database.execute("drop table t", "create table t (id int primary key)")
        early.execute("insert into t values (2)")  # unpublished yet, and not committed
        database.execute("insert into t values (3)")
        with psycopg.connect(database.url, autocommit=True) as connection:

            def is_published() -> bool:
                found.step(0.1)
                query = "select count(*) from pg_publication_tables where tablename = 't'"
                return connection.execute(query).fetchone() == (1,)

            wait_for(is_published)
        for _ in range(10):
            found.step(0.1)
        early.commit()
        follow(found, folded, database)
    assert set(folded.rows["public.t"]) == {("2",), ("3",)}


def test_a_child_table_is_not_told_as_rows_of_its_parent(database: CdcPostgres) -> None:
    database.execute(
        "create table parent (id int primary key)",
        "create table child (primary key (id)) inherits (parent)",
        "insert into parent values (1)",
        "insert into child values (2)",
    )
    with reading(database) as found:
        found.until(2)
    assert sorted((change.table.name, change.after) for change in found.changes) == [
        ("child", ("2",)),
        ("parent", ("1",)),
    ]


def test_a_publication_that_left_changes_out_for_a_while(database: CdcPostgres) -> None:
    database.execute(*(statement.format(t="t") for statement in PLAIN))
    folded = Folded()
    with reading(database, heartbeat_s=0.2) as found:
        follow(found, folded, database)
    database.execute(
        "alter publication s set (publish = 'insert')",
        "update t set v = 'unseen'",
        "alter publication s set (publish = 'insert, update, delete, truncate')",
    )
    with reading(database, found.position, heartbeat_s=0.2) as again:
        folded.begin_again()
        follow(again, folded, database)
    assert {row["v"] for row in folded.rows["public.t"].values()} == {"unseen"}
