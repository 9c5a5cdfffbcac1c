"""Signals in the log: obeyed by whom they mean, told to nobody else."""

import json
from typing import Any

import pytest

from headrace.connect.change import Change, Event, Message, Origin, SchemaChange
from headrace.connect.errors import SourceRefused
from headrace.connect.incremental import Incremental
from headrace.connect.postgres.types import TypeModes, codec_of
from headrace.connect.ranges import Range, Remaining
from headrace.connect.rereading import Rereading
from headrace.connect.signals import EXECUTE, SIGNAL, STOP, signal_message
from headrace.connect.table import Column, Table

NOBODY = Origin(None, 0, "")
COLUMNS = tuple(Column(name, *codec_of(25, -1, TypeModes(), lambda _: None)) for name in ("id", "type", "data"))
SIGNALS = Table("shop", "headrace_signal", COLUMNS, (0,))
ORDERS = Table("shop", "orders", COLUMNS, (0,))


def rereading(*, check: Any = lambda: None, remaining: Remaining | None = None) -> Rereading:
    return Rereading(
        Incremental(remaining or Remaining(), lambda *_: None, lambda _: None),
        reader="mine",
        signal_table="shop.headrace_signal",
        knows=lambda name: name == "shop.orders",
        check=check,
        origin=lambda: (NOBODY, ""),
    )


def row(kind: str, data: str | None, table: Table = SIGNALS) -> Change:
    return Change(table, "c", None, ("1", kind, data), NOBODY, "")


def message(kind: str, *tables: str, reader: str = "") -> Message:
    return Message(SIGNAL, signal_message(kind, tables, reader).encode(), True, NOBODY, "")


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
    application = Message("outbox", b"{}", True, NOBODY, "")
    altered = SchemaChange(SIGNALS, None, "it was made", NOBODY, "")
    events: list[Event] = [altered, order, row("log", None), application, message(EXECUTE, "shop.orders")]
    assert list(rereading().through(events)) == [order, application]
