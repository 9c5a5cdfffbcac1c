"""What tables as changes are made of: schemas to declare, rows as bytes, and what is refused before anything runs."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.pipelines.errors import BadOption
from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.tables.changes import table_changes
from headrace.pipelines.operators.tables.changes_reading import envelope_schema, row_schema
from headrace.pipelines.operators.tables.form import TIME_TYPE, VERSION_TYPE, WEIGHT_TYPE, check_form, check_row_names
from headrace.pipelines.operators.tables.joins.join import join_tables
from headrace.pipelines.operators.tables.row_bytes import check_columns, from_bytes, to_bytes


def test_an_envelopes_schema_is_made_of_a_rows() -> None:
    made = envelope_schema("id long, name string,")
    assert made.startswith(
        "before STRUCT<id long, name string>, after STRUCT<id long, name string>, op STRING, source "
    )
    assert made.endswith("_key STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP")
    typed = StructType([StructField("id", LongType()), StructField("a name", StringType())])
    assert row_schema(typed).startswith("`id` bigint, `a name` string, _key STRING")


def test_rows_come_back_from_their_bytes() -> None:
    moment = dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC)
    rows = pa.RecordBatch.from_pylist(
        [
            {"n": 1, "s": "é", "f": 1.5, "b": True, "d": Decimal("1.25"), "t": moment, "l": [1, None], "x": b"\0"},
            {"n": None, "s": "", "f": None, "b": None, "d": None, "t": None, "l": None, "x": None},
            {"n": -1, "s": None, "f": float("inf"), "b": False, "d": Decimal("-3.50"), "t": moment, "l": [], "x": b""},
        ],
        schema=pa.schema(
            [
                ("n", pa.int32()),
                ("s", pa.string()),
                ("f", pa.float64()),
                ("b", pa.bool_()),
                ("d", pa.decimal128(10, 2)),
                ("t", TIME_TYPE),
                ("l", pa.list_(pa.int64())),
                ("x", pa.binary()),
            ]
        ),
    )
    cells = to_bytes(rows)
    assert from_bytes(cells, rows.schema).equals(rows)
    assert from_bytes(cells.slice(1, 2), rows.schema).equals(rows.slice(1, 2))
    assert from_bytes(cells.slice(0, 0), rows.schema).equals(rows.slice(0, 0))
    assert to_bytes(rows.slice(2))[0] == cells[2]


def test_a_map_is_refused() -> None:
    with pytest.raises(BadField, match=r"a column 'm' of type map.*write \.withColumn\('m', to_json\('m'\)\)"):
        check_columns(pa.schema([("m", pa.map_(pa.string(), pa.string()))]), "the table")


def test_what_is_no_table_as_changes_is_refused() -> None:
    form = [("_weight", WEIGHT_TYPE), ("_version", VERSION_TYPE), ("_time", TIME_TYPE)]
    check_form(pa.schema([("id", pa.int64()), *form]), "it")
    with pytest.raises(BadField, match="it is not a table as changes, because it has no column _time and no _weight"):
        check_form(pa.schema(form[1:2]), "it")
    with pytest.raises(BadField, match="it has both _version and _versions"):
        check_form(pa.schema([*form, ("_versions", pa.list_(VERSION_TYPE))]), "it")
    with pytest.raises(BadField, match="a column _weight of type int64, where a table as changes has int32"):
        check_form(pa.schema([("_weight", pa.int64()), *form[1:]]), "it")
    with pytest.raises(BadField, match="the table has a column '_time', which is a name of the form"):
        check_row_names(["id", "_time"], "the table")


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadField, match=r"has no primary key.*write key=\['…'\].*ALTER TABLE … ADD PRIMARY KEY"):
        table_changes([])
    with pytest.raises(BadOption, match="form='row' in table_changes: choose 'envelope' or 'rows'"):
        table_changes("id", form="row")
    with pytest.raises(BadOption, match="trust_before=True in table_changes: rows themselves have no before"):
        table_changes("id", form="rows", trust_before=True)
    with pytest.raises(BadOption, match="truncates='no' in table_changes: choose 'apply', 'refuse' or 'ignore'"):
        table_changes("id", truncates="no")
    with pytest.raises(BadOption, match="how='outer' in join_tables: choose 'inner', 'left', 'right' or 'full'"):
        join_tables(None, on="id", how="outer")  # type: ignore[arg-type]
    with pytest.raises(BadField, match="join_tables joins on no column"):
        join_tables(None, on=[])  # type: ignore[arg-type]
