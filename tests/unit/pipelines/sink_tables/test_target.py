"""What a user may say about a sink."""

import pytest
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace.stores.batch import TableColumn, Target
from headrace.stores.duckdb.database import DuckdbDatabase
from headrace.stores.errors import ColumnMismatch, SinkMisconfigured
from headrace.stores.frames import check_columns, check_unique
from headrace.stores.postgres.database import PostgresDatabase
from headrace.stores.sqlite.database import SqliteDatabase


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
    assert PostgresDatabase.fits(wanted, found) is does


def test_a_column_that_must_not_be_null_is_missed() -> None:
    found = [TableColumn("a", "int"), TableColumn("b", "int", required=True)]
    with pytest.raises(ColumnMismatch, match="'b' must not be null"):
        check_columns("table t", {"a": "int"}, found, str.__eq__)
    with pytest.raises(SinkMisconfigured, match="on exactly \\(a\\)"):
        check_unique("table t", ("a",), [frozenset({"a", "b"})])


TYPES: list[tuple[T.DataType, str | None, str | None, str | None]] = [
    (T.BooleanType(), "INTEGER", "BOOLEAN", "boolean"),
    (T.ByteType(), "INTEGER", "TINYINT", "smallint"),
    (T.ShortType(), "INTEGER", "SMALLINT", "smallint"),
    (T.IntegerType(), "INTEGER", "INTEGER", "integer"),
    (T.LongType(), "INTEGER", "BIGINT", "bigint"),
    (T.FloatType(), "REAL", "FLOAT", "real"),
    (T.DoubleType(), "REAL", "DOUBLE", "double precision"),
    (T.StringType(), "TEXT", "VARCHAR", "text"),
    (T.VarcharType(3), None, "VARCHAR", "text"),
    (T.BinaryType(), "BLOB", "BLOB", "bytea"),
    (T.DateType(), "TEXT", "DATE", "date"),
    (T.TimestampType(), "TEXT", "TIMESTAMP WITH TIME ZONE", "timestamp with time zone"),
    (T.TimestampNTZType(), "TEXT", "TIMESTAMP", "timestamp without time zone"),
    (T.DecimalType(10, 2), "TEXT", "DECIMAL(10,2)", "numeric(10,2)"),
    (T.ArrayType(T.DecimalType(4, 1)), None, "DECIMAL(4,1)[]", "numeric(4,1)[]"),
    (T.MapType(T.StringType(), T.IntegerType()), None, "MAP(VARCHAR, INTEGER)", None),
    (T.MapType(T.StringType(), T.VariantType()), None, None, None),
    (T.StructType([T.StructField("a", T.LongType())]), None, 'STRUCT("a" BIGINT)', None),
    (T.VariantType(), None, None, None),
]


@pytest.mark.parametrize(("kind", "sqlite", "duckdb", "postgres"), TYPES, ids=lambda each: str(each))
def test_each_store_has_its_type_for_one_of_sparks(
    kind: T.DataType, sqlite: str | None, duckdb: str | None, postgres: str | None
) -> None:
    assert SqliteDatabase.type_of(kind) == sqlite
    assert DuckdbDatabase.type_of(kind) == duckdb
    assert PostgresDatabase.type_of(kind) == postgres


def test_a_sink_takes_one_word_for_several_and_refuses_one_that_it_does_not_know() -> None:
    given = Target.of("t", "sqlite:t", "k", order_by="at", columns=["k", "at"], name="")
    assert given == Target("t", "sqlite:t", ("k",), ("at",), columns=("k", "at"))
    assert Target.of("t", "s", (), name="own", create=False) == Target("t", "own", create=False)
    with pytest.raises(SinkMisconfigured, match="no setting 'ordr_by': did you mean 'order_by'"):
        Target.of("t", "s", "k", ordr_by="at")  # type: ignore[call-arg]
