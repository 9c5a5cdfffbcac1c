"""Bindings: which records go where, which bindings are refused, and which lead back to where they began."""

import json

import pytest

from headrace.broker.turns import run_through
from headrace.delivery.bindings import MAX_BINDINGS, InvalidBindings, check_bindings, choose_targets, parse_bindings
from headrace.errors import HeadraceError
from headrace.records import Header, Record


def record(key: bytes | None = None, value: bytes | None = b"{}", **headers: str) -> Record:
    return Record(0, 0, key, value, tuple(Header(name, text.encode()) for name, text in headers.items()))


BINDINGS = parse_bindings(
    json.dumps(
        [
            {"to": "eu", "key": "orders.eu.*"},
            {"to": "big", "where": "value.amount > 100"},
            {"to": "sales", "header": {"kind": "sale.#"}},
            {"to": "eu", "header": {"region": "eu"}},
            {"to": "big.eu", "key": "orders.eu.*", "where": "value.amount > 100"},
        ]
    )
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (record(), []),
        (record(b"orders.eu.de"), ["eu"]),
        (record(b"orders.us.ny"), []),
        (record(b"orders.eu.de", b'{"amount": 101}'), ["eu", "big", "big.eu"]),
        (record(b"orders.us.ny", b'{"amount": 101}'), ["big"]),
        (record(b"orders.eu.de", b"not JSON"), ["eu"]),
        (record(b"orders.eu.de", region="eu"), ["eu"]),
        (record(None, None, region="eu", kind="sale.web.new"), ["sales", "eu"]),
        (record(kind="return"), []),
        (record(b"\xff.eu"), []),
    ],
)
def test_a_record_goes_once_to_every_topic_that_a_binding_names_for_it(given: Record, expected: list[str]) -> None:
    assert run_through(choose_targets(BINDINGS, given)) == expected


def test_a_binding_without_a_condition_takes_every_record() -> None:
    assert run_through(choose_targets(parse_bindings('[{"to": "all"}]'), record(None, None))) == ["all"]


@pytest.mark.parametrize("text", ["", "  ", "[]"])
def test_there_may_be_none(text: str) -> None:
    assert parse_bindings(text) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("eu", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"to": "eu"}', "list"),
        ('["eu"]', "list"),
        ("[{}]", "`to`"),
        ('[{"to": ""}]', "`to`"),
        ('[{"to": "a/b"}]', "a/b"),
        ('[{"to": 7}]', "texts"),
        ('[{"to": "eu", "key": null}]', "texts"),
        ('[{"to": "eu", "header": "kind"}]', "object"),
        ('[{"to": "eu", "header": {"kind": 1}}]', "object"),
        ('[{"to": "eu", "keys": "a"}]', "'keys'"),
        ('[{"to": "eu", "key": "a..b"}]', "empty word"),
        ('[{"to": "eu", "where": "value.amount >"}]', "character 15"),
        (json.dumps([{"to": "eu"}] * (MAX_BINDINGS + 1)), f"at most {MAX_BINDINGS}"),
    ],
)
def test_what_is_malformed_is_refused_with_a_sentence(text: str, words: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        parse_bindings(text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def bind(*targets: str) -> str:
    return json.dumps([{"to": target} for target in targets])


def test_bindings_that_lead_back_are_refused() -> None:
    others = {"b": bind("x", "c"), "c": bind("d", "a"), "d": "", "x": bind("d")}
    with pytest.raises(InvalidBindings, match="a → b → c → a"):
        check_bindings("a", bind("d", "b"), others)
    with pytest.raises(InvalidBindings, match="a → a"):
        check_bindings("a", bind("a"), {})


def test_two_ways_to_one_topic_are_no_loop_and_neither_is_what_the_topic_was_bound_to_before() -> None:
    others = {"a": bind("b"), "b": bind("d"), "c": bind("d")}
    assert len(check_bindings("a", bind("b", "c"), others)) == 2
    assert check_bindings("b", "", others) == ()
    assert len(check_bindings("a", bind("e"), others | {"e": bind("b"), "b": bind("c")})) == 1


def test_bindings_of_others_that_cannot_be_read_lead_nowhere() -> None:
    assert len(check_bindings("a", bind("b"), {"b": "of another version"})) == 1
