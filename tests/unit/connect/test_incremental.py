"""Chunks between watermarks: what the log says in between wins, and a key's changes stay in order."""

from collections import deque
from dataclasses import replace

from headrace.connect.change import Change, Event, Message, Origin, SchemaChange, TransactionEnd, UnseenChange
from headrace.connect.incremental import Incremental, Range, ReadChunk, Remaining
from headrace.connect.postgres.chunks import WATERMARK, mark_in
from headrace.connect.postgres.types import TypeModes, codec_of
from headrace.connect.table import Column, Row, Table

COLUMNS = tuple(Column(name, *codec_of(25, -1, TypeModes(), lambda _: None)) for name in ("id", "v"))
TABLE = Table("public", "t", COLUMNS, (0,))
OTHER = Table("public", "o", COLUMNS, (0,))


class Reader:
    """Chunks in the order in which they are asked for."""

    def __init__(self, *chunks: ReadChunk | None) -> None:
        self.chunks = list(chunks)
        self.names: list[str] = []
        self.asked: list[Range] = []

    def __call__(self, wanted: Range, name: str) -> ReadChunk | None:
        self.names.append(name)
        self.asked.append(wanted)
        return self.chunks.pop(0)


def chunk(*rows: Row, running: frozenset[str] = frozenset(), is_last: bool = False) -> ReadChunk:
    return ReadChunk(TABLE, list(rows), (rows[-1][0],) if rows else None, is_last, running)


def reading(reader: Reader, went_by: deque[str] | None = None) -> Incremental:
    return Incremental(Remaining((Range("public.t"),)), reader, mark_in, went_by or ())


def origin(xid: str) -> Origin:
    return Origin(xid, 0)


def mark(name: str, which: str) -> list[Event]:
    return [Message(WATERMARK, f"{name}:{which}".encode(), True, origin("900"), ()), TransactionEnd(origin("900"))]


def changed(xid: str, op: str, before: Row | None, after: Row | None, table: Table = TABLE) -> list[Event]:
    return [Change(table, op, before, after, origin(xid), ()), TransactionEnd(origin(xid))]


def through(machine: Incremental, *groups: list[Event]) -> list[tuple[str, Row | None]]:
    events = [event for group in groups for event in group]
    found = machine.through(events, lambda: (origin("0"), ()))
    return [(event.op, event.after) for event in found if isinstance(event, Change)]


def test_rows_changed_between_the_marks_are_dropped_and_the_rest_stands_at_the_high_mark() -> None:
    reader = Reader(chunk(("1", "a"), ("2", "b"), ("3", "c")))
    machine = reading(reader)
    machine.begin()
    name = reader.names[0]
    found = through(
        machine,
        changed("1", "u", None, ("1", "older")),
        mark(name, "low"),
        changed("2", "u", None, ("2", "newer")),
        changed("3", "c", None, ("3", "other"), OTHER),
        mark(name, "high"),
        changed("4", "u", None, ("3", "later")),
    )
    assert found == [
        ("u", ("1", "older")),
        ("u", ("2", "newer")),
        ("c", ("3", "other")),
        ("r", ("1", "a")),
        ("r", ("3", "c")),
        ("u", ("3", "later")),
    ]
    assert machine.remaining.ranges == (Range("public.t", after=("3",)),)


def test_deletes_key_changes_and_truncates_between_the_marks_count_too() -> None:
    for event, left in (
        (changed("1", "d", ("1", None), None), [("r", ("2", "b"))]),
        (changed("1", "u", ("1", None), ("9", "a")), [("r", ("2", "b"))]),
        (changed("1", "t", None, None), []),
    ):
        reader = Reader(chunk(("1", "a"), ("2", "b"), is_last=True))
        machine = reading(reader)
        machine.begin()
        found = through(machine, mark(reader.names[0], "low"), event, mark(reader.names[0], "high"))
        assert [pair for pair in found if pair[0] == "r"] == left
        assert not machine.is_active


def test_a_chunk_that_did_not_see_a_logged_commit_is_read_again() -> None:
    for before in (True, False):  # it went by before the chunk was read, or after
        reader = Reader(chunk(("1", "stale"), running=frozenset({"5"})), chunk(("1", "new"), is_last=True))
        machine = reading(reader, deque(["4", "5"] if before else []))
        machine.begin()
        groups = [] if before else [changed("5", "u", None, ("1", "new"))]
        found = through(machine, *groups, mark(reader.names[0], "low"), mark(reader.names[0], "high"))
        assert ("r", ("1", "stale")) not in found
        machine.begin()
        assert reader.asked == [Range("public.t"), Range("public.t")]
        assert through(machine, mark(reader.names[1], "low"), mark(reader.names[1], "high")) == [("r", ("1", "new"))]
        assert not machine.is_active


def test_a_chunk_in_whose_window_the_table_changed_its_shape_is_read_again() -> None:
    reader = Reader(chunk(("1", "a"), is_last=True), chunk(("1", "b"), is_last=True))
    machine = reading(reader)
    machine.begin()
    altered: list[Event] = [SchemaChange(TABLE, TABLE, "another column", origin("7"), ())]
    assert through(machine, mark(reader.names[0], "low"), altered, mark(reader.names[0], "high")) == []
    machine.begin()
    assert through(machine, mark(reader.names[1], "low"), mark(reader.names[1], "high")) == [("r", ("1", "b"))]
    other: list[Event] = [SchemaChange(OTHER, OTHER, "another column", origin("7"), ())]
    reader = Reader(chunk(("1", "a"), is_last=True))
    machine = reading(reader)
    machine.begin()
    found = through(machine, mark(reader.names[0], "low"), other, mark(reader.names[0], "high"))
    assert found == [("r", ("1", "a"))]


def test_a_table_without_a_key_of_its_own_is_compared_by_the_chosen_one() -> None:
    reader = Reader(chunk(("1", "a"), ("2", "b"), is_last=True))
    machine = reading(reader)
    machine.begin()
    keyless = replace(TABLE, key=())
    written = changed("1", "u", ("1", "a"), ("1", "newer"), keyless)
    found = through(machine, mark(reader.names[0], "low"), written, mark(reader.names[0], "high"))
    assert found == [("u", ("1", "newer")), ("r", ("2", "b"))]


def test_marks_of_another_run_mean_nothing() -> None:
    reader = Reader(chunk(("1", "a"), is_last=True))
    machine = reading(reader)
    machine.begin()
    assert through(machine, mark("older", "low"), mark("older", "high")) == []
    assert machine.is_active


def test_a_table_that_is_gone_or_called_off_is_left() -> None:
    machine = reading(Reader(None))
    machine.begin()
    assert not machine.is_active
    reader = Reader(chunk(("1", "a")))
    machine = reading(reader)
    machine.begin()
    machine.remaining = machine.remaining.without(["public.t"])
    assert through(machine, mark(reader.names[0], "low"), mark(reader.names[0], "high")) == []


def test_what_remains_is_stored_and_read_back() -> None:
    remaining = Remaining((Range("public.t", ("1", "ż"), ("5", "z")), Range("public.o")))
    assert Remaining.from_json(remaining.as_json()) == remaining
    moved, now = remaining.moved(remaining.ranges[0], ("2", "y"))
    assert moved.ranges[0] == now == Range("public.t", ("2", "y"), ("5", "z"))
    assert moved.done(now).ranges == (Range("public.o"),)
    assert remaining.with_tables(["public.t"]).ranges == (Range("public.o"), Range("public.t"))


def test_a_chunk_on_its_way_counts_for_nothing_when_its_table_changed_unseen() -> None:
    reader = Reader(chunk(("1", "a")), chunk(("1", "b")))
    machine = reading(reader)
    machine.begin()
    unseen: list[Event] = [UnseenChange(TABLE, "it was replaced", origin("7"), ())]
    assert through(machine, unseen, mark(reader.names[0], "low"), mark(reader.names[0], "high")) == []
    assert machine.remaining.ranges == (Range("public.t"),)
    machine.begin()
    assert through(machine, mark(reader.names[1], "low"), mark(reader.names[1], "high")) == [("r", ("1", "b"))]
