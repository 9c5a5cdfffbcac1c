"""Key stores in memory and in SQLite."""

import sqlite3
from pathlib import Path

import pytest

from headrace.forgetting.errors import ForgettingError, KeyStoreUnavailable
from headrace.forgetting.key_store import MemoryKeyStore
from headrace.forgetting.keyring import FORGOTTEN, Keyring
from headrace.forgetting.sql_keys import SqliteKeyStore
from headrace.testing.contracts.keys import MASTER, KeyStoreContract, made


class TestMemory(KeyStoreContract):
    @pytest.fixture
    def open_store(self):
        store = MemoryKeyStore()
        return lambda: store


class TestSqlite(KeyStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path):
        return lambda: SqliteKeyStore(tmp_path / "keys.db")


def all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


def test_nothing_of_a_destroyed_key_is_left_in_the_files(tmp_path):
    store = SqliteKeyStore(tmp_path / "keys.db")
    wrapped = bytes(range(100, 160))
    store.add(made(1, wrapped=wrapped))
    for number in range(2, 60):
        store.add(made(number, f"s{number}", wrapped=b"other"))
    assert wrapped in all_bytes(tmp_path)
    assert store.destroy("s", "spare", 1).remains == ()
    assert wrapped not in all_bytes(tmp_path)
    assert b"other" in all_bytes(tmp_path)


def test_who_is_in_it_is_not_told_by_the_files(tmp_path):
    keys = Keyring(SqliteKeyStore(tmp_path / "keys.db"), MASTER)
    keys.seal_value("Ada", subject="ada@example.org", field="name")
    keys.forget("ada@example.org")
    assert b"example" not in all_bytes(tmp_path)


def test_a_store_of_a_newer_format_is_refused(tmp_path):
    SqliteKeyStore(tmp_path / "keys.db").close()
    with sqlite3.connect(tmp_path / "keys.db") as db:
        db.execute("UPDATE headrace_keys__format SET format = 9")
    with pytest.raises(ForgettingError, match="install a newer one"):
        SqliteKeyStore(tmp_path / "keys.db")


def test_a_keyring_that_cannot_ask_opens_nothing(tmp_path):
    keys = Keyring(SqliteKeyStore(tmp_path / "keys.db"), MASTER, recheck_s=0)
    text = keys.seal_value("Ada", subject="7", field="name")
    with sqlite3.connect(tmp_path / "keys.db") as db:
        db.execute("ALTER TABLE headrace_keys__forgotten RENAME TO away")
    with pytest.raises(KeyStoreUnavailable):
        keys.open_value(text, field="name")
    with sqlite3.connect(tmp_path / "keys.db") as db:
        db.execute("ALTER TABLE away RENAME TO headrace_keys__forgotten")
    assert keys.open_value(text, field="name") == "Ada"


def test_a_key_is_kept_in_memory_no_longer_than_it_may_be(tmp_path):
    one = Keyring(SqliteKeyStore(tmp_path / "keys.db"), MASTER, recheck_s=0.05)
    other = Keyring(SqliteKeyStore(tmp_path / "keys.db"), MASTER)
    text = one.seal_value("Ada", subject="7", field="name")
    other.forget("7")
    while one.open_value(text, field="name") is not FORGOTTEN:  # the test's own time limit ends it
        pass
    assert not one._by_subject


def test_a_key_that_was_read_just_before_it_was_destroyed_is_not_kept(tmp_path):
    others = Keyring(SqliteKeyStore(tmp_path / "keys.db"), MASTER)
    sealed = others.seal_value("Ada", subject="7", field="name")

    class Slow(SqliteKeyStore):
        def read(self, key_ids):
            found = super().read(key_ids)
            if not others.is_forgotten("7"):
                others.forget("7")
                keys.refresh()  # as another thread does
            return found

    keys = Keyring(Slow(tmp_path / "keys.db"), MASTER, recheck_s=60)
    keys.open_value(sealed, field="name")
    assert keys.open_value(sealed, field="name") is FORGOTTEN
