"""The four examples as jobs on Spark: events from topics, matches to topics.

headrace topic create payments; headrace topic create trades; headrace topic create machines; …
python examples/patterns/card_fraud.py | headrace produce payments
python examples/patterns/trade_surveillance.py | headrace produce trades
python examples/patterns/machinery.py | headrace produce machines
python examples/patterns/intrusion.py | headrace produce audit
headrace pipeline run examples/patterns/pattern_jobs.py --trigger available-now --drain
headrace tail intrusions --no-follow
"""

from card_fraud import IMPOSSIBLE_TRAVEL, SMALL_THEN_LARGE
from intrusion import INTRUSION
from machinery import OVERHEATED
from pyspark.sql import DataFrame
from trade_surveillance import V_SHAPE, WASH_TRADE

from headrace.pipelines import job, topic
from headrace.pipelines.operators import event_time, match_pattern, match_patterns

PAYMENTS = topic(
    "payments",
    format="json",
    schema="card string, at long, amount double, city string, x double, y double, z double",
)
TRADES = topic(
    "trades",
    format="json",
    schema="symbol string, at long, price double, quantity long, seller string, buyer string",
)
MACHINES = topic("machines", format="json", schema="machine string, at long, kind string, value double")
AUDIT = topic(
    "audit",
    format="json",
    schema="account string, at long, action string, home string, country string, detail string, megabytes long",
)


def timed(events: DataFrame) -> DataFrame:
    """With the time of an event, and a minute for others to come late."""
    return events.transform(event_time("at", delay="1 minute", unit="ms"))


def keyed(matches: DataFrame, key: str) -> DataFrame:
    """A match as a record."""
    return matches.selectExpr(f"{key} AS key", "to_json(struct(*)) AS value")


@job(inputs={"payments": PAYMENTS}, outputs=topic("card-frauds"))
def card_frauds(payments: DataFrame) -> DataFrame:
    """Two patterns in one pass."""
    patterns = {"small then large": SMALL_THEN_LARGE, "impossible travel": IMPOSSIBLE_TRAVEL}
    return keyed(timed(payments).transform(match_patterns(patterns, by="card")), "card")


@job(inputs={"trades": TRADES}, outputs=topic("price-falls"))
def price_falls(trades: DataFrame) -> DataFrame:
    """A pattern in SQL: its measures are the columns. ORDER BY names the event time."""
    by_time = trades.transform(event_time("at", delay="1 minute", unit="ms", into="at"))
    return keyed(by_time.transform(match_pattern(V_SHAPE)), "symbol")


@job(inputs={"trades": TRADES}, outputs=topic("wash-trades"))
def wash_trades(trades: DataFrame) -> DataFrame:
    return keyed(timed(trades).transform(match_pattern(WASH_TRADE, by="symbol")), "symbol")


@job(inputs={"machines": MACHINES}, outputs=topic("overheated"))
def overheated(machines: DataFrame) -> DataFrame:
    return keyed(timed(machines).transform(match_pattern(OVERHEATED, by="machine")), "machine")


@job(inputs={"audit": AUDIT}, outputs=topic("intrusions"))
def intrusions(audit: DataFrame) -> DataFrame:
    return keyed(timed(audit).transform(match_pattern(INTRUSION, by="account")), "account")
