"""Filters of messages: the language of selectors, held against SQLite where both have the same, and its limits."""

from __future__ import annotations

import json
import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.delivery.filters import Filter, InvalidFilter
from headrace.records import Header, Record

VALUE = {"amount": 120, "kind": "gold", "ok": True, "no": None, "list": [{"a": 1.5}], "odd name": 7, "half": "\ud800"}
HEADERS = (
    Header("region", b"us"),
    Header("region", b"eu"),
    Header("x-retries", b"7"),
    Header("flag", b"TRUE"),
    Header("a.b", b"dotted"),
    Header("odd name", b"q"),
    Header("empty", None),
    Header("bytes", b"\xff\xfe"),
)


def record(value: object = VALUE, key: bytes | None = b"orders.eu") -> Record:
    data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    return Record(0, 0, key, data, HEADERS)


@pytest.mark.parametrize(
    "text",
    [
        "header.region = 'eu'",  # the last one counts
        "header.region = 'eu' AND value.amount > 100",
        "value.amount >= 120 and value.amount <= 120",
        "value.amount BETWEEN 1 AND 120",
        "value.amount NOT BETWEEN 1 AND 119.5",
        "value.amount = 1.2e2",
        "value.amount > -5",
        "value.kind IN ('silver', 'gold')",
        "value.kind NOT IN ('silver')",
        "value.kind < 'h'",
        "value.kind LIKE 'g%' AND value.kind LIKE '_old'",
        "value.kind NOT LIKE 'o%'",
        "key LIKE 'orders.%'",
        "key LIKE 'orders!.e_' ESCAPE '!'",
        "NOT key LIKE 'orders!_e_' ESCAPE '!'",
        "value LIKE '%gold%'",
        "value.ok",
        "value.ok = TRUE AND value.ok <> FALSE",
        "header.flag",
        "header.flag = TRUE",
        "header.x-retries > 6 AND header.x-retries IN (7)",
        "header.a.b = 'dotted'",
        "header.\"odd name\" = 'q'",
        'value."odd name" = 7',
        "value.list.0.a = 1.5",
        "value.missing IS NULL AND value.no IS NULL AND value.list IS NULL",
        "header.empty IS NULL AND header.missing IS NULL",
        "value.list.9.a IS NULL AND value.kind.deeper IS NULL",
        "header.bytes IS NOT NULL",
        "value.half IS NOT NULL AND NOT value.half LIKE 'x%'",
        "(value.missing = 1 OR TRUE) AND NOT (value.missing = 1 AND FALSE)",
        "NOT value.kind = 3 AND NOT value.kind <> 3",  # of different types: false, as in JMS
        "'it''s' = 'it''s'",
    ],
)
def test_what_matches(text: str) -> None:
    assert Filter(text).matches(record())


@pytest.mark.parametrize(
    "text",
    [
        "header.region = 'us'",
        "value.missing = 1",
        "NOT value.missing = 1",  # unknown is not true, whichever way round
        "value.missing <> 1",
        "value.missing IN (1)",
        "value.missing NOT IN (1)",
        "value.missing BETWEEN 1 AND 2 OR value.missing LIKE 'a'",
        "value.amount > 'a'",
        "value.amount = '120'",  # JSON has types
        "header.region > 5",
        "value.ok > FALSE",
        "value.amount",
        "value.kind",
    ],
)
def test_what_does_not_match(text: str) -> None:
    assert not Filter(text).matches(record())


@pytest.mark.parametrize("value", [None, b"", b"no JSON", b"[" * 100_000, b"9" * 10_000, b'"text"', b"\xff", b"NaN"])
def test_a_value_that_is_no_object_has_no_fields(value: bytes | None) -> None:
    assert Filter("value.a.b IS NULL").matches(record(value))
    assert not Filter("value.a = 1 OR value.a <> 1").matches(record(value))
    assert Filter("value IS NULL").matches(record(value)) is (value is None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a field.* at character 1, where the filter ends"),
        ("amount = 1", "amount at character 1 is unknown: give key, value, value.FIELD or header.NAME"),
        ("header = 1", "header at character 1 is unknown"),
        ("value.a =", "at character 10, where the filter ends"),
        ("value.a = 'open", "'open\" at character 11 cannot be read"),
        ("(value.a = 1", r"expected \) at character 13"),
        ("value.a = 1 value.b = 2", "expected AND, OR or the end at character 13, where there is value.b"),
        ("value.a IN ()", "expected a field"),
        ("value.a IN (value.b)", "expected a field, a text"),
        ("value.a LIKE 5", "expected a pattern in single quotes"),
        ("value.a LIKE 'a!' ESCAPE '!'", "ends with its escape character"),
        ("value.a LIKE 'a' ESCAPE 'xy'", "give one character"),
        ("value.a BETWEEN 1", "expected AND"),
        ("value.a = NULL", "expected a field"),
        ("value.a @ 1", "'@ 1' at character 9 cannot be read"),
        ("NOT " * 60 + "TRUE", "nested more than 50 deep"),
        ("(" * 60 + "TRUE" + ")" * 60, "nested more than 50 deep"),
        ("TRUE OR " * 600 + "TRUE", "give at most 4096"),
        ("__import__('os')", "__import__ at character 1 is unknown"),
    ],
)
def test_a_malformed_filter_is_refused_in_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason) as refused:
        Filter(text)
    assert "\n" not in str(refused.value)


def test_the_longest_filter_is_evaluated() -> None:
    chain = "FALSE OR " * 400
    assert Filter(chain + "TRUE").matches(record())
    assert not Filter(chain.replace("OR", "AND")[:-4]).matches(record())


def test_a_pattern_is_matched_in_linear_time() -> None:
    hostile = Filter("value LIKE '" + "%a" * 500 + "%b'")
    began = time.process_time()
    assert not hostile.matches(record(b"a" * 20_000))
    assert time.process_time() - began < 30, "backtracking would take years"


# --- the same condition in SQL

FIELDS = ("@a", "@b", "@s")
operands = st.sampled_from(["@a", "@b"]) | st.integers(-2, 3).map(str)
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
texts = st.text(alphabet="ab%_", max_size=3)
comparisons = st.builds(lambda left, sign, right: f"{left} {sign} {right}", operands, signs, operands)
negations = st.sampled_from(["", "NOT "])
predicates = st.one_of(
    comparisons,
    st.builds(lambda field, no: f"{field} IS {no}NULL", st.sampled_from(FIELDS), negations),
    st.builds(
        lambda field, no, low, high: f"{field} {no}BETWEEN {low} AND {high}", operands, negations, operands, operands
    ),
    st.builds(
        lambda field, no, values: f"{field} {no}IN ({', '.join(map(str, values))})",
        operands,
        negations,
        st.lists(st.integers(-2, 3), min_size=1, max_size=3),
    ),
    st.builds(lambda no, pattern: f"@s {no}LIKE '{pattern}'", negations, texts),
)
conditions = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.builds(lambda left, word, right: f"({left} {word} {right})", inner, st.sampled_from(["AND", "OR"]), inner),
        inner.map(lambda each: f"NOT ({each})"),
    ),
    max_leaves=8,
)
numbers = st.none() | st.integers(-2, 3)


@given(conditions, numbers, numbers, st.none() | st.text(alphabet="ab", max_size=3))
def test_conditions_are_as_true_as_in_sql(condition: str, a: int | None, b: int | None, s: str | None) -> None:
    ours = Filter(condition.replace("@", "value.")).matches(record({"a": a, "b": b, "s": s}))
    assert ours is (sql_of(condition.replace("@", ""), a, b, s) == 1), condition


def sql_of(condition: str, *values: object) -> object:
    return DATABASE.execute(f"SELECT ({condition}) FROM (SELECT ? AS a, ? AS b, ? AS s)", values).fetchone()[0]


DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
DATABASE.execute("PRAGMA case_sensitive_like = ON")
