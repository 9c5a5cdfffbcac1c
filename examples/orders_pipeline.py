"""Two jobs over one topic of orders: large orders to another topic, and what each drink earned to a table.

headrace pipeline run examples/orders_pipeline.py --trigger available-now
"""

from pyspark.sql import DataFrame

from headrace.pipelines import job, topic
from headrace.pipelines.sink import sqlite

ORDERS = topic(
    "orders",
    format="json",
    schema="order long, customer string, item string, cents long, _timestamp timestamp",
    maxRecordsPerTrigger=20_000,
)


@job(inputs={"orders": ORDERS}, outputs=topic("large-orders"))
def large_orders(orders: DataFrame) -> DataFrame:
    """Orders above six coins, keyed by customer."""
    return orders.where("cents > 600").selectExpr("customer AS key", "to_json(struct(order, item, cents)) AS value")


@job(inputs={"orders": ORDERS}, outputs=sqlite("data/demo-earnings.sqlite", "earnings", keys=["item"]), mode="update")
def earnings(orders: DataFrame) -> DataFrame:
    """How many of each drink, and what they earned."""
    return orders.groupBy("item").agg({"cents": "sum", "*": "count"}).toDF("item", "cents", "orders")
