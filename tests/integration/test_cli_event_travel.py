"""`headrace events replay|diff|schema` with a user's own modules: states, differences, and what fails a CI."""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.eventsourcing import EventSourcingError, NewEvent, Repository, StreamAppend, open_store
from headrace.extras import import_here
from headrace.testing import FakeClock
from tests.integration.cli_runs import assert_one_sentence, assert_wrong_call, run_cli

SHOP = """
from dataclasses import dataclass, field, replace
from headrace.eventsourcing import Aggregate, EventTypes

types = EventTypes()

@types.event("added")
@dataclass(frozen=True)
class Added:
    item: str
    price: int

@dataclass(frozen=True)
class Add:
    item: str
    price: int

@dataclass(frozen=True)
class Order:
    total: int = 0
    items: tuple[str, ...] = ()

order = Aggregate("order", Order, types=types)

@order.decide
def add(state: Order, command: Add) -> Added:
    return Added(command.item, command.price)

@order.evolve
def added(state: Order, event: Added) -> Order:
    return Order(state.total + event.price, (*state.items, event.item))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    """Two orders, and the folder with the code, in which we are."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "shop_next.py").write_text(SHOP.replace("event.price,", "min(event.price, 5),"))
    (tmp_path / "plain.py").write_text("x = 1")
    (tmp_path / "broken.py").write_text("1 / 0")
    before = os.getcwd(), list(sys.path)
    os.chdir(tmp_path)
    module: Any = import_here("shop", "shop")
    clock, store = FakeClock(), open_store("sqlite:///shop.db")
    orders = Repository(store, clock=clock)
    for item, price in (("pen", 2), ("ink", 3), ("desk", 90)):
        orders.handle(module.order, "7", module.Add(item, price))
        clock.advance(1000)
    orders.handle(module.order, "8", module.Add("pen", 2))
    store.append([StreamAppend("other-1", [NewEvent("gone", b"{}")])])
    store.close()
    yield "sqlite:///shop.db"
    os.chdir(before[0])
    sys.path[:] = before[1]
    for name in ("shop", "shop_next", "plain", "broken", "shop_new"):
        sys.modules.pop(name, None)


def replayed(*options: object) -> tuple[int, int]:
    found = run_cli("events", "replay", "sqlite:///shop.db", "order-7", "--aggregate", "shop:order", "--json", *options)
    assert found.code == 0, found
    return found.json["version"], found.json["state"]["total"]


def test_states_as_of_anything(shop: str) -> None:
    assert replayed() == (3, 95)
    assert replayed("--to", 2) == (2, 5)
    assert replayed("--to", 0) == (0, 0)
    assert replayed("--at", "2023-11-14T22:13:21Z") == (2, 5)  # the second second of a FakeClock
    assert replayed("--at", "2020-01-01") == (0, 0)
    assert replayed("--event", 1) == (1, 2)
    ident = run_cli("events", "show", shop, "order-7", "--to", 2, "--json").json_lines[1]["id"]
    assert replayed("--event", ident) == (2, 5)
    run = run_cli("events", "replay", shop, "order-7", "--aggregate", "shop:order")
    assert run.out == 'order-7 3  {"total": 95, "items": ["pen", "ink", "desk"]}\n'


def test_step_by_step(shop: str) -> None:
    options = "order-7", "--aggregate", "shop:order", "--steps"
    steps = run_cli("events", "replay", shop, *options, "--json").json_lines
    assert [each["state"]["total"] for each in steps] == [0, 2, 5, 95]
    assert [each["event"] and each["event"]["data"]["item"] for each in steps] == [None, "pen", "ink", "desk"]
    lines = run_cli("events", "replay", shop, *options, "--to", 1).out.splitlines()
    assert lines[0] == '   =  {"total": 0, "items": []}'
    assert lines[2] == '   =  {"total": 2, "items": ["pen"]}'


def test_how_a_state_has_changed(shop: str) -> None:
    run = run_cli("events", "diff", shop, "order-7", "--aggregate", "shop:order", "--from", 1, "--json")
    assert run.code == 1
    assert run.json == {
        "stream": "order-7", "from": 1, "to": 3,
        "changes": [
            {"path": "total", "before": 2, "after": 95}, {"path": "items[1]", "after": "ink"},
            {"path": "items[2]", "after": "desk"},
        ],
    }  # fmt: skip
    run = run_cli("events", "diff", shop, "order-7", "--aggregate", "shop:order", "--from", 1, "--to", 2)
    assert run.out == "  total  2 → 5\n  items[1]  nothing → ink\n"
    same = run_cli("events", "diff", shop, "order-7", "--aggregate", "shop:order", "--from", 3, "--to", "1s")
    assert (same.code, same.out) == (0, "")


def test_what_changed_code_would_make_of_it(shop: str) -> None:
    what_if = "events", "diff", shop, "--aggregate", "shop:order", "--against", "shop_next:order"
    run = run_cli(*what_if, "--json")
    assert run.code == 1
    assert run.json == {
        "stream": "order-7", "version": 3, "changes": [{"path": "total", "before": 95, "after": 10}],
    }  # fmt: skip
    assert "1 of 2 streams of category order differ" in run.err
    one = run_cli(*what_if[:3], "order-8", *what_if[3:])
    assert (one.code, one.out) == (0, "")


def test_schemas_fail_a_ci(shop: str, tmp_path: Path) -> None:
    assert_one_sentence(run_cli("events", "schema", "check", "e.json", "shop:types"), "no file e.json")
    run = run_cli("events", "schema", "write", "e.json", "shop:types")
    assert (run.code, run.out) == (0, "event 'added': version 1 is new, recorded\n")
    run = run_cli("events", "schema", "check", "e.json", "shop:order", "--strict")
    assert (run.code, run.out) == (0, "1 events, all as they were recorded\n")
    recorded = (tmp_path / "e.json").read_text()
    (tmp_path / "shop_new.py").write_text(
        SHOP.replace("item: str", "name: str").replace("command.item", "command.name")
    )
    for command in ("check", "write"):
        run = run_cli("events", "schema", command, "e.json", "shop_new:types")
        assert run.code == 1
        assert run.err.splitlines()[0].startswith(
            "event 'added': field 'item' is gone, perhaps renamed to 'name': raise"
        )
        assert len(run.err.splitlines()) == 2
        assert (tmp_path / "e.json").read_text() == recorded
    sys.modules.pop("shop_new")
    (tmp_path / "shop_new.py").write_text(SHOP.replace("price: int\n\n", "price: int\n    number: int = 1\n\n", 1))
    assert run_cli("events", "schema", "check", "e.json", "shop_new:types").code == 0
    assert run_cli("events", "schema", "check", "e.json", "shop_new:types", "--strict").code == 1
    assert run_cli("events", "schema", "write", "e.json", "shop_new:types").code == 0
    assert "number" in (tmp_path / "e.json").read_text()


def test_what_is_stored_is_read_with_the_code(shop: str) -> None:
    run_cli("events", "schema", "write", "e.json", "shop:types")
    run = run_cli("events", "schema", "check", "e.json", "shop:types", "--store", shop)
    assert run.code == 1
    assert [line.split() for line in run.out.splitlines()[1:3]] == [
        ["added", "1", "4", "yes"],
        ["gone", "1", "1", "no"],
    ]
    assert "event 1 of stream 'other-1'" in run.err
    run = run_cli("events", "schema", "check", "e.json", "shop:types", "--store", shop, "--json")
    assert run.json["stored"][0] == {
        "type": "added", "version": 1, "events": 4, "problem": "",
    }  # fmt: skip


def test_wrong_names_are_one_sentence(shop: str) -> None:
    replay = "events", "replay", shop, "order-7", "--aggregate"
    assert_wrong_call(run_cli(*replay, "shop"), "write MODULE:NAME")
    assert_wrong_call(run_cli(*replay, "nowhere:order"), "there is no module nowhere here")
    assert_wrong_call(run_cli(*replay, "shop:ordr"), "has no aggregate 'ordr'")
    assert_wrong_call(run_cli(*replay, "broken:order"), "broken fails with ZeroDivisionError")
    assert_wrong_call(run_cli(*replay, "shop:order", "--to", 1, "--at", "1h"), "only one of")
    assert_wrong_call(run_cli("events", "diff", shop, "order-7", "--aggregate", "shop:order"), "either --from")
    assert_wrong_call(run_cli("events", "diff", shop, "--aggregate", "shop:order", "--from", "1"), "name a STREAM")
    assert_one_sentence(
        run_cli("events", "replay", shop, "order-9", "--aggregate", "shop:order"), "no stream 'order-9'"
    )
    assert_one_sentence(run_cli("events", "replay", shop, "other-1", "--aggregate", "shop:order"), "the type 'gone'")
    assert_one_sentence(run_cli("events", "schema", "write", "e.json", "nowhere"), "there is no module nowhere")
    assert_one_sentence(run_cli("events", "schema", "write", "e.json", "plain", "shop:types"), "several registries")


def test_an_event_that_does_not_decode_hides_nothing_else(shop: str) -> None:
    store = open_store(shop)
    store.append([StreamAppend("order-9", [NewEvent("added", b'{"item": "pen", "price": "much"}')])])
    store.append([StreamAppend("order-9", [NewEvent("added", b'{"item": "pen", "price": 1}')])])
    store.close()
    replay = "events", "replay", shop, "order-9", "--aggregate", "shop:order"
    assert_one_sentence(run_cli(*replay), "event 1 of stream 'order-9'", "'much' is not int")
    assert run_cli(*replay, "--to", 0).code == 0
    assert len(run_cli("events", "show", shop, "order-9", "--json").json_lines) == 2
    assert replayed() == (3, 95)
    what_if = run_cli("events", "diff", shop, "--aggregate", "shop:order", "--against", "shop_next:order", "--json")
    assert [each["stream"] for each in what_if.json_lines] == ["order-7"]  # the other fails with both


def test_a_store_of_a_newer_format_is_left_alone(shop: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.execute("UPDATE headrace_events__format SET format = 99")
    before = (tmp_path / "shop.db").read_bytes()
    for command in (
        ["list", shop],
        ["show", shop, "order-7"],
        ["replay", shop, "order-7", "--aggregate", "shop:order"],
    ):
        assert_one_sentence(run_cli("events", *command), "has format 99", "install a newer one")
    with pytest.raises(EventSourcingError, match="has format 99"):
        open_store(shop)
    assert (tmp_path / "shop.db").read_bytes() == before
