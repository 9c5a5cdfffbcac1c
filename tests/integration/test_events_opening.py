"""Stores by their addresses: each kind opens, keeps what it is given, and a wrong address gets one sentence."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.eventsourcing import EventSourcingError, MemoryStore, NewEvent, StreamAppend, open_store
from headrace.eventsourcing.broker_store import BrokerEventStore
from headrace.eventsourcing.errors import StoreUnavailable
from tests.integration.table_sink_stores import PostgresServer


def append_one(url: str) -> None:
    store = open_store(url)
    store.append([StreamAppend("thing-1", [NewEvent("made", b"{}")])])
    store.close()


def count(url: str) -> int:
    store = open_store(url)
    try:
        return len(list(store.read()))
    finally:
        store.close()


def test_sqlite_by_a_path_and_a_table(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a b.db".replace(" ", "%20")
    append_one(url)
    assert (count(url), count(f"{url}?table=others")) == (1, 0)
    assert (tmp_path / "a b.db").exists()


def test_postgres_by_its_url_and_a_table(postgres_server: PostgresServer) -> None:
    joined = "&" if "?" in postgres_server.url else "?"
    url = f"{postgres_server.url}{joined}table=by_address"
    append_one(url)
    assert count(url) == 1
    assert count(f"{postgres_server.url}{joined}table=by_another_address") == 0


def test_a_topic_by_its_address(headrace_broker: Broker) -> None:
    url = f"kafka://{headrace_broker.bootstrap_servers}/things"
    append_one(url)
    assert count(url) == 1
    store = open_store(url)
    assert isinstance(store, BrokerEventStore)
    store.close()


def test_memory() -> None:
    assert isinstance(open_store("memory:"), MemoryStore)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("shop.db", "'a path' is not the address of an event store: write sqlite:///path"),
        ("mysql://root:secret@host/shop", "'mysql:…' is not the address"),
        ("sqlite://shop.db", "names no file"),
        ("kafka://127.0.0.1:9092", "names no topic"),
        ("kafka://me:secret@127.0.0.1:9092/t", "HEADRACE_KAFKA"),
        ("kafka://127.0.0.1:9092/t?indx=f", "no option 'indx'"),
        ("kafka://[::1", "cannot be read"),
        ("sqlite:///shop.db?tabel=orders", "no option 'tabel'"),
        ("postgresql://me:secret%x@127.0.0.1:1/shop", "write %40 and %25"),
        ("postgresql://me:p@secret@127.0.0.1:1/shop", "write %40 and %25"),
    ],
)
def test_a_wrong_address_gets_one_sentence_without_secrets(url: str, reason: str) -> None:
    with pytest.raises(EventSourcingError) as caught:
        open_store(url)
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


def test_to_look_for_a_store_changes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table mine (x)")
    before = path.read_bytes()
    with pytest.raises(EventSourcingError, match="there is no event store 'headrace_events' in SQLite"):
        open_store(f"sqlite:///{path}", create=False)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["mine.db"]


def test_nobody_there() -> None:
    with pytest.raises(StoreUnavailable):
        open_store("kafka://127.0.0.1:1/t")
