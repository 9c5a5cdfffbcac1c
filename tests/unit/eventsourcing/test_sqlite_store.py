"""Events in a SQLite file."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.eventsourcing.archives import archive
from headrace.eventsourcing.erasure import redact
from headrace.eventsourcing.errors import StoreUnavailable, UnsupportedFormat
from headrace.eventsourcing.model import Snapshot
from headrace.eventsourcing.sqlite_store import sqlite
from headrace.testing.contracts.event_erasure import ChainContract, ErasureContract
from headrace.testing.contracts.events import EventStoreContract, SnapshotStoreContract, made, put


class TestSqlite(EventStoreContract, SnapshotStoreContract, ChainContract, ErasureContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], Any]:
        return lambda: sqlite(tmp_path / "events.db")


def test_several_stores_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    orders, odd = sqlite(path, "orders"), sqlite(path, 'it\'s "odd"')
    put(orders, "a")
    put(odd, "b")
    put(odd, "b")
    assert (orders.last_position(), odd.last_position()) == (1, 2)
    assert [each.stream for each in odd.read()] == ["b", "b"]
    orders.close()
    odd.close()
    with pytest.raises(StoreUnavailable, match="closed: open it again"):
        orders.last_position()


def test_a_store_of_a_newer_format_is_not_touched(tmp_path: Path) -> None:
    sqlite(tmp_path / "events.db").close()
    with sqlite3.connect(tmp_path / "events.db") as db:
        db.execute("UPDATE headrace_events__format SET format = 7")
    db.close()
    with pytest.raises(
        UnsupportedFormat, match="'headrace_events' has format 7, and this Headrace knows formats up to 1"
    ):
        sqlite(tmp_path / "events.db")


def test_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"not a database, but long enough to be looked at" * 50)
    with pytest.raises(StoreUnavailable, match=r"events.db cannot be used: file is not a database"):
        sqlite(tmp_path / "events.db")


def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    """The first of them change the file's journal, and create the tables, while the others do so as well."""

    def open_and_close(turn: int) -> int:
        store = sqlite(tmp_path / f"{turn // 8}.db")
        put(store, "a")
        store.close()
        return store.path.stat().st_size

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(open_and_close, range(80)))
    for number in range(10):
        store = sqlite(tmp_path / f"{number}.db")
        assert [each.version for each in store.read_stream("a")] == list(range(1, 9))
        store.close()


@pytest.mark.parametrize("size", [10, 3_000, 50_000], ids=["in a cell", "in a page", "in pages of its own"])
def test_what_was_redacted_or_archived_is_not_left_in_a_file(tmp_path: Path, size: int) -> None:
    """Not in the database, and not in its write-ahead log; of snapshots neither."""
    store, other = sqlite(tmp_path / "events.db"), sqlite(tmp_path / "events.db")
    secrets = [b"<secret %d>" % number * (size // 10) for number in range(4)]
    for secret in secrets:
        put(store, "a", made("x", secret), made("x", b"other" * 100))
    store.write_snapshot("a", Snapshot(7, "fold", secrets[0]))
    list(other.read())  # a connection that stays open, and holds nothing

    def are_left() -> list[bool]:
        files = b"".join(each.read_bytes() for each in tmp_path.iterdir())
        return [secret[:10] in files for secret in secrets]

    assert are_left() == [True] * 4
    redact(store, "a", 1, reason="r")
    assert are_left() == [False, True, True, True]
    archive(store, "a", below=6, to=None, needs_state=False)
    assert are_left() == [False, False, False, True]
    assert other.find_snapshot("a") is None
    store.close()
    other.close()
