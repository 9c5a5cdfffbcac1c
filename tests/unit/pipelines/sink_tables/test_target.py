"""What a user may say about a sink."""

import pytest

from headrace.stores.batch import Target
from headrace.stores.errors import ColumnMismatch, SinkMisconfigured
from headrace.stores.frames import TableColumn, check_columns, check_unique
from headrace.stores.postgres.batch import fits


def test_the_order_is_told_by_version_then_order_then_offset() -> None:
    assert Target("t", "s", ("k",), ("at",), version="n").choose_order(["k", "at", "n", "offset"]) == ("n", "at")
    assert Target("t", "s", ("k",), ("at",)).choose_order(["k", "at", "offset"]) == ("at",)
    assert Target("t", "s", ("k",)).choose_order(["k", "offset"]) == ("offset",)
    assert Target("t", "s", ("k",)).choose_order(["k", "v"]) == ()


def test_a_flag_is_not_written_and_an_expression_takes_nothing_away() -> None:
    assert Target("t", "s", ("k",), delete_when="gone").choose_columns(["k", "v", "gone"]) == ("k", "v")
    assert Target("t", "s", ("k",), delete_when="op = 'd'").choose_columns(["k", "op"]) == ("k", "op")
    with pytest.raises(SinkMisconfigured, match="'k' is a key"):
        Target("t", "s", ("k",), columns=("v",)).choose_columns(["k", "v"])
    with pytest.raises(ColumnMismatch, match="order_by names the column 'at'"):
        Target("t", "s", ("k",), ("at",)).choose_columns(["k"])
    with pytest.raises(ColumnMismatch, match="twice"):
        Target("t", "s").choose_columns(["k", "k"])


@pytest.mark.parametrize("setting", [{"delete_when": "x"}, {"version": "n"}, {"order_by": ("a",)}])
def test_merging_needs_keys(setting: dict[str, object]) -> None:
    with pytest.raises(SinkMisconfigured, match="needs keys"):
        Target("t", "s", **setting)  # type: ignore[arg-type]


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(SinkMisconfigured, match="not 'reset'"):
        Target("t", "s", on_new_query="reset")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "found", "does"),
    [
        ("bigint", "bigint", True), ("integer", "bigint", True), ("bigint", "integer", False), ("text", "uuid", True),
        ("text", "character varying", True), ("text", "bigint", False), ("numeric(10,2)", "numeric", True),
        ("numeric(10,2)", "double precision", False), ("jsonb", "json", True), ("integer[]", "bigint[]", True),
        ("integer[]", "bigint", False), ("timestamp with time zone", "timestamp without time zone", False),
    ],
)  # fmt: skip
def test_what_fits_in_postgres(wanted: str, found: str, does: bool) -> None:
    assert fits(wanted, found) is does


def test_a_column_that_must_not_be_null_is_missed() -> None:
    found = [TableColumn("a", "int"), TableColumn("b", "int", required=True)]
    with pytest.raises(ColumnMismatch, match="'b' must not be null"):
        check_columns("table t", {"a": "int"}, found, str.__eq__)
    with pytest.raises(SinkMisconfigured, match="on exactly \\(a\\)"):
        check_unique("table t", ("a",), [frozenset({"a", "b"})])
