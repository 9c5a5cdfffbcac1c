"""What every batch sink must do, with a real Spark; see `headrace.stores.batch`.

    class TestMySink(UpsertingSinkContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

`store` is a `BatchStore`: it makes sinks, and reads what is there without them. A fixture `spark` is a session. A sink
that only appends passes `BatchSinkContract`.
"""

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Protocol

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from headrace.stores.errors import ColumnMismatch, ForeignQuery, SinkMisconfigured

ALL_TYPES = (
    "k int, flag boolean, tiny tinyint, small smallint, big bigint, single float, double double, exact decimal(38,10), "
    "text string, raw binary, day date, instant timestamp, wall timestamp_ntz, numbers array<bigint>, "
    "words array<string>, a_struct struct<x:int,y:string>, a_map map<string,int>, deep array<struct<z:int>>"
)
FULL: dict[str, Any] = {
    "k": 1, "flag": True, "tiny": -128, "small": 32767, "big": -(2**63), "single": 0.5, "double": 0.1,
    "exact": Decimal("1234567890123456789012345678.0123456789"), "text": 'tab\t line\n \\ "q" \u00e4 \U0001f600 \r',
    "raw": b"\x00\xff\n\\", "day": date(1969, 2, 28), "instant": datetime(2024, 3, 31, 1, 2, 3, 456789, UTC),
    "wall": datetime(2024, 3, 31, 2, 30),  # noqa: DTZ001 - no zone is the point
    "numbers": [1, None, -3], "words": ['a"b', "c\\d", None, "", "NULL", "e,f{}"],
    "a_struct": {"x": 1, "y": None}, "a_map": {"one": 1, "two": None}, "deep": [{"z": 1}, {"z": None}],
}  # fmt: skip
NULLS: dict[str, Any] = {**dict.fromkeys(FULL), "k": 2}
EMPTY: dict[str, Any] = {**NULLS, "k": 3, "text": "", "raw": b"", "numbers": [], "words": [], "a_map": {}, "deep": []}
FIRST: dict[str, Any] = {
    **NULLS, "k": 4, "day": date.min, "instant": datetime.min.replace(tzinfo=UTC), "wall": datetime.min,  # noqa: DTZ901
}  # fmt: skip
LAST: dict[str, Any] = {
    **NULLS, "k": 5, "day": date.max, "instant": datetime.max.replace(tzinfo=UTC), "wall": datetime.max,  # noqa: DTZ901
}  # fmt: skip
ROWS = (FULL, NULLS, EMPTY, FIRST, LAST)


class BatchStore(Protocol):
    """A store as the tests see it."""

    upserts: bool
    replaces: bool  # a new query may begin again with an empty target
    takes_any_value: bool  # in any column
    takes_any_type: bool
    versions_with_deletes: bool  # for one that upserts

    def sink(self, table: str, keys: list[str] | None = None, **options: Any) -> Any:
        """A sink for a table."""
        ...

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What is in a table; nothing if it is not there."""
        ...

    def stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of Spark's as `rows` reads it."""
        ...


def rows_of(store: BatchStore, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[column] for column in columns) for row in store.rows(table))


class BatchSinkContract:
    """Appending, and which query's batches are taken."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, spark: SparkSession) -> Iterator[None]:
        """An instant is the same instant in every zone, so the session has another one than the stores."""
        spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
        yield
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    @pytest.fixture
    def query(self, spark: SparkSession) -> Iterator[Any]:
        """Says which query the next batches come from, as Spark does in the thread of `foreachBatch`."""
        yield lambda name: spark.sparkContext.setLocalProperty("sql.streaming.queryId", name)
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]

    @pytest.fixture
    def table(self, request: pytest.FixtureRequest) -> str:
        return f"t_{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]}"

    def test_appends_each_batch_once(self, store: BatchStore, spark: SparkSession, table: str) -> None:
        sink = store.sink(table)
        first, second = spark.range(0, 10, numPartitions=3), spark.range(10, 15, numPartitions=2)
        sink(first, 0)
        sink(first, 0)
        sink(second, 1)
        sink(second, 1)
        assert rows_of(store, table, "id") == [(n,) for n in range(15)]

    def test_an_empty_batch_is_a_batch(self, store: BatchStore, spark: SparkSession, table: str) -> None:
        sink = store.sink(table)
        sink(spark.range(0), 0)
        sink(spark.range(3), 1)
        sink(spark.range(3), 1)
        assert rows_of(store, table, "id") == [(0,), (1,), (2,)]

    @pytest.mark.parametrize("keys", [[], ["k"]], ids=["append", "upsert"])
    def test_every_type_comes_back_as_it_went(
        self, store: BatchStore, spark: SparkSession, table: str, keys: list[str]
    ) -> None:
        if keys and not store.upserts:
            pytest.skip("it only appends")
        df = spark.createDataFrame(ROWS, ALL_TYPES)
        store.sink(table, keys)(df, 0)
        store.sink(table, keys)(df, 0)
        assert sorted(store.rows(table), key=lambda row: row["k"]) == [store.stored(row) for row in ROWS]

    def test_two_sinks_share_a_store_and_a_table(
        self, store: BatchStore, spark: SparkSession, table: str, query: Any
    ) -> None:
        one, two, other = (
            store.sink(table, name="one"),
            store.sink(table, name="two"),
            store.sink(table + "_b", name="three"),
        )
        query("first")
        one(spark.range(0, 3), 0)
        other(spark.range(100, 103), 0)
        query("second")
        two(spark.range(3, 6), 0)
        two(spark.range(3, 6), 0)
        query("first")
        one(spark.range(0, 3), 0)
        one(spark.range(6, 8), 1)
        assert rows_of(store, table, "id") == [(n,) for n in range(8)]
        assert rows_of(store, table + "_b", "id") == [(100,), (101,), (102,)]

    def test_sinks_write_to_one_store_at_the_same_time(
        self, store: BatchStore, spark: SparkSession, table: str
    ) -> None:
        def write(number: int) -> None:
            for batch in range(3):
                start = number * 1000 + batch * 10
                store.sink(f"{table}_n{number}", name=f"n{number}")(spark.range(start, start + 10), batch)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(write, range(2)))
        for n in range(2):
            assert rows_of(store, f"{table}_n{n}", "id") == [(n * 1000 + i,) for i in range(30)]

    @pytest.mark.parametrize("before", [False, True], ids=["first batch", "later batch"])
    def test_a_failed_batch_leaves_nothing(
        self, store: BatchStore, spark: SparkSession, table: str, before: bool
    ) -> None:
        sink = store.sink(table)
        if before:
            sink(spark.range(5), 0)
        breaks = spark.range(0, 100, numPartitions=4).select(
            F.when(F.col("id") == 99, F.raise_error(F.lit("broken on purpose")).cast("long"))
            .otherwise(F.col("id"))
            .alias("id")
        )
        with pytest.raises(Exception, match="broken on purpose"):
            sink(breaks, 1)
        expected = [(n,) for n in range(5)] if before else []
        assert rows_of(store, table, "id") == expected
        sink(spark.range(10, 12), 1)
        assert rows_of(store, table, "id") == [*expected, (10,), (11,)]

    def test_another_checkpoint_is_refused(
        self, store: BatchStore, spark: SparkSession, table: str, query: Any
    ) -> None:
        query("old")
        store.sink(table)(spark.range(3), 0)
        store.sink(table)(spark.range(3, 5), 1)
        query("new")
        advice = "replace" if store.replaces else "continue"
        with pytest.raises(ForeignQuery, match=f"on_new_query='{advice}'"):
            store.sink(table)(spark.range(3), 0)
        assert rows_of(store, table, "id") == [(n,) for n in range(5)]
        query("old")
        with pytest.raises(ForeignQuery, match="checkpoint is older"):
            store.sink(table)(spark.range(3), 0)
        store.sink(table)(spark.range(5, 6), 2)
        assert rows_of(store, table, "id") == [(n,) for n in range(6)]

    def test_a_new_query_may_continue(self, store: BatchStore, spark: SparkSession, table: str, query: Any) -> None:
        query("old")
        store.sink(table)(spark.range(3), 7)
        query("new")
        going_on = store.sink(table, on_new_query="continue")
        going_on(spark.range(10, 12), 0)
        going_on(spark.range(10, 12), 0)
        query("old")
        with pytest.raises(ForeignQuery, match="superseded"):
            going_on(spark.range(20, 22), 8)
        assert rows_of(store, table, "id") == [(0,), (1,), (2,), (10,), (11,)]

    @pytest.mark.parametrize("keys", [[], ["id"]], ids=["append", "upsert"])
    def test_a_new_query_may_begin_again(
        self, store: BatchStore, spark: SparkSession, table: str, query: Any, keys: list[str]
    ) -> None:
        if not store.replaces:
            pytest.skip("it cannot begin again in its place")
        query("old")
        store.sink(table, keys)(spark.range(3), 7)
        query("new")
        fresh = store.sink(table, keys, on_new_query="replace")
        fresh(spark.range(10, 12), 0)
        fresh(spark.range(10, 12), 0)
        fresh(spark.range(12, 13), 1)
        assert rows_of(store, table, "id") == [(10,), (11,), (12,)]

    def test_a_column_without_a_place_is_refused_before_anything_is_written(
        self, store: BatchStore, spark: SparkSession, table: str
    ) -> None:
        store.sink(table)(spark.range(3), 0)
        with pytest.raises(ColumnMismatch, match="'extra'") as error:
            store.sink(table)(spark.range(3).withColumn("extra", F.lit(1)), 1)
        assert error.value.column == "extra"
        assert rows_of(store, table, "id") == [(0,), (1,), (2,)]

    def test_a_type_that_does_not_fit_is_refused(self, store: BatchStore, spark: SparkSession, table: str) -> None:
        if store.takes_any_value:
            pytest.skip("a column takes any value")
        store.sink(table)(spark.range(3), 0)
        with pytest.raises(ColumnMismatch, match="'id'"):
            store.sink(table)(spark.range(3).select(F.col("id").cast("string")), 1)

    def test_a_type_without_a_counterpart_is_refused(self, store: BatchStore, spark: SparkSession, table: str) -> None:
        if store.takes_any_type:
            pytest.skip("it takes what Spark writes")
        with pytest.raises(ColumnMismatch, match="'span'"):
            store.sink(table)(spark.sql("SELECT interval '1' day AS span"), 0)
        assert store.rows(table) == []


class UpsertingSinkContract(BatchSinkContract):
    """Upserts, deletes and versions besides."""

    def test_upserts_deletes_and_keeps_the_last_change_of_a_key(
        self, store: BatchStore, spark: SparkSession, table: str
    ) -> None:
        sink = store.sink(table, ["k", "g"], order_by="at", delete_when="op = 'd'", columns=["k", "g", "v"])
        shape = "k string, g int, v string, op string, at int"
        sink(
            spark.createDataFrame(
                [("a", 1, "old", "u", 1), ("a", 1, "new", "u", 3), ("a", 1, "mid", "d", 2), ("b", 1, "x", "u", 1),
                 ("c", 1, "born dead", "u", 1), ("c", 1, None, "d", 2), ("d", 2, None, "u", 1)], shape
            ).repartition(3), 0,
        )  # fmt: skip
        assert sorted(map(str, rows_of(store, table, "k", "g", "v"))) == [
            "('a', 1, 'new')", "('b', 1, 'x')", "('d', 2, None)",
        ]  # fmt: skip
        second = spark.createDataFrame(
            [
                ("a", 1, None, "d", 4),
                ("b", 1, "y", "d", 2),
                ("b", 1, "z", "u", 3),
                ("e", 1, "fresh", "u", 1),
                ("q", 9, None, "d", 1),
            ],
            shape,
        )
        sink(second, 1)
        expected = ["('b', 1, 'z')", "('d', 2, None)", "('e', 1, 'fresh')"]
        assert sorted(map(str, rows_of(store, table, "k", "g", "v"))) == expected
        sink(second, 1)
        sink(spark.createDataFrame([("a", 1, "again", "u", 1)], shape), 2)
        assert sorted(map(str, rows_of(store, table, "k", "g", "v"))) == ["('a', 1, 'again')", *expected]

    def test_a_boolean_column_says_what_to_delete_and_offsets_order(
        self, store: BatchStore, spark: SparkSession, table: str
    ) -> None:
        sink = store.sink(table, ["k"], delete_when="gone")
        shape = "k int, v string, gone boolean, offset long"
        sink(
            spark.createDataFrame(
                [(1, "a", False, 1), (2, "b", None, 2), (1, "c", False, 3), (3, "d", True, 4)], shape
            ),
            0,
        )
        assert rows_of(store, table, "k", "v", "offset") == [(1, "c", 3), (2, "b", 2)]
        assert all("gone" not in row for row in store.rows(table))

    def test_an_older_version_never_overwrites_a_newer_one(
        self, store: BatchStore, spark: SparkSession, table: str
    ) -> None:
        sink = store.sink(table, ["k"], version="n")
        shape = "k int, v string, n long"
        sink(spark.createDataFrame([(1, "five", 5), (1, "four", 4), (2, "one", 1)], shape), 0)
        sink(spark.createDataFrame([(1, "three", 3), (2, "two", 2), (3, "nine", 9)], shape), 1)
        sink(spark.createDataFrame([(3, "nine again", 9)], shape), 2)
        assert rows_of(store, table, "k", "v", "n") == [(1, "five", 5), (2, "two", 2), (3, "nine again", 9)]

    def test_an_older_version_brings_no_deleted_row_back(
        self, store: BatchStore, spark: SparkSession, table: str
    ) -> None:
        if not store.versions_with_deletes:
            with pytest.raises(SinkMisconfigured, match="version or delete_when"):
                store.sink(table, ["k"], version="n", delete_when="gone")
            return
        sink = store.sink(table, ["k"], version="n", delete_when="gone")
        shape = "k int, v string, n long, gone boolean"
        sink(spark.createDataFrame([(1, "a", 1, False), (2, "b", 7, False)], shape), 0)
        sink(spark.createDataFrame([(1, None, 5, True), (2, None, 6, True), (3, None, 5, True)], shape), 1)
        assert rows_of(store, table, "k", "v", "n") == [(2, "b", 7)]
        sink(spark.createDataFrame([(1, "late", 4, False), (3, "late", 4, False)], shape), 2)
        assert rows_of(store, table, "k", "v", "n") == [(2, "b", 7)]
        sink(spark.createDataFrame([(1, "newer", 6, False)], shape), 3)
        sink(spark.createDataFrame([(1, "stale", 5, True)], shape), 4)
        assert rows_of(store, table, "k", "v", "n") == [(1, "newer", 6), (2, "b", 7)]

    def test_settings_that_name_no_column_are_refused(self, store: BatchStore, spark: SparkSession, table: str) -> None:
        with pytest.raises(ColumnMismatch, match="keys names the column 'user'"):
            store.sink(table, ["user"])(spark.range(3), 0)
        with pytest.raises(SinkMisconfigured, match="delete_when needs keys"):
            store.sink(table, delete_when="id > 1")

    def test_rows_that_cannot_be_told_apart_are_errors(
        self, store: BatchStore, spark: SparkSession, table: str
    ) -> None:
        with pytest.raises(Exception, match="nothing says which is the last"):
            store.sink(table, ["k"])(spark.createDataFrame([(1, "a"), (1, "b")], "k int, v string"), 0)
        with pytest.raises(Exception, match="a row has no 'k'"):
            store.sink(table, ["k"])(spark.createDataFrame([(None, "a")], "k int, v string"), 0)
        assert store.rows(table) == []

    def test_names_may_be_anything(self, store: BatchStore, spark: SparkSession, table: str) -> None:
        sink = store.sink(table, ["a key"], name='it\'s 100% "mine"')
        df = spark.createDataFrame([(1, 2)], "`a key` int, `select` int")
        sink(df, 0)
        sink(df.withColumn("select", F.lit(3)), 1)
        assert rows_of(store, table, "a key", "select") == [(1, 3)]
