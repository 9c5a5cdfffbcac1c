"""The shop's pipelines: each order with the customer's city as it was then, and what each city spent, ten seconds at a
time, with late orders put right.

    headrace pipeline run examples/shop/jobs.py
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from headrace.pipelines import job, topic
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import correct, enrich, event_time, row_versions, tumbling
from headrace.pipelines.sink.tables import sqlite

sys.path.insert(0, str(Path(__file__).parent))
from tables import CUSTOMERS, ORDERS

LATEST = "5 minutes"  # a phone that was without a network for longer is left out, and counted
WITH_CITY = "id long, cents long, city string, event_time timestamp"


@job(
    inputs={
        "orders": topic("shop.public.orders", format="json", schema=ORDERS),
        # Customers seldom move: time goes on for the table although nothing is said about it.
        "customers": topic(
            "shop.public.customers",
            format="json",
            schema=f"{CUSTOMERS}, _idle boolean",
            idleTimeout=2,
            eventTimeColumn="_timestamp",
        ),
    },
    outputs=topic("shop.enriched"),
    trigger="1 second",
)
def enriched(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Each order once, with the city that its customer lived in when it was placed."""
    placed = orders.where("op IN ('c', 'r')").select("after.*")
    known = customers.transform(event_time("_timestamp", into="_timestamp", delay="1 second"))
    joined = placed.transform(event_time("ordered_at", delay="5 seconds", ahead="1 minute")).transform(
        enrich(
            known.transform(row_versions("id")),
            on={"customer_id": "id"},
            how="left",
            as_of="event_time",
            stragglers=correct(LATEST),
        )
    )
    return joined.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")


@job(
    inputs={"orders": topic("shop.enriched", format="json", schema=WITH_CITY)},
    outputs=sqlite("revenue.sqlite", "revenue", ["city", "window_start"], order_by="revision"),
    trigger="1 second",
)
def revenue(orders: DataFrame) -> DataFrame:
    """What each city spent in ten seconds; a late order takes the result back and tells it again."""
    spent = orders.na.fill("(not known)", ["city"]).transform(event_time("event_time", into="at", delay="3 seconds"))
    windows = tumbling("10 seconds", by="city", orders=agg.count(), cents=agg.sum("cents"), stragglers=correct(LATEST))
    return spent.transform(windows).where("NOT retracted").drop("retracted")
