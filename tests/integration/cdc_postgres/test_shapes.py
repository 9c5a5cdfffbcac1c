"""Tables that change their shapes."""

import json
import time

import pytest

from headrace.connect.change import Change, SchemaChange
from headrace.connect.errors import SchemaChangeBlocked
from tests.integration.cdc_postgres.reading import reading
from tests.integration.cdc_postgres_server import CdcPostgres


def test_schema_changes_are_followed_and_told(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database) as found:
        database.execute("insert into t values (1)", "alter table t add v text default 'x'", "insert into t values (2)")
        found.until(2)
    assert [type(event) for event in found.events if isinstance(event, Change | SchemaChange)] == [
        Change,
        SchemaChange,
        Change,
    ]
    assert found.changes[1].after == ("2", "x")


def test_a_change_of_shape_that_comes_again_after_a_crash_is_told_once(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database) as found:
        found.step()
        database.execute("insert into t values (1)", "alter table t add v text", "insert into t values (2)")
        deadline = time.monotonic() + 30
        while len(found.changes) < 2:
            assert time.monotonic() < deadline
            batch = found.source.next_batch(0.5)  # stored, and never acknowledged
            if batch is not None:
                found.events += batch.events
                found.position = json.loads(json.dumps(batch.position))
    with reading(database, found.position, schema_changes="block") as again:
        database.execute("insert into t values (3)")
        again.until(1)
    assert again.told == [("c", "3")]
    assert again.changes[0].after == ("3", None)


def test_schema_changes_block(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database, schema_changes="block") as found:
        database.execute("insert into t values (1)", "alter table t add v text", "insert into t values (2)")
        found.until(1)
        with pytest.raises(SchemaChangeBlocked, match="column v was added"):
            found.until(2)
    with reading(database, found.position, schema_changes="block") as again, pytest.raises(SchemaChangeBlocked):
        again.until(1)
    with reading(database, found.position) as evolved:
        evolved.until(1)
    assert evolved.told == [("c", "2")]


def test_schema_changes_skip(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)", "create table u (id int primary key)")
    with reading(database, schema_changes="skip") as found:
        database.execute("alter table t add v text", "insert into t values (2)", "insert into u values (3)")
        found.until(1)
    assert found.told == [("c", "3")]
    assert any(isinstance(event, SchemaChange) and "left out" in event.what for event in found.events)
