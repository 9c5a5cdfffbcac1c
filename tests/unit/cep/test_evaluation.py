"""Expressions in plain Python: three truth values, and values that meet as in Spark."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from headrace.cep.errors import InvalidPattern
from headrace.cep.evaluation import compile_expression
from headrace.cep.expressions import conjuncts, is_row_only, show
from headrace.cep.match import Event, Taken
from headrace.cep.reading import Scope, read_expression

ROW = {
    "x": 3, "f": 1.5, "s": "abc", "n": None, "yes": True, "d": Decimal("0.10"), "nan": float("nan"),
    "at": datetime(2030, 1, 2, tzinfo=UTC), "who": {"name": "ann", "age": 41},
}  # fmt: skip
SCOPE = {"a": frozenset({"a"}), "b": frozenset({"b"}), "u": frozenset({"a", "b"})}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 2", True), ("n > 2", None), ("n > 2 OR x > 2", True), ("n > 2 AND x < 2", False), ("NOT n", None),
        ("n IS NULL", True), ("n <=> NULL", True), ("x <=> n", False), ("x IN (1, n)", None), ("x IN (3, n)", True),
        ("x NOT IN (1, 2)", True), ("x BETWEEN 1 AND 3", True), ("s LIKE 'a%c'", True), ("s LIKE '_'", False),
        ("s LIKE 'a\\\\%'", False), ("s RLIKE '^a.c$'", True), ("x / 2", 1.5), ("x DIV 2", 1), ("-x % 2", -1),
        ("x / 0", None), ("x = '3'", True), ("s > 3", None), ("d = 0.1", True), ("nan > 1e300", True),
        ("nan = nan", True), ("x <> 3.0", False), ("yes", True), ("who.name = 'ann'", True), ("who.none", None),
        ("s.none", None), ("at > TIMESTAMP '2030-01-01 00:00:00'", True), ("at < '2030-01-03'", True),
        ("at + INTERVAL 1 DAY > TIMESTAMP '2030-01-02 12:00:00'", True),
        ("CASE WHEN n THEN 1 WHEN x > 1 THEN 2 END", 2), ("CASE x WHEN 3 THEN 'three' ELSE 'more' END", "three"),
        ("IF(x > 5, 1, 2)", 2), ("COALESCE(n, x)", 3), ("NULLIF(x, 3)", None), ("GREATEST(x, n, 7)", 7),
        ("ROUND(2.5)", 3.0), ("ABS(-x)", 3), ("UPPER(s) || 'd'", "ABCd"), ("SUBSTRING(s, 2, 1)", "b"),
        ("LENGTH(s)", 3), ("CAST('7' AS INT)", 7), ("CAST(s AS INT)", None), ("CAST(x AS STRING)", "3"),
    ],
)  # fmt: skip
def test_values(text, expected):
    value = compile_expression(read_expression(text, Scope()))(Event(ROW))
    assert value == expected
    assert type(value) is type(expected)


def history(*values):
    """Rows of a match: a, then b, alternating; the last is the one at hand."""
    row, before = None, ()
    for number, x in enumerate(values):
        event = Event({"x": x}, number, number)
        event.before = before
        before = (event.values, *before)
        row = Taken("ab"[number % 2], event, row)
    return row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.x", 5), ("b.x", 8), ("FIRST(a.x)", 1), ("LAST(a.x, 1)", 1), ("LAST(a.x, 5)", None), ("FIRST(b.x, 1)", 8),
        ("PREV(x)", 5), ("PREV(x, 3)", 1), ("PREV(x, 4)", None), ("PREV(a.x)", 2), ("PREV(LAST(a.x, 1))", None),
        ("COUNT(*)", 4), ("COUNT(a.*)", 2), ("SUM(a.x)", 6), ("AVG(u.x)", 4.0), ("MIN(x)", 1), ("MAX(a.x + 1)", 6),
        ("COUNT(DISTINCT a.x)", 2), ("CLASSIFIER()", "b"), ("x - FIRST(x)", 7),
    ],
)  # fmt: skip
def test_earlier_rows(text, expected):
    assert compile_expression(read_expression(text, Scope(SCOPE, "b")))(history(1, 2, 5, 8)) == expected


def test_what_looks_at_one_row_is_told_apart():
    condition = read_expression("x > 1 AND b.y = 2 AND x < LAST(a.x)", Scope(SCOPE, "b"))
    assert [(show(part), is_row_only(part)) for part in conjuncts(condition)] == [
        ("x > 1", True), ("y = 2", True), ("x < LAST(a.x)", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a.x + SUM(b.x + a.x)", "one variable only"),
        ("SUM(LAST(a.x))", "nested"),
        ("SUM(*)", "not a star"),
        ("COUNT(z.*)", "unknown variable 'z'"),
        ("LAST(a.x, 1.5)", "whole number"),
        ("x IN (SELECT 1)", "not a query"),
        ("ROUND()", "operand is missing"),
        ("CAST(x AS BINARY)", "unsupported"),
        ("LOWER(s, x)", "arguments"),
        ("x; y", "not several"),
        ("LOWER(x).y", "between names only"),
        ("NOT " * 5_000 + "x", "within each other"),
        (" + ".join(["x"] * 5_000), "within each other"),
    ],
)
def test_what_has_no_meaning_is_refused(text, sentence):
    with pytest.raises(InvalidPattern, match=sentence):
        read_expression(text, Scope(SCOPE, "b"))
