"""Nexmark's queries on Headrace: an auction house's persons, auctions and bids, and what is asked of them.

headrace pipeline run examples/nexmark/queries.py --trigger available-now --drain

What is only ever added to is written as Parquet, a folder for each query; what changes with later events is a view in
DuckDB. `run.py` writes events, runs all of this over them and holds the results against DuckDB's own.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.pipelines import job, topic
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    appended,
    group_changes,
    hopping,
    join_tables,
    join_windows,
    latest,
    ranked,
    sessions,
    top_n,
    top_rows,
    tumbling,
)
from headrace.pipelines.sink import parquet
from headrace.pipelines.views import duckdb, view

RESULTS = Path(os.environ.get("NEXMARK_RESULTS", "data/nexmark"))
VIEWS = duckdb(RESULTS / "views.duckdb")
SIDE_INPUT = str(Path(__file__).with_name("side_input.csv"))

PERSON = "id long, name string, email string, credit_card string, city string, state string"
AUCTION = "id long, item string, description string, initial_bid long, reserve long, expires timestamp, "
AUCTION += "seller long, category long"
BID = "auction long, bidder long, price long, channel string, url string"
REST = "date_time timestamp, extra string"
JSON: dict[str, Any] = {"format": "json", "maxRecordsPerTrigger": os.environ.get("NEXMARK_BATCH", "100000")}
TIMED = {"watermark": ("date_time", "4 seconds"), **JSON}
PERSONS = topic("persons", schema=f"{PERSON}, {REST}", **TIMED)
AUCTIONS = topic("auctions", schema=f"{AUCTION}, {REST}", **TIMED)
BIDS = topic("bids", schema=f"{BID}, {REST}", **TIMED)
BIDS_BY_CLOCK = topic("bids", schema=f"{BID}, {REST}", **JSON)  # without a time of their own


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q0"))
def q0(bids: DataFrame) -> DataFrame:
    """Pass through."""
    return bids.select("auction", "bidder", "price", "date_time", "extra")


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q1"))
def q1(bids: DataFrame) -> DataFrame:
    """Currency conversion: dollars to euros."""
    return bids.selectExpr("auction", "bidder", "0.908 * price AS price", "date_time", "extra")


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q2"))
def q2(bids: DataFrame) -> DataFrame:
    """Selection: bids on some auctions."""
    return bids.where("auction % 123 = 0").select("auction", "price")


@view(key="id", inputs={"auctions": AUCTIONS, "persons": PERSONS}, store=VIEWS)
def q3(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    """Local item suggestion: who sells what in category 10 in three states."""
    local = persons.where("state IN ('OR', 'ID', 'CA')").selectExpr("id AS seller", "name", "city", "state")
    offered = auctions.where("category = 10").select("id", "seller")
    return offered.transform(appended()).transform(join_tables(local.transform(appended()), on="seller"))


def valid_bids(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Bids with their auctions, while those were open."""
    names = {"id": "auction", "date_time": "opened", "extra": "auction_extra"}
    offered = auctions.withColumnsRenamed(names).transform(appended())
    joined = bids.transform(appended()).transform(join_tables(offered, on="auction"))
    return joined.where("date_time BETWEEN opened AND expires")


@view(key="category", inputs={"auctions": AUCTIONS, "bids": BIDS}, store=VIEWS)
def q4(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Average price for a category: of the winning bids so far."""
    won = valid_bids(auctions, bids).transform(group_changes(by=["auction", "category"], final=agg.max("price")))
    return won.transform(group_changes(by="category", final=agg.avg("final")))


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q5"))
def q5(bids: DataFrame) -> DataFrame:
    """Hot items: the auctions with the most bids in ten seconds, every two."""
    return bids.transform(hopping("10 seconds", "2 seconds", by="auction", num=agg.count())).transform(
        top_rows(1, "-num")
    )


@view(key="seller", inputs={"auctions": AUCTIONS, "bids": BIDS}, store=VIEWS)
def q6(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Average selling price by seller: of the last ten auctions."""
    won = valid_bids(auctions, bids).transform(latest(by=["auction", "seller"], order=["price", "-date_time"]))
    last = won.transform(top_rows(10, "-date_time", by="seller", ties="row_number"))
    return last.transform(group_changes(by="seller", avg_price=agg.avg("price")))


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q7"))
def q7(bids: DataFrame) -> DataFrame:
    """Highest bid: the bids with the highest price in every ten seconds."""
    best = top_n(1, "-price", "auction", "bidder", "price", "date_time", "extra", ties="rank")
    return bids.transform(tumbling("10 seconds", best=best)).transform(ranked("best"))


@job(inputs={"persons": PERSONS, "auctions": AUCTIONS}, outputs=parquet(RESULTS / "q8"))
def q8(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    """Monitor new users: who came and put up an auction in the same ten seconds."""
    return persons.transform(join_windows(auctions, on={"id": "seller"}, size="10 seconds", how="semi"))


@view(key="auction", inputs={"auctions": AUCTIONS, "bids": BIDS}, store=VIEWS)
def q9(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Winning bids: each auction with its highest bid, and of several the first."""
    return valid_bids(auctions, bids).transform(latest(by="auction", order=["price", "-date_time"]))


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q10"))
def q10(bids: DataFrame) -> DataFrame:
    """Log to file system: all bids, with day and minute."""
    day, minute = "date_format(date_time, 'yyyy-MM-dd') AS dt", "date_format(date_time, 'HH:mm') AS hm"
    return bids.selectExpr("auction", "bidder", "price", "date_time", "extra", day, minute)


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q11"))
def q11(bids: DataFrame) -> DataFrame:
    """User sessions: how many bids a user makes until ten seconds without one."""
    return bids.transform(sessions("10 seconds", by="bidder", bids=agg.count()))


@job(inputs={"bids": BIDS_BY_CLOCK}, outputs=parquet(RESULTS / "q12"))
def q12(bids: DataFrame) -> DataFrame:
    """Processing-time windows: how many bids of a user are read in ten seconds."""
    now = bids.withColumn("now", F.current_timestamp()).withWatermark("now", "0 seconds")
    return now.transform(tumbling("10 seconds", by="bidder", bids=agg.count()))


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q13"))
def q13(bids: DataFrame) -> DataFrame:
    """Bounded side input join: bids with what a file says about them."""
    side = bids.sparkSession.read.csv(SIDE_INPUT, schema="key long, value string", header=True)
    return bids.join(side, F.expr("auction % 1000 = key")).select("auction", "bidder", "price", "date_time", "value")


def count_char(text: str, char: str) -> int:
    """A function in Python, for every row."""
    return text.count(char)


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q14"))
def q14(bids: DataFrame) -> DataFrame:
    """Calculation: conversion, the time of the day, and a function of our own."""
    hour = F.hour("date_time")
    at_night = F.when((hour <= 6) | (hour >= 20), "night").otherwise("other")
    return bids.withColumn("price", F.expr("0.908 * price")).where("price > 1000000 AND price < 50000000").select(
        "auction", "bidder", "price", F.when(hour.between(8, 18), "day").otherwise(at_night).alias("time_of_day"),
        "date_time", "extra", F.udf(count_char, "long")("extra", F.lit("c")).alias("c_count"),
    )  # fmt: skip


RANKS = {
    "total": None,
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def by_rank(name: str, count: Callable[..., agg.Aggregate]) -> dict[str, Any]:
    """A count of all bids, and one for each rank of prices."""
    return {f"{rank}_{name}": count(where=where) for rank, where in RANKS.items()}


STATISTICS = {
    **by_rank("bids", agg.count),
    **by_rank("bidders", partial(agg.count_distinct, "bidder")),
    **by_rank("auctions", partial(agg.count_distinct, "auction")),
}


@view(key="day", inputs={"bids": BIDS}, store=VIEWS)
def q15(bids: DataFrame) -> DataFrame:
    """Bidding statistics: how many bids, bidders and auctions on a day."""
    days = bids.withColumn("day", F.to_date("date_time")).transform(appended())
    return days.transform(group_changes(by="day", **STATISTICS))


@view(key=["channel", "day"], inputs={"bids": BIDS}, store=VIEWS)
def q16(bids: DataFrame) -> DataFrame:
    """Channel statistics: the same for each channel, and its last minute."""
    days = bids.selectExpr("*", "to_date(date_time) AS day", "date_format(date_time, 'HH:mm') AS minute")
    return days.transform(appended()).transform(
        group_changes(by=["channel", "day"], minute=agg.max("minute"), **STATISTICS)
    )


@view(key=["auction", "day"], inputs={"bids": BIDS}, store=VIEWS)
def q17(bids: DataFrame) -> DataFrame:
    """Auction statistics: bids by rank, and prices, of each auction and day."""
    prices = {f"{name}_price": getattr(agg, name)("price") for name in ("min", "max", "avg", "sum")}
    days = bids.withColumn("day", F.to_date("date_time")).transform(appended())
    return days.transform(group_changes(by=["auction", "day"], **by_rank("bids", agg.count), **prices))


@view(key=["bidder", "auction"], inputs={"bids": BIDS}, store=VIEWS)
def q18(bids: DataFrame) -> DataFrame:
    """Last bid: of each user on each auction."""
    return bids.transform(latest(by=["bidder", "auction"], order="date_time"))


@view(key=["auction", "rank"], inputs={"bids": BIDS}, store=VIEWS)
def q19(bids: DataFrame) -> DataFrame:
    """Auction top 10: the ten highest bids of each."""
    return bids.transform(appended()).transform(top_rows(10, ["-price", "date_time"], by="auction", ties="row_number"))


@job(inputs={"bids": BIDS, "auctions": AUCTIONS}, outputs=parquet(RESULTS / "q20"))
def q20(bids: DataFrame, auctions: DataFrame) -> DataFrame:
    """Expand bids with their auctions, of category 10."""
    names = {"id": "auction", "date_time": "opened", "extra": "auction_extra"}
    offered = auctions.where("category = 10").withColumnsRenamed(names).transform(appended())
    joined = bids.transform(appended()).transform(join_tables(offered, on="auction"))
    return joined.drop("_weight", "_versions", "_time")


CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q21"))
def q21(bids: DataFrame) -> DataFrame:
    """Add channel id: known channels have a number, others bring theirs in the address."""
    known = F.create_map(*(F.lit(part) for pair in CHANNELS.items() for part in pair))[F.lower("channel")]
    brought = F.expr("nullif(regexp_extract(url, '[?&]channel=channel-([0-9]+)', 1), '')")
    with_id = bids.withColumn("channel_id", F.coalesce(known, brought)).where("channel_id IS NOT NULL")
    return with_id.select("auction", "bidder", "price", "channel", "channel_id")


@job(inputs={"bids": BIDS}, outputs=parquet(RESULTS / "q22"))
def q22(bids: DataFrame) -> DataFrame:
    """Get URL directories: the parts of an address."""
    parts = [f"split_part(url, '/', {place + 3}) AS dir{place}" for place in (1, 2, 3)]
    return bids.selectExpr("auction", "bidder", "price", "channel", *parts)
