"""Events in PostgreSQL: the contract, and positions that no reader misses though transactions end out of order."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from headrace.eventsourcing.errors import InvalidAppend, InvalidStore, StoreUnavailable
from headrace.eventsourcing.postgres_store import PostgresEventStore, postgres
from headrace.testing.contracts.event_erasure import ChainContract, ErasureContract
from headrace.testing.contracts.events import PATIENCE_S, EventStoreContract, SnapshotStoreContract, made, put
from tests.integration.table_sink_stores import PostgresServer
from tests.integration.waiting import wait_until

_numbers = itertools.count()


@pytest.fixture
def open_store(postgres_server: PostgresServer) -> Iterator[Callable[[], PostgresEventStore]]:
    table, opened = f"events {next(_numbers)}", list[PostgresEventStore]()

    def open_one() -> PostgresEventStore:
        opened.append(postgres(postgres_server.url, table, schema="it's"))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


class TestPostgres(EventStoreContract, SnapshotStoreContract, ChainContract, ErasureContract):
    @pytest.fixture
    def open_store(self, open_store: Any) -> Any:
        return open_store


@contextmanager
def not_committed_yet(store: PostgresEventStore) -> Iterator[None]:
    """What the store does in the block is committed at its end: its next connection is in a transaction."""
    with store.pool.borrow() as db:
        pass
    with db.transaction():
        yield


def streams(store: PostgresEventStore, after: int = 0) -> list[str]:
    return [each.stream for each in store.read(after=after)]


def test_a_reader_waits_for_a_position_that_is_not_committed_yet(open_store: Any) -> None:
    slow, quick, reader = open_store(), open_store(), open_store()
    put(quick, "before")
    last = reader.last_position()
    with not_committed_yet(slow):
        first = put(slow, "slow").position
        second = put(quick, "quick").position
        assert last < first < second
        # What a reader would see that went by the table alone: the second without the first, which it then misses.
        with reader.pool.borrow() as db:
            assert db.run(f"SELECT position FROM {reader.table} WHERE position > ?", (last,)) == [(second,)]
        assert reader.last_position() == last
        assert streams(reader, last) == []
        assert not reader.wait(last, 0.05)
        assert [each.version for each in reader.read_stream("quick")] == [1]
    assert reader.wait(last, PATIENCE_S)
    assert streams(reader, last) == ["slow", "quick"]


def test_a_position_that_is_never_committed_holds_up_nobody(open_store: Any) -> None:
    slow, quick, reader = open_store(), open_store(), open_store()
    with not_committed_yet(slow):
        put(slow, "slow")
        put(quick, "quick")
        assert streams(reader) == []
        raise psycopg.Rollback
    assert streams(reader) == ["quick"]
    assert list(reader.read_stream("slow")) == []


def test_a_long_transaction_of_somebody_else_holds_up_nobody(open_store: Any, postgres_server: PostgresServer) -> None:
    store = open_store()
    with psycopg.connect(postgres_server.url) as other:
        other.execute("CREATE TABLE somebodys (n integer)")
        put(store, "a")
        assert streams(store) == ["a"]
        other.rollback()


def test_what_is_settled_never_goes_back(open_store: Any) -> None:
    """A writer that read the sequence, and was slow to lock what it read, holds an old number."""
    store = open_store()
    put(store, "a")
    last = put(store, "a").position
    assert store.last_position() == last
    with store.pool.borrow() as db, db.transaction():
        db.run("SELECT pg_advisory_xact_lock_shared(?::integer, 0)", (store._oid,))
        assert store.last_position() == last
        assert streams(store) == ["a", "a"]


def test_positions_beyond_the_lower_half_of_a_number(open_store: Any) -> None:
    """Numbers are locked by their lower 32 bits."""
    slow, quick, reader = open_store(), open_store(), open_store()
    start = 5 * 2**32 - 2
    with slow.pool.borrow() as db:
        db.run("SELECT setval(?::regclass, ?)", (str(slow._sequence), start))
    for number in range(4):
        with not_committed_yet(slow):
            assert put(slow, "slow").position == start + 2 * number + 1
            put(quick, "quick")
            assert reader.last_position() == start + 2 * number
        assert reader.last_position() == start + 2 * number + 2


def test_appends_with_other_tags_do_not_wait_for_each_other(open_store: Any) -> None:
    """Streams and tags are locked by numbers: these two have none in common."""
    slow, quick = open_store(), open_store()
    with not_committed_yet(slow):
        put(slow, "one", made("x", b"", "tag:1"))
        assert put(quick, "two", made("x", b"", "tag:2")).versions == {"two": 1}


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_database_with_another_default_of_isolation_does_a_command_once(
    postgres_server: PostgresServer, level: str
) -> None:
    """Who waited for the command's lock would not see what was committed meanwhile."""
    escaped = f"default_transaction_isolation={level}".replace(" ", "\\ ")
    url = f"{postgres_server.url}{'&' if '?' in postgres_server.url else '?'}options={quote(f'-c {escaped}')}"
    table = f"events {next(_numbers)}"
    slow, quick = postgres(url, table), postgres(url, table)
    put(quick, "before")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres_server.url, autocommit=True) as watching:
        with not_committed_yet(slow):
            put(slow, "a", command_id="c-1")
            waiting = pool.submit(put, quick, "b", command_id="c-1")
            wait_until(
                lambda: watching.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None, "a lock"
            )
        assert waiting.result(PATIENCE_S).is_repeat
    assert streams(slow) == ["before", "a"]
    slow.close()
    quick.close()


@pytest.mark.parametrize("table", ["x" * 52, "$$ a'b\"c %s ?"])
def test_whatever_a_table_is_called_who_waits_is_woken(postgres_server: PostgresServer, table: str) -> None:
    store = postgres(postgres_server.url, table, schema="s" * 40)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres_server.url, autocommit=True) as watching:
        waiting = pool.submit(store.wait, 0, PATIENCE_S)
        held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
        wait_until(lambda: watching.execute(held).fetchone() is not None, "who waits")
        assert put(store, "a", made("x", b"", "t"), command_id="c-1").versions == {"a": 1}
        assert waiting.result(PATIENCE_S)
    store.close()


def test_a_table_with_too_long_a_name_is_refused(postgres_server: PostgresServer) -> None:
    with pytest.raises(InvalidStore, match="too long for events in PostgreSQL: use 52 bytes"):
        postgres(postgres_server.url, "ü" * 27)


def test_a_server_that_crashes_keeps_what_it_acknowledged(open_store: Any, postgres_server: PostgresServer) -> None:
    store = open_store()
    put(store, "a", made(), made(), command_id="first")
    postgres_server.crash()
    with pytest.raises(StoreUnavailable, match="PostgreSQL schema it's cannot be used"):
        put(store, "a", expected=2, command_id="second")
    postgres_server.start()
    assert put(store, "a", made(), made(), command_id="first").is_repeat
    assert put(store, "a", expected=2, command_id="second").versions == {"a": 3}
    assert streams(store) == ["a", "a", "a"]


def test_a_url_that_is_none() -> None:
    with pytest.raises(InvalidAppend, match="need a URL such as postgresql://"):
        postgres("localhost")
