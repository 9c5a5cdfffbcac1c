"""Conditions, ranks, first and last rows: through Spark, across restarts, and exact against DuckDB."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    appended,
    correct,
    deduplicate,
    event_time,
    group_changes,
    hopping,
    latest,
    per_window,
    ranked,
    side_output,
    top_n,
    top_rows,
    tumbling,
)
from headrace.pipelines.operators.errors import BadAggregate, BadField, BadWindow
from tests.integration.operator_streams import Given, Stream, asked, at, shown

pytestmark = pytest.mark.java

SHAPE = "auction string, bidder long, price long, ts timestamp"
COLUMNS = "auction varchar, bidder bigint, price bigint, ts timestamp"


def bids(seed: int, count: int = 240, seconds: int = 120) -> list[dict[str, Any]]:
    """Bids in some disorder, with equal prices among them, some of nobody and some of nothing."""
    chance = random.Random(seed)
    return [
        {
            "auction": chance.choice("abc"),
            "bidder": chance.choice([None, *range(5)]),
            "price": chance.choice([None, *range(10)]),
            "ts": at(number * seconds / count + chance.random() * 4),
        }
        for number in range(count)
    ]


BIDS = bids(7)
END = [{"auction": "end", "bidder": 0, "price": 0, "ts": at(10_000)}]
BATCHES = [{"bids": BIDS[:100]}, {"bids": BIDS[100:110]}, {"bids": BIDS[110:]}, {"bids": END}]
PLACED = """(SELECT *, make_timestamp(start) window_start, make_timestamp(start + 20000000) window_end FROM
    (SELECT *, unnest([0, 10000000]) back, (epoch_us(ts) - back) // 10000000 * 10000000 AS start FROM bids)
    WHERE epoch_us(ts) < start + 20000000)"""


def answer(sql: str, rows: Sequence[Given] = BIDS) -> Any:
    return asked(sql, bids=(rows, COLUMNS))


def timed(frame: DataFrame) -> DataFrame:
    return frame.transform(event_time("ts", delay="5 seconds"))


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path, bids=SHAPE)


AGGREGATES = {
    "n": agg.count(where="price > 4"),
    "different": agg.count_distinct("bidder", where="price > 4"),
    "total": agg.sum("price", where="bidder IS NOT NULL"),
    "dearest": agg.max_by("bidder", "price"),
    "cheapest": agg.min_by("bidder", "price", where="price > 4"),
    "most": agg.max("pair"),
    "pairs": agg.collect("pair", where="price > 7"),
    "last": agg.last("prices"),
}
AGGREGATES_SQL = """count(*) FILTER (price > 4), count(DISTINCT bidder) FILTER (price > 4),
    (sum(price) FILTER (bidder IS NOT NULL))::bigint,
    (list(bidder ORDER BY price DESC, bidder DESC NULLS LAST) FILTER (price IS NOT NULL))[1],
    (list(bidder ORDER BY price, bidder NULLS LAST) FILTER (price > 4))[1],
    list([price, bidder] ORDER BY price DESC NULLS LAST, bidder DESC NULLS LAST)[1],
    coalesce(list([price, bidder] ORDER BY ts, price, bidder NULLS FIRST) FILTER (price > 7), []),
    list([price] ORDER BY ts DESC, price DESC NULLS LAST)[1]"""


@pytest.mark.parametrize("keyed", [False, True], ids=["native", "keyed"])
def test_conditions_and_nested_values_in_windows(stream: Stream, keyed: bool) -> None:
    def made(frame: DataFrame) -> DataFrame:
        rows = timed(frame).selectExpr("*", "struct(price, bidder) AS pair", "array(price) AS prices")
        window = hopping("20 seconds", "10 seconds", by="auction", **AGGREGATES) if keyed else (
            tumbling("20 seconds", by="auction", **AGGREGATES)
        )  # fmt: skip
        return rows.transform(window)

    found = shown(stream.feed(made, BATCHES), "auction", "window_start", *AGGREGATES)
    sql = f"SELECT auction, window_start, {AGGREGATES_SQL} FROM {PLACED}"
    tumbles = "" if keyed else " WHERE start % 20000000 = 0"
    assert found == answer(f"{sql}{tumbles} GROUP BY auction, window_start")


def test_conditions_and_first_rows_of_groups(stream: Stream) -> None:
    aggregates = {name: each for name, each in AGGREGATES.items() if name not in ("pairs", "last")}
    best = top_n(2, "-price", "bidder", ties="rank", where="bidder > 1")

    def made(frame: DataFrame) -> DataFrame:
        rows = frame.selectExpr("*", "struct(price, bidder) AS pair")
        return rows.transform(appended()).transform(group_changes(by="auction", **aggregates, best=best))

    found = shown(stream.feed(made, BATCHES[:-1]), "auction", *aggregates, "best")
    sql = AGGREGATES_SQL.split("coalesce")[0].rstrip().rstrip(",")
    expected = answer(f"""SELECT auction, {sql}, (SELECT list([bidder, place] ORDER BY place, bidder) FROM
        (SELECT auction a, bidder, rank() OVER (PARTITION BY auction ORDER BY price DESC NULLS LAST) place
         FROM bids WHERE bidder > 1) WHERE a = auction AND place <= 2) FROM bids GROUP BY auction""")
    assert found == expected


def test_the_first_rows_of_windows(stream: Stream) -> None:
    """The bidders with the most bids of each auction and window."""

    def made(frame: DataFrame) -> DataFrame:
        counts = timed(frame).transform(hopping("20 seconds", "10 seconds", by=["auction", "bidder"], n=agg.count()))
        return counts.transform(
            top_rows(
                2,
                "-n",
                by="auction",
            )
        )

    found = shown(stream.feed(made, BATCHES), "auction", "window_start", "window_end", "bidder", "n", "rank")
    expected = answer(f"""WITH counts AS (SELECT auction, window_start, window_end, bidder, count(*) n FROM {PLACED}
            GROUP BY ALL),
        ranks AS (SELECT *, rank() OVER (PARTITION BY auction, window_start ORDER BY n DESC) AS place FROM counts)
        SELECT auction, window_start, window_end, bidder, n, place FROM ranks WHERE place <= 2""")
    assert found == expected


def test_the_first_events_of_windows(stream: Stream) -> None:
    top = top_n(2, "-price", "bidder", "price", ties="rank", where="price IS NOT NULL")

    def made(frame: DataFrame) -> DataFrame:
        return timed(frame).transform(tumbling("20 seconds", by="auction", top=top)).transform(ranked("top"))

    found = shown(stream.feed(made, BATCHES), "auction", "window_start", "bidder", "price", "rank")
    expected = answer(f"""SELECT auction, window_start, bidder, price, place FROM (SELECT *,
        rank() OVER (PARTITION BY auction, window_start ORDER BY price DESC) AS place FROM {PLACED}
        WHERE start % 20000000 = 0 AND price IS NOT NULL) WHERE place <= 2""")
    assert found == expected


def test_the_first_rows_of_a_table_are_kept_up_to_date(stream: Stream) -> None:
    def made(frame: DataFrame) -> DataFrame:
        counts = frame.transform(appended()).transform(group_changes(by=["auction", "bidder"], n=agg.count()))
        return counts.transform(top_rows(2, "-n", by="auction", ties="dense_rank"))

    for upto, batch in ((100, BATCHES[0]), (110, BATCHES[1]), (240, BATCHES[2])):
        found = shown(stream.feed(made, [batch]), "auction", "bidder", "n", "rank")
        expected = answer(
            """SELECT * FROM (SELECT *, dense_rank() OVER (PARTITION BY auction ORDER BY n DESC) AS place
            FROM (SELECT auction, bidder, count(*) n FROM bids GROUP BY ALL)) WHERE place <= 2""",
            BIDS[:upto],
        )
        assert found == expected


def test_windows_grouped_once_more(stream: Stream) -> None:
    def made(frame: DataFrame) -> DataFrame:
        counts = timed(frame).transform(hopping("20 seconds", "10 seconds", by="auction", n=agg.count()))
        return counts.transform(per_window(most=agg.max("n"), auctions=agg.count()))

    found = shown(stream.feed(made, BATCHES), "window_start", "window_end", "most", "auctions")
    expected = answer(f"""SELECT window_start, window_end, max(n), count(*) FROM
        (SELECT auction, window_start, window_end, count(*) n FROM {PLACED} GROUP BY ALL) GROUP BY ALL""")
    assert found == expected


def test_the_last_row_of_each_key(stream: Stream) -> None:
    def made(frame: DataFrame) -> DataFrame:
        return frame.transform(latest(by=["auction", "bidder"], order=["ts", "price"]))

    for upto, batch in ((100, BATCHES[0]), (110, BATCHES[1]), (240, BATCHES[2])):
        found = shown(stream.feed(made, [batch]), "auction", "bidder", "price", "ts")
        expected = answer(
            """SELECT auction, bidder, price, ts FROM bids QUALIFY row_number() OVER
            (PARTITION BY auction, bidder ORDER BY ts DESC, price DESC NULLS LAST) = 1""",
            BIDS[:upto],
        )
        assert found == expected


def test_rows_that_come_twice_are_seen_once(stream: Stream) -> None:
    """Sent again at once, in the next batch, and by a query begun again."""
    sent = [[*BIDS[:60], *BIDS[40:60]], [*BIDS[30:90]], [*BIDS[80:110]]]
    shape = ["auction", "bidder", "price", "ts"]

    def ever(frame: DataFrame) -> DataFrame:
        return frame.transform(deduplicate(by=shape))

    found = shown(stream.feed(ever, [{"bids": rows} for rows in sent]), *shape)
    assert found == answer("SELECT DISTINCT * FROM bids", BIDS[:110])


def test_rows_that_come_twice_within_a_time(stream: Stream) -> None:
    def row(second: float, price: int, auction: str = "a") -> dict[str, Any]:
        return {"auction": auction, "bidder": 1, "price": price, "ts": at(second)}

    def within(frame: DataFrame) -> DataFrame:
        return timed(frame).transform(deduplicate(by="auction", within="10 seconds", stragglers=side_output()))

    told = stream.feed(within, [{"bids": [row(100, 1), row(105, 2), row(111, 3), row(111, 3, "c")]}])
    assert sorted(each.price for each in told) == [1, 3, 3]
    # Near to one that was let through, behind it or before it; further than that; and of another key.
    told = stream.feed(within, [{"bids": [row(107, 4, "c"), row(121, 5), row(122, 6), row(109, 7, "b")]}])
    assert sorted(each.price for each in told) == [1, 3, 3, 6, 7]
    told = stream.feed(within, [{"bids": [row(117, 8), row(112, 9), row(300, 10)]}])
    late = [each["_aside"].row.price for each in told if each["_aside"] is not None]
    assert sorted(late) == [8, 9]
    told = stream.feed(within, [{"bids": [row(301, 11, "b")]}])
    assert sorted(each.price for each in told if each["_aside"] is None) == [1, 3, 3, 6, 7, 10, 11]


def test_what_cannot_be_is_refused(stream: Stream, spark: SparkSession) -> None:
    frame = timed(spark.readStream.schema(SHAPE + ", tags map<string, string>").json(str(stream.folder / "bids")))
    with pytest.raises(BadAggregate, match=r"n: where='prize > 1' cannot be evaluated: .*prize"):
        frame.transform(tumbling("1 minute", n=agg.count(where="prize > 1")))
    with pytest.raises(BadAggregate, match="it has no order"):
        frame.transform(tumbling("1 minute", n=agg.max("tags")))
    with pytest.raises(BadField, match="there is no column 'prize': did you mean 'price'"):
        frame.transform(tumbling("1 minute", n=agg.max_by("bidder", "prize")))
    with pytest.raises(BadWindow, match=r"neither window_start and window_end nor _weight: .*appended\(\)"):
        frame.transform(top_rows(3, "-price"))
    with pytest.raises(BadAggregate, match="ties='sparse' in top_n: write one of row_number, rank, dense_rank"):
        top_n(3, "-price", ties="sparse")
    with pytest.raises(BadField, match="is one already"):
        frame.transform(appended()).transform(appended())
    with pytest.raises(BadField, match="there is no 'window_start'"):
        frame.transform(per_window(n=agg.count()))
    with pytest.raises(BadWindow, match=r"use drop\(\) or side_output\(\)"):
        deduplicate(by="auction", within="1 minute", stragglers=correct("1 hour"))
