"""A SQLite store that somebody writes to behind its back: `verify` finds it, and names it."""

import sqlite3
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.eventsourcing.archives import archive
from headrace.eventsourcing.erasure import redact
from headrace.eventsourcing.hash_chain import chain
from headrace.eventsourcing.model import StoredEvent
from headrace.eventsourcing.sqlite_store import SqliteEventStore, sqlite
from headrace.eventsourcing.verification import Verification, verify
from headrace.testing.contracts.events import made, put

TABLE = "headrace_events"


def fill(store: SqliteEventStore, *, erased: bool) -> list[StoredEvent]:
    for turn in range(4):
        for name in ("a-1", "a-2", "b"):
            tags = (f"turn:{turn}", "all")
            put(store, name, made("x", b'{"n":%d}' % turn, *tags, headers={"h": "1"}), made("y", b"%d" % turn),
                command_id=f"{name} {turn}")  # fmt: skip
    if erased:
        redact(store, "a-1", 3, reason="r")
        archive(store, "a-2", below=4, to=None, needs_state=False)
    chain(store)
    return list(store.read_everything(0, store.last_position()))


def tamper(path: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    db = sqlite3.connect(path)
    with db:
        for statement, values in statements:
            db.execute(statement, values)
    db.close()


@st.composite
def changed_cells(draw: Any) -> tuple[str, Any]:
    name = draw(st.sampled_from([each for each in StoredEvent._fields if each != "position"]))
    if name in ("version", "schema", "time_ms"):
        return name, draw(st.integers(-(2**40), 2**40) | st.just("seven") | st.just(1.5))
    if name == "data":
        return name, draw(st.binary(max_size=40) | st.text(max_size=5))
    if name == "headers":
        return name, draw(st.sampled_from(['{"h":"2"}', '{"h":1}', "[]", "{", '{"h":"1","i":""}', ""]))
    return name, draw(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10))


@lru_cache
def filled(erased: bool) -> tuple[bytes, list[StoredEvent]]:
    """The file of such a store, and its events."""
    with TemporaryDirectory() as folder:
        store = sqlite(Path(folder) / "events.db")
        events = fill(store, erased=erased)
        store.close()
        return (Path(folder) / "events.db").read_bytes(), events


@given(erased=st.booleans(), chosen=st.integers(0, 23), cell=changed_cells())
def test_a_changed_cell_is_found_and_named(erased: bool, chosen: int, cell: tuple[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "events.db"
        content, events = filled(erased)
        path.write_bytes(content)
        store = sqlite(path)
        event, (name, value) = events[chosen], cell
        try:
            tamper(path, (f'UPDATE {TABLE} SET "{name}" = ? WHERE position = ?', (value, event.position)))
        except sqlite3.IntegrityError:
            return  # SQLite itself does not let two events have one version
        found = verify(store)
        after = next(iter(store.read_everything(event.position - 1, event.position)))
        store.close()
        if after == event:
            assert found.is_intact  # it is as it was
        else:
            assert event.position in [each.position for each in found.findings], found.findings


def insert(path: Path, event: StoredEvent, **changes: Any) -> None:
    row = {**event._asdict(), "tags": "", "headers": "", **changes}
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    tamper(path, (f"INSERT INTO {TABLE} ({names}) VALUES ({marks})", tuple(row.values())))


def move(path: Path, one: StoredEvent, other: StoredEvent) -> None:
    """Have two events change places."""
    statement = f"UPDATE {TABLE} SET position = ? WHERE position = ?"
    moves = ((-1, one.position), (one.position, other.position), (other.position, -1))
    tamper(path, *((statement, each) for each in moves))


def swap_streams(path: Path, one: StoredEvent, other: StoredEvent) -> None:
    statement = f"UPDATE {TABLE} SET stream = ? WHERE position = ?"
    tamper(path, (statement, ("aside", one.position)), (statement, (one.stream, other.position)),
           (statement, (other.stream, one.position)))  # fmt: skip


def kinds(found: Verification) -> list[tuple[str, str, int, int]]:
    return [(each.kind, each.stream, each.version, each.position) for each in found.findings]


Tamper = Callable[[Path, list[StoredEvent]], None]


@pytest.mark.parametrize(
    ("do", "first"),
    [
        (lambda path, all_: tamper(path, (f"DELETE FROM {TABLE} WHERE position = 8", ())), ("removed", "a-1", 4, 8)),
        # The last of a stream, which leaves no gap, and the last of all.
        (lambda path, all_: tamper(path, (f"DELETE FROM {TABLE} WHERE position = 22", ())), ("removed", "a-2", 8, 22)),
        (lambda path, all_: tamper(path, (f"DELETE FROM {TABLE} WHERE position = 24", ())), ("removed", "b", 8, 24)),
        (lambda path, all_: move(path, all_[0], all_[1]), ("gap", "a-1", 2, 1)),
        (lambda path, all_: move(path, all_[0], all_[2]), ("moved", "a-2", 1, 1)),
        (lambda path, all_: swap_streams(path, all_[0], all_[2]), ("moved", "a-2", 1, 1)),
        (lambda path, all_: insert(path, all_[0], position=0, stream="c"), None),
        (lambda path, all_: insert(path, all_[0], position=25, stream="c"), None),
    ],
    ids=["removed", "last of a stream", "last", "order in a stream", "order", "streams", "before", "unchained"],
)  # fmt: skip
def test_what_was_done_is_named(tmp_path: Path, do: Tamper, first: Any) -> None:
    store = sqlite(tmp_path / "events.db")
    events = fill(store, erased=False)
    do(tmp_path / "events.db", events)
    found = verify(store)
    store.close()
    if first is not None:
        assert kinds(found)[0] == first
    else:  # not of a position that readers are given, or not chained yet
        assert all(each.position in (0, 25) for each in found.findings)


def test_an_event_that_was_put_into_a_gap(tmp_path: Path) -> None:
    store = sqlite(tmp_path / "events.db")
    put(store, "a")
    tamper(tmp_path / "events.db", ("UPDATE sqlite_sequence SET seq = 5", ()))  # as a crash of PostgreSQL may leave it
    put(store, "a")
    chain(store)
    [first, second] = store.read()
    insert(tmp_path / "events.db", first, position=3, stream="b")
    assert kinds(verify(store)) == [("inserted", "b", 1, 3)]
    assert second.position == 6
    store.close()


def test_a_redaction_without_a_trace(tmp_path: Path) -> None:
    """The stand-in has the right digest: what is missing is who did it."""
    store = sqlite(tmp_path / "events.db")
    fill(store, erased=True)
    [stand_in] = [each.data for each in store.read_stream("a-1", after=2, to=3)]
    for position in (8, 7):
        tamper(tmp_path / "events.db", (f"UPDATE {TABLE} SET data = ? WHERE position = ?", (stand_in, position)))
    assert [each[0] for each in kinds(verify(store))] == ["untraced", "changed"]  # of position 8; 7 is the redacted one
    tamper(tmp_path / "events.db", (f"DELETE FROM {TABLE} WHERE type = ?", ("headrace:redaction",)))
    assert ("untraced", "a-1", 3, 7) in kinds(verify(store))
    store.close()


def test_archived_without_a_trace(tmp_path: Path) -> None:
    store = sqlite(tmp_path / "events.db")
    fill(store, erased=True)
    tamper(
        tmp_path / "events.db", (f"UPDATE {TABLE} SET schema = -1, data = x'00' WHERE stream = 'b' AND version = 1", ())
    )  # fmt: skip
    assert [each[:3] for each in kinds(verify(store))] == [("untraced", "b", 1), ("changed", "b", 1)]
    store.close()


def test_links_that_were_changed_or_removed(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = sqlite(path)
    for _ in range(3):
        put(store, "a")
        mark = chain(store)
    links = f"{TABLE}__links"
    store.close()
    kept = path.read_bytes()
    db = sqlite3.connect(path)
    [(second,)] = db.execute(f"SELECT data FROM {links} WHERE version = 2").fetchall()
    db.close()
    change, remove = f"UPDATE {links} SET data = ? WHERE version = 2", f"DELETE FROM {links} WHERE version = ?"
    for statement, value, reason in (
        (change, second.replace(b'"linked_ms":1', b'"linked_ms":2'), "link 2 was changed: its hash is not that of"),
        (change, second.replace(b'"previous":"', b'"previous":"00')[:-2], "link 2 was tampered with"),
        (change, b"{", "link 2 was tampered with"),
        (remove, 2, "link 2 is missing"),
        (remove, 3, "link 3, which was kept elsewhere, is not in the store"),
    ):
        path.write_bytes(kept)
        tamper(path, (statement, (value,)))
        store = sqlite(path)
        found = verify(store, against=mark)
        store.close()
        assert any(reason in each.text for each in found.findings), (statement, found.findings)
