"""Keys in PostgreSQL: the contract, nothing of a destroyed key in the table's file, and processes that are killed."""

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace import Broker
from headrace.eventsourcing import EventTypes, Projection, ProjectionRunner, StreamAppend, View, open_store
from headrace.forgetting import open_keys
from headrace.forgetting.errors import KeyStoreUnavailable
from headrace.forgetting.key_store import MemoryKeyStore
from headrace.forgetting.keyring import Keyring, open_key_store
from headrace.forgetting.master_key import create_master_key
from headrace.forgetting.search import Needles
from headrace.forgetting.sql_keys import PostgresKeyStore
from headrace.stack.forgetting.event_stores import EventStorePlace
from headrace.stack.forgetting.place import Subject
from headrace.testing.contracts.keys import MASTER, KeyStoreContract, made
from tests.integration.cli_runs import run_cli
from tests.integration.table_sink_stores import PostgresServer
from tests.integration.test_forget import Registered, found

_numbers = itertools.count()


class TestPostgres(KeyStoreContract):
    @pytest.fixture
    def open_store(self, postgres_server: PostgresServer) -> Iterator[Callable[[], PostgresKeyStore]]:
        table, opened = f"it's keys {next(_numbers)}", list[PostgresKeyStore]()

        def open_one() -> PostgresKeyStore:
            opened.append(PostgresKeyStore(postgres_server.url, table))
            return opened[-1]

        yield open_one
        for each in opened:
            each.close()


def test_nothing_of_a_destroyed_key_is_left_in_the_table(postgres_server: PostgresServer) -> None:
    store = PostgresKeyStore(postgres_server.url, "erased")
    wrapped = bytes(range(100, 160))
    store.add(made(1, wrapped=wrapped))
    store.add(made(2, "other", wrapped=b"the other's"))

    def table_bytes() -> bytes:
        with psycopg.connect(postgres_server.url, autocommit=True) as db:
            db.execute("CHECKPOINT")
            found: Any = db.execute("SELECT pg_read_binary_file(pg_relation_filepath('erased'))").fetchone()
        return bytes(found[0])

    assert wrapped in table_bytes()
    done = store.destroy("s", "spare", 1)
    assert wrapped not in table_bytes()
    assert b"the other's" in table_bytes()
    assert [sentence for sentence in done.remains if "write-ahead log" not in sentence] == []
    store.close()


def test_by_its_address_and_when_it_is_away(postgres_server: PostgresServer, tmp_path: Any) -> None:
    separator = "&" if "?" in postgres_server.url else "?"
    store = open_key_store(f"{postgres_server.url}{separator}table=by_address", tmp_path)
    store.add(made(1))
    with psycopg.connect(postgres_server.url, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        with pytest.raises(KeyStoreUnavailable):
            store.find("s")
        assert store.find("s") == [made(1)], "it connects again"
        assert db.execute("SELECT count(*) FROM by_address").fetchone() == (1,)
    store.close()
    with pytest.raises(KeyStoreUnavailable) as refused:
        open_key_store("postgresql://nobody:geheim@127.0.0.1:1/none", tmp_path)
    assert "geheim" not in str(refused.value)


def test_killed_before_the_table_is_rewritten(postgres_server: PostgresServer) -> None:
    store = PostgresKeyStore(postgres_server.url, "killed")
    store.add(made(1))
    killer = f"""
import os, signal
from headrace.forgetting.master_key import create_master_key
from headrace.forgetting.sql_keys import PostgresKeyStore
PostgresKeyStore._clear_away = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
PostgresKeyStore({postgres_server.url!r}, "killed").destroy("s", "spare", 7)
"""
    assert subprocess.run([sys.executable, "-c", killer], timeout=60, check=False).returncode == -9
    assert store.find("s") == [made(1, wrapped=None)]
    assert store.destroy("s", "spare", 8).forgotten.forgotten_ms == 7
    store.close()


def test_keys_and_events_in_one_database(
    postgres_server: PostgresServer, headrace_broker: Broker, tmp_path: Path
) -> None:
    types = EventTypes()

    @types.event("named", subject="who", personal=["name"])
    @dataclass(frozen=True)
    class Named:
        who: str
        name: str

    create_master_key(tmp_path / "master.key")
    (tmp_path / "headrace.toml").write_text(
        f'[broker]\nbootstrap = "{headrace_broker.bootstrap_servers}"\n'
        f'[forgetting]\nkeys = "{postgres_server.url}"\nmaster_key_file = "master.key"\n'
        f'[events.people]\nurl = "{postgres_server.url}"\n'
    )
    keys = open_keys(postgres_server.url, master_key_file=tmp_path / "master.key", recheck_s=0)
    types.use_keys(keys)
    store = open_store(postgres_server.url)
    for who, name in (("c-1", "Ada Łovelace"), ("c-2", "Grace")):
        store.append([StreamAppend(f"person-{who}", [types.encode(Named(who, name))])])
    arguments = ("--config", str(tmp_path / "headrace.toml"), "--json")
    done = run_cli("forget", "c-1", "--yes", *arguments, bootstrap=headrace_broker.bootstrap_servers)
    assert done.code == 0, done
    assert found(done, "event store people") == [("events", "unreadable", 1)]
    assert "write-ahead log" in done.json["findings"][0]["why"]
    assert [types.decode(event).name for event in store.read()] == ["(forgotten)", "Grace"]
    verified = run_cli(
        "forget", "c-1", "--verify", "--values", "-", *arguments,
        bootstrap=headrace_broker.bootstrap_servers, stdin="Ada Łovelace\n",
    )  # fmt: skip
    assert verified.code == 0, verified
    store.close()
    keys.close()


def test_rows_of_views_are_found_and_reported(postgres_server: PostgresServer) -> None:
    types, keys = EventTypes(), Keyring(MemoryKeyStore(), MASTER, recheck_s=0)
    types.use_keys(keys)
    types.event("registered", subject="customer", personal=["name"])(Registered)
    separator = "&" if "?" in postgres_server.url else "?"
    url = f"{postgres_server.url}{separator}table=told_events"
    store = open_store(url)
    store.append([StreamAppend("customer-1", [types.encode(Registered("c-1", "Ada Łovelace"))])])
    people = Projection("told_people", types=types)

    @people.on
    def registered(view: View, event: Registered) -> None:
        view.put(event.customer, {"name": event.name})

    runner = ProjectionRunner(store, people)
    runner.catch_up()
    place, needles = EventStorePlace("shop", url, Path()), Needles(["ada łovelace"])
    keys.forget("c-1")
    subject = Subject("c-1", keys, frozenset(keys.key_ids("c-1")))
    assert "view told_people" in [each.what for each in place.forget(subject, dry=False)]
    assert [hit.where for hit in place.search(needles)] == ["table told_people"]
    runner.rebuild()
    assert "view told_people" not in [each.what for each in place.forget(subject, dry=False)]
    assert not [*place.search(needles)]
    store.close()
