"""Signals in the log: obeyed by whom they mean, told to nobody else."""

import json
from typing import Any

import pytest

from headrace.connect.change import TRUNCATE, Change, Event, Message, Origin, SchemaChange, UnseenChange
from headrace.connect.errors import SourceRefused
from headrace.connect.incremental import Incremental, Range, Remaining
from headrace.connect.postgres.types import TypeModes, codec_of
from headrace.connect.rereading import EXECUTE, SIGNAL, STOP, Rereading, signal_message
from headrace.connect.table import Column, Table

NOBODY = Origin(None, 0)
COLUMNS = tuple(Column(name, *codec_of(25, -1, TypeModes(), lambda _: None)) for name in ("id", "type", "data"))
SIGNALS = Table("shop", "headrace_signal", COLUMNS, (0,))
ORDERS = Table("shop", "orders", COLUMNS, (0,))


def rereading(
    *,
    check: Any = lambda: None,
    remaining: Remaining | None = None,
    unseen_changes: str = "reread",
    stopped: dict[str, str] | None = None,
) -> Rereading:
    return Rereading(
        Incremental(remaining or Remaining(), lambda *_: None, lambda _: None),
        reader="mine",
        signal_table="shop.headrace_signal",
        table_of=lambda name: ORDERS if name == "shop.orders" else None,
        check=check,
        origin=lambda: (NOBODY, ()),
        unseen_changes=unseen_changes,
        stopped=stopped,
    )


def row(kind: str, data: str | None, table: Table = SIGNALS) -> Change:
    return Change(table, "c", None, ("1", kind, data), NOBODY, ())


def message(kind: str, *tables: str, reader: str = "") -> Message:
    return Message(SIGNAL, signal_message(kind, tables, reader).encode(), True, NOBODY, ())


def tables_after(reader: Rereading, *events: Event) -> list[str]:
    assert list(reader.through(events)) == []
    return [one.table for one in reader.incremental.remaining.ranges]


def test_a_row_or_a_message_asks_for_tables_that_are_known() -> None:
    asked = json.dumps({"data-collections": ["shop.orders", "shop.unknown"]})
    assert tables_after(rereading(), row(EXECUTE, asked)) == ["shop.orders"]
    assert tables_after(rereading(), message(EXECUTE, "shop.orders", reader="mine")) == ["shop.orders"]
    assert tables_after(rereading(), message(EXECUTE, "shop.orders", reader="another")) == []
    for nonsense in (None, "", "[1]", "{", '{"data-collections": 7}'):
        assert tables_after(rereading(), row(EXECUTE, nonsense), row("log", asked)) == []


def test_what_is_read_can_be_called_off() -> None:
    both = Remaining((Range("shop.orders"), Range("shop.more")))
    assert tables_after(rereading(remaining=both), message(STOP, "shop.orders")) == ["shop.more"]
    assert tables_after(rereading(remaining=both), row(STOP, None)) == []


def test_where_no_mark_can_be_written_nothing_begins_and_the_log_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise SourceRefused("the server is read-only")

    assert tables_after(rereading(check=refuse), message(EXECUTE, "shop.orders")) == []
    assert "snapshot not begun" in caplog.messages


def test_others_see_neither_signals_nor_the_table_of_signals() -> None:
    order = row("x", "y", ORDERS)
    application = Message("outbox", b"{}", True, NOBODY, ())
    altered = SchemaChange(SIGNALS, None, "it was made", NOBODY, ())
    events: list[Event] = [altered, order, row("log", None), application, message(EXECUTE, "shop.orders")]
    assert list(rereading().through(events)) == [order, application]


# --- changes that the log does not tell

REPLACED = UnseenChange(ORDERS, "it was replaced by another", NOBODY, ())
OTHER = row("x", "y", Table("shop", "others", COLUMNS, (0,)))


def told(events: list[Event]) -> list[str]:
    return [event.op if isinstance(event, Change) else type(event).__name__ for event in events]


def test_a_table_that_nobody_saw_change_is_emptied_and_read_again() -> None:
    reader = rereading(remaining=Remaining((Range("shop.orders", after=("5",)), Range("shop.others"))))
    found = list(reader.through([row("x", "y", ORDERS), REPLACED, row("x", "z", ORDERS)]))
    assert told(found) == ["c", "SchemaChange", TRUNCATE, "c"]
    assert isinstance(found[1], SchemaChange)
    assert "it was replaced by another" in found[1].what
    assert reader.incremental.remaining.ranges == (Range("shop.others"), Range("shop.orders"))
    assert not reader.stopped


def test_or_it_stops_alone_with_a_sentence_until_somebody_asks(caplog: pytest.LogCaptureFixture) -> None:
    reader = rereading(unseen_changes="stop", remaining=Remaining((Range("shop.orders", after=("5",)),)))
    found = list(reader.through([REPLACED, row("x", "y", ORDERS), OTHER, REPLACED]))
    assert told(found) == ["SchemaChange", "c"]
    assert found[1] is OTHER
    assert not reader.incremental.remaining
    sentence = reader.stopped.as_json()["shop.orders"]
    assert "capture of table shop.orders stopped, because it was replaced by another" in sentence
    assert "headrace cdc snapshot" in sentence
    assert "table stopped" in caplog.messages

    again = rereading(unseen_changes="stop", stopped=reader.stopped.as_json())
    assert again.concerns([OTHER])
    assert told(list(again.through([row("x", "y", ORDERS), OTHER]))) == ["c"]
    asked = list(again.through([message(EXECUTE, "shop.orders"), row("x", "y", ORDERS)]))
    assert told(asked) == ["SchemaChange", TRUNCATE, "c"]
    assert again.incremental.remaining.tables == ["shop.orders"]
    assert not again.stopped


def test_a_stopped_table_is_read_again_by_a_start_that_rereads() -> None:
    reader = rereading(stopped={"shop.orders": "it was replaced"})
    assert reader.concerns([])
    assert told(list(reader.through([OTHER]))) == ["SchemaChange", TRUNCATE, "c"]
    assert not reader.concerns([]) or reader.incremental.is_active
    assert told(list(reader.through([OTHER]))) == ["c"]


def test_where_no_mark_can_be_written_the_table_stops_and_says_both_reasons() -> None:
    def refuse() -> None:
        raise SourceRefused("the server is read-only")

    reader = rereading(check=refuse)
    assert told(list(reader.through([REPLACED, OTHER]))) == ["SchemaChange", "c"]
    sentence = reader.stopped.as_json()["shop.orders"]
    assert "it was replaced by another" in sentence
    assert "the server is read-only" in sentence
