"""Two streams joined by key and window: every kind of window and of join, across a restart, exact against DuckDB."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import correct, event_time, join_windows, tumbling
from headrace.pipelines.operators.errors import BadField, BadWindow
from tests.integration.operator_streams import Stream, asked, at, shown

pytestmark = pytest.mark.java

ORDERS, PAYMENTS = "id string, n long, ts timestamp", "order_id string, cents long, ts timestamp"
TABLES = {"orders": "id varchar, n bigint, ts timestamp", "payments": "order_id varchar, cents bigint, ts timestamp"}


def events(name: str, number: str, seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [
        {name: chance.choice(["a", "b", "c", "d", None]), number: place, "ts": at(place * 2 + chance.random() * 4)}
        for place in range(60)
    ]


GIVEN = {"orders": events("id", "n", 1), "payments": events("order_id", "cents", 2)}
END = {"orders": [{"id": "end", "n": 0, "ts": at(9000)}], "payments": [{"order_id": "end", "cents": 0, "ts": at(9000)}]}
BATCHES = [
    {name: rows[:30] for name, rows in GIVEN.items()},
    {name: rows[30:] for name, rows in GIVEN.items()},
    END,
]
NAMES = ("id", "window_start", "window_end", "n", "ts", "cents", "right_ts")
PLACED = """{name}s AS (SELECT *, make_timestamp(start) window_start, make_timestamp(start + 20000000) window_end FROM
    (SELECT *, unnest([0, 10000000]) back, (epoch_us(ts) - back) // 10000000 * 10000000 AS start FROM {of})
    WHERE epoch_us(ts) < start + 20000000 AND (hops OR start % 20000000 = 0))"""
SPARKS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path, orders=ORDERS, payments=PAYMENTS)


def timed(frame: DataFrame) -> DataFrame:
    return frame.transform(event_time("ts", delay="5 seconds", into="ts"))


def joined(**given: Any) -> Any:
    return lambda orders, payments: timed(orders).transform(
        join_windows(timed(payments), on={"id": "order_id"}, **given)
    )


def expected(how: str, *, hops: bool) -> Any:
    placed = [
        PLACED.format(name=name, of=of).replace("hops", str(hops)) for name, of in (("l", "orders"), ("r", "payments"))
    ]
    same = "id = order_id AND l.window_start = r.window_start"
    edges = "coalesce(l.window_start, r.window_start), coalesce(l.window_end, r.window_end)"
    if how in ("semi", "anti"):
        which = "" if how == "semi" else "NOT"
        select = f"""SELECT id, window_start, window_end, n, ts FROM ls l WHERE {which} EXISTS
            (SELECT 1 FROM rs r WHERE {same})"""
    else:
        select = (
            f"""SELECT coalesce(id, order_id), {edges}, n, l.ts, cents, r.ts FROM ls l {SPARKS[how]} rs r ON {same}"""
        )
    tables = {name: (rows, TABLES[name]) for name, rows in GIVEN.items()}
    return asked(f"WITH {', '.join(placed)} {select}", **tables)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_tumbling_windows(spark: SparkSession, how: str) -> None:
    """Of frames that are no streams: what is joined is the same."""
    frames = [
        spark.createDataFrame(
            [{**row, "ts": row["ts"]} for row in GIVEN[name]], shape.replace("timestamp", "string")
        ).withColumn("ts", fn_timestamp())
        for name, shape in (("orders", ORDERS), ("payments", PAYMENTS))
    ]
    found = joined(size="20 seconds", how=how, time="ts", right_time="ts")(*frames).collect()
    names = NAMES[:5] if how in ("semi", "anti") else NAMES
    assert shown(found, *names) == expected(how, hops=False)


def fn_timestamp() -> Any:
    from pyspark.sql import functions as fn

    return fn.to_timestamp("ts")


def test_streams_in_tumbling_windows(stream: Stream) -> None:
    found = shown(stream.feed(joined(size="20 seconds", how="full"), BATCHES), *NAMES)
    ends = {row for row in found if row[0] == "end"}
    assert {row: count for row, count in found.items() if row not in ends} == expected("full", hops=False)


def test_streams_in_hopping_windows(stream: Stream) -> None:
    found = shown(stream.feed(joined(size="20 seconds", every="10 seconds"), BATCHES), *NAMES)
    assert {row: count for row, count in found.items() if row[0] != "end"} == expected("inner", hops=True)


def test_streams_in_sessions(stream: Stream) -> None:
    """A session is of the rows of both sides, and a row of one may hold together two of the other."""

    def order(second: float, n: int) -> dict[str, Any]:
        return {"id": "a", "n": n, "ts": at(second)}

    def payment(second: float, cents: int) -> dict[str, Any]:
        return {"order_id": "a", "cents": cents, "ts": at(second)}

    batches = [
        {"orders": [order(0, 1), order(15, 2)], "payments": [payment(8, 3)]},
        {"orders": [order(60, 4)], "payments": [payment(100, 5)]},
        END,
    ]
    found = shown(stream.feed(joined(gap="10 seconds", how="left"), batches), "id", "n", "cents")
    assert {row: count for row, count in found.items() if row[0] != "end"} == {
        ("a", 1, 3): 1, ("a", 2, 3): 1, ("a", 4, None): 1
    }  # fmt: skip


def test_results_of_windows(stream: Stream) -> None:
    def made(orders: DataFrame, payments: DataFrame) -> DataFrame:
        counted = timed(orders).transform(tumbling("20 seconds", by="id", n=agg.count()))
        paid = timed(payments).transform(tumbling("20 seconds", by="order_id", total=agg.sum("cents")))
        return counted.transform(join_windows(paid, on={"id": "order_id"}, how="left"))

    found = shown(stream.feed(made, BATCHES), "id", "window_start", "n", "total")
    start = "epoch_us(ts) // 20000000 * 20000000"
    tables = {name: (rows, TABLES[name]) for name, rows in GIVEN.items()}
    assert {row: count for row, count in found.items() if row[0] != "end"} == asked(
        f"""SELECT id, make_timestamp(l.start), n, total FROM
            (SELECT id, {start} AS start, count(*) n FROM orders GROUP BY ALL) l LEFT JOIN
            (SELECT order_id, {start} AS start, sum(cents)::bigint total FROM payments GROUP BY ALL) r
            ON id = order_id AND l.start = r.start""",
        **tables,
    )


def test_a_late_row_corrects_its_window(stream: Stream) -> None:
    def order(second: float, n: int) -> dict[str, Any]:
        return {"id": "a", "n": n, "ts": at(second)}

    made = joined(size="20 seconds", how="left", stragglers=correct("1 hour"))
    later = {"order_id": "b", "cents": 0, "ts": at(100)}
    first = stream.feed(made, [{"orders": [order(1, 1), order(100, 2)], "payments": [later]}])
    assert shown(first, "n", "cents") == {(1, None): 1}
    again = stream.feed(made, [{"payments": [{"order_id": "a", "cents": 7, "ts": at(2)}]}])
    assert shown(again, "n", "cents") == {(1, 7): 1}
    assert [(row.n, row.cents, row.retracted) for row in again[1:]] == [(1, None, True), (1, 7, False)]


def test_what_cannot_be_joined_is_refused(stream: Stream, spark: SparkSession) -> None:
    orders = timed(spark.readStream.schema(ORDERS).json(str(stream.folder / "orders")))
    payments = timed(spark.readStream.schema(PAYMENTS).json(str(stream.folder / "payments")))
    with pytest.raises(BadWindow, match=r'write size="10 minutes", size= and every=, or gap="5 minutes", or none'):
        join_windows(payments, on="id", every="1 minute")
    with pytest.raises(BadField, match="join_windows joins on no column"):
        join_windows(payments, on=[], size="1 minute")
    with pytest.raises(
        BadField, match="the left side of join_windows stands behind a window, and there is no 'window_st"
    ):
        orders.transform(join_windows(payments, on={"id": "order_id"}))
    mapped = payments.selectExpr("*", "map(cents, cents) AS m")
    with pytest.raises(BadField, match=r"has a column 'm' of type map<.*has no order: drop it"):
        orders.transform(join_windows(mapped, on={"id": "order_id"}, size="1 minute"))
    bare = spark.readStream.schema(PAYMENTS).json(str(stream.folder / "payments"))
    with pytest.raises(BadWindow, match="the right side of join_windows needs to know when it has seen everything"):
        orders.transform(join_windows(bare, on={"id": "order_id"}, size="1 minute"))
