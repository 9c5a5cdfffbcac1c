"""Chosen keys: checked before anything is done, and written as if they were the table's own."""

import json
from typing import Any

import pytest

from headrace.connect.capture.settings import from_section
from headrace.connect.change import Change, Origin, TransactionEnd
from headrace.connect.envelope import EnvelopeSettings, EnvelopeWriter, TopicNames
from headrace.connect.errors import InvalidConnectSetting, SourceRefused
from headrace.connect.filters import Filters, check_key_columns
from headrace.connect.postgres.types import TypeModes, codec_of
from headrace.connect.table import Column, Table

COLUMNS = tuple(
    Column(name, *codec_of(kind, -1, TypeModes(), lambda _: None))
    for name, kind in (("id", 23), ("tenant", 25), ("n", 23))
)
KEYED, KEYLESS = Table("public", "orders", COLUMNS, (0,)), Table("public", "orders", COLUMNS, ())
ORIGIN = Origin("7", 1_000_000, "false", own=("lsn",))
THERE = {"public.orders": {"id": False, "tenant": False, "n": True}}


def writer(**more: Any) -> EnvelopeWriter:
    settings = EnvelopeSettings("postgresql", "shop", "1", TopicNames("p"), **more)
    return EnvelopeWriter(settings, Filters(key_columns={"public.orders": ["tenant", "id"]}))


@pytest.mark.parametrize("table", [KEYED, KEYLESS])
def test_records_have_the_chosen_key(table: Table) -> None:
    events = [
        Change(table, "c", None, ("1", "a", None), ORIGIN, 1),
        Change(table, "u", ("1", "a", None), ("1", "b", "5"), ORIGIN, 2),
        Change(table, "d", ("1", "b", "5"), None, ORIGIN, 3),
        Change(table, "t", None, None, ORIGIN, 4),
    ]
    written = list(writer().write(events, 5))
    keys = [json.loads(record.key or b"0") for record in written]
    old, new = {"tenant": "a", "id": 1}, {"tenant": "b", "id": 1}
    assert keys == [old, old, old, new, new, new, {"tenant": None, "id": None}]
    assert [record.value is None for record in written] == [False, False, True, False, False, True, False]
    assert list(keys[0]) == ["tenant", "id"]


def test_a_key_that_is_not_known_is_refused() -> None:
    for op, before, after in (("c", None, ("1", None, None)), ("d", ("1", None, None), None)):
        with pytest.raises(SourceRefused, match=r"a row of public\.orders has no value in tenant"):
            list(writer().write([Change(KEYED, op, before, after, ORIGIN, 1)], 5))


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"public.order": ["id"]}, r"table public\.order, which is not captured \(captured are: public\.orders\)"),
        ({"public.orders": ["ident"]}, r"column ident of public\.orders, which has only id, tenant, n: correct"),
        ({"public.orders": ["n"]}, r"column n of public\.orders, which may be null.*: make n NOT NULL"),
    ],
)
def test_wrong_columns_are_told_in_a_sentence(chosen: dict[str, list[str]], said: str) -> None:
    with pytest.raises(SourceRefused, match=said):
        check_key_columns(chosen, THERE)


@pytest.mark.parametrize("columns", [[], "id", ["id", "id"], [1]])
def test_what_is_no_list_of_columns_is_told_before_any_database_is_asked(columns: Any) -> None:
    section = {"url": "sqlite:///x.db", "key_columns": {"main.orders": columns}}
    with pytest.raises(InvalidConnectSetting, match=r"key_columns of main\.orders"):
        from_section("shop", section)


def test_numbers_of_a_transaction_go_on_behind_a_restart() -> None:
    first = writer(transaction_metadata=True)
    begun, one, two = first.write([Change(KEYED, "c", None, (n, "a", None), ORIGIN, 1) for n in "12"], 5)
    position = json.loads(json.dumps(first.stamped({"lsn": "0/1"})))
    again = writer(transaction_metadata=True)
    again.resume(position)
    three, ended = again.write([Change(KEYED, "c", None, ("3", "a", None), ORIGIN, 2), TransactionEnd(ORIGIN)], 5)
    orders = [json.loads(record.value or b"")["transaction"]["total_order"] for record in (one, two, three)]
    assert orders == [1, 2, 3]
    assert json.loads(begun.value or b"")["status"] == "BEGIN"
    assert json.loads(ended.value or b"")["event_count"] == 3
    assert again.stamped({"lsn": "0/2"}) == {"lsn": "0/2"}
