"""The snapshot, and the log behind it: rows then changes, every type, transactions of every kind."""

import psycopg
import pytest

from headrace.connect.errors import SourceRefused
from tests.integration.cdc_postgres.reading import reading
from tests.integration.cdc_postgres_server import CdcPostgres


def test_rows_then_changes_without_gap_or_overlap(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, v text)", "insert into t select i, 'x' from generate_series(1, 5) i"
    )
    with reading(database, chunk_rows=2) as found:
        database.execute("insert into t values (6, 'y')", "delete from t where id = 1")
        changes_ = found.until(7)
    assert [change.op for change in changes_] == ["r"] * 5 + ["c", "d"]
    assert sorted(change.after[0] for change in changes_[:5] if change.after) == ["1", "2", "3", "4", "5"]
    database.execute("insert into t values (7, 'while it was away')")
    with reading(database, found.position) as again:
        again.until(1)
    assert again.told == [("c", "7")]


def test_every_type_is_the_same_from_the_snapshot_and_from_the_log(database: CdcPostgres) -> None:
    values = {
        "a_bool bool": "true",
        "a_numeric numeric": "12345678901234567890.000123",
        "a_price numeric(10,2)": "-0.05",
        "a_double float8": "0.1",
        "a_real real": "'NaN'",
        "a_money money": "'-1234.5'",
        "a_text text": "E'tab\\t quote\" back\\\\ żółć 🦉'",
        "a_char char(5)": "'ab'",
        "a_bytea bytea": "'\\x00ff'",
        "a_uuid uuid": "'6f9619ff-8b86-d011-b42d-00cf4fc964ff'",
        "a_json json": """'{"a": [1, "ż"]}'""",
        "a_jsonb jsonb": """'{"b": null}'""",
        "a_date date": "'0044-03-15 BC'",
        "a_time time": "'12:34:56.5'",
        "a_ts timestamp": "'2024-02-29 12:34:56.789012'",
        "a_tstz timestamptz": "'2024-02-29 12:34:56.5+05:30'",
        "an_interval interval": "'1 year 2 days 03:04:05.6'",
        "an_array int[]": "'{{1,2},{3,NULL}}'",
        "texts text[]": """array['a,b', 'q"', null, '']""",
        "a_mood mood": "'ok'",
        "moods mood[]": "'{sad,ok}'",
        "a_range int4range": "'[1,5)'",
        "a_domain cents": "7",
        "a_bit bit(3)": "B'101'",
        "an_inet inet": "'10.0.0.1/8'",
        "a_point point": "'(1,2)'",
    }
    columns = ", ".join(values)
    written = ", ".join(values.values())
    database.execute(
        "create type mood as enum ('sad', 'ok')",
        "create domain cents as bigint check (value >= 0)",
        f"create table t (id int primary key, {columns}, big text)",
        "alter table t alter column big set storage external",
        f"insert into t values (1, {written}, repeat('x', 9000))",
    )
    with reading(database) as found:
        database.execute(
            f"insert into t values (2, {written}, repeat('x', 9000))", "update t set a_bool = false where id = 2"
        )
        read, logged, updated = found.until(3)
    one, other = (change.table.python_row(change.after) for change in (read, logged))
    assert one is not None
    assert other is not None
    assert {**one, "id": 2} == {**other} or str({**one, "id": 2}) == str(other)  # NaN is not itself
    table = read.table
    for index, column in enumerate(table.columns[1:], 1):
        assert read.after is not None
        assert logged.after is not None
        assert column.codec.to_json(read.after[index]) == column.codec.to_json(logged.after[index]), column.name
    assert repr((updated.table.python_row(updated.after) or {})["big"]) == "UNCHANGED"
    assert one["a_text"] == 'tab\t quote" back\\ żółć 🦉'
    assert one["texts"] == ["a,b", 'q"', None, ""]


def test_the_other_snapshot_modes(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    with reading(database, snapshot="initial-only") as found:
        batch = found.source.next_batch(5)
        assert batch is not None
        assert batch.is_last
        assert len(batch.events) == 1
    with reading(database, batch.position, snapshot="initial-only") as again:
        ended = again.source.next_batch(1)
        assert ended is not None
        assert ended.is_last
        assert ended.events == []
    database.drop_slot("s")
    with reading(database, snapshot="never") as never:
        database.execute("insert into t values (2)")
        never.until(1)
        assert never.told == [("c", "2")]
    database.drop_slot("s")
    database.execute("insert into t values (3)")
    with pytest.raises(SourceRefused, match="slot s is gone"), reading(database, never.position):
        pass
    with reading(database, never.position, snapshot="when-needed") as needed:
        needed.until(4)
        assert [op for op, _ in needed.told] == ["t", "r", "r", "r"]


def test_a_position_of_another_server_means_nothing_here(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    with reading(database) as found:
        found.until(1)
    assert found.position is not None
    elsewhere = found.position | {"system": "7000000000000000001/5"}
    with pytest.raises(SourceRefused, match="is of another database"), reading(database, elsewhere):
        pass
    with reading(database, elsewhere, snapshot="when-needed") as again:
        again.until(2)
    assert again.told == [("t", None), ("r", "1")]


def test_a_large_transaction_is_streamed_and_a_rolled_back_part_never_seen(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key, v text)")
    with reading(database, batch_messages=1000) as found, psycopg.connect(database.url) as connection:
        found.step()
        connection.execute("insert into t select i, repeat('x', 50) from generate_series(1, 5000) i")
        connection.execute("savepoint a")
        connection.execute("insert into t select i, repeat('y', 50) from generate_series(5001, 9000) i")
        connection.execute("rollback to savepoint a")
        database.execute("insert into t values (-1, 'between')")
        found.until(1)
        assert found.told == [("c", "-1")]
        connection.execute("insert into t values (0, 'end')")
        connection.commit()
        found.until(5002)
    assert [number for _, number in found.told] == ["-1", *(str(number) for number in range(1, 5001)), "0"]


def test_prepared_transactions_come_at_their_commit(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database) as found:
        database.execute("begin; insert into t values (1); prepare transaction 'p'", "insert into t values (2)")
        found.until(1)
        database.execute("commit prepared 'p'")
        found.until(2)
    assert found.told == [("c", "2"), ("c", "1")]


def test_a_partitioned_table_is_one_table(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key) partition by range (id)",
        "create table t1 partition of t for values from (0) to (10)",
        "create table t2 partition of t for values from (10) to (20)",
        "insert into t values (1), (11)",
    )
    with reading(database) as found:
        database.execute("insert into t values (2), (12)")
        assert {change.table.full_name for change in found.until(4)} == {"public.t"}


def test_a_table_whose_identity_is_the_whole_row_keeps_its_key(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, v text)",
        "alter table t replica identity full",
        "insert into t values (1, 'a')",
    )
    with reading(database) as found:
        database.execute("update t set v = 'b'")
        _, updated = found.until(2)
    assert (updated.before, updated.table.key) == (("1", "a"), (0,))


def test_large_values_that_were_not_sent_again_are_read_if_wanted(database: CdcPostgres) -> None:
    database.execute(
        "create table t (a text, b int, v int, big text, primary key (b, a))",
        "alter table t alter column big set storage external",
        "insert into t select 'it''s \\ ' || i, i, 0, repeat(i::text, 9000) from generate_series(1, 3) i",
    )
    with reading(database, unavailable="reselect", snapshot="never") as found:
        database.execute("update t set v = 1", "delete from t where b = 2")
        updated = found.until(4)[:3]
    bigs = {change.after[1]: change.after[3] for change in updated if change.after}
    assert bigs["1"] == "1" * 9000
    assert bigs["3"] == "3" * 9000
    assert repr(bigs["2"]) == "UNCHANGED" or bigs["2"] == "2" * 9000


def test_a_large_value_moves_with_its_row_to_another_key(database: CdcPostgres) -> None:
    """Under the old key it is forgotten and under the new one nobody has it, so it is read without being asked for."""
    database.execute(
        "create table t (id int primary key, v int, big text)",
        "alter table t alter column big set storage external",
        "insert into t select i, 0, repeat(i::text, 9000) from generate_series(1, 3) i",
    )
    with reading(database, snapshot="never") as found:
        database.execute("update t set v = 1 where id = 1", "update t set id = 12 where id = 2")
        stayed, moved = found.until(2)
        database.execute("alter table t replica identity full", "update t set id = 13 where id = 3")
        whole = found.until(3)[2]
    assert stayed.after is not None
    assert repr(stayed.after[2]) == "UNCHANGED"
    assert moved.after == ("12", "0", "2" * 9000)
    assert (whole.before, whole.after) == (("3", "0", "3" * 9000), ("13", "0", "3" * 9000))


def test_a_column_that_was_dropped_since_takes_no_large_value_with_it(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, v int, big text)",
        "alter table t alter column big set storage external",
        "insert into t values (1, 0, repeat('1', 9000))",
    )
    with reading(database, snapshot="never") as found:
        database.execute("update t set id = 11", "alter table t drop column v")
        moved = found.until(1)[0]
    assert moved.after == ("11", "0", "1" * 9000)
