"""What each city has bought, kept up to date and served over HTTP: a cancelled order, or a customer who moves, takes
back exactly what was added.

    headrace pipeline run examples/shop/views.py
    headrace view serve examples/shop/views.py
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import group_changes, join_tables, table_changes
from headrace.pipelines.views import sqlite, topic, view

sys.path.insert(0, str(Path(__file__).parent))
from tables import CUSTOMERS, ORDERS


@view(
    key="city",
    inputs={
        "orders": topic("shop.public.orders", format="json", schema=ORDERS),
        "customers": topic("shop.public.customers", format="json", schema=CUSTOMERS),
    },
    store=sqlite("views.sqlite"),
    trigger="1 second",
)
def cities(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """By the city where customers live now: how many orders stand, and what they are worth."""
    standing = orders.transform(table_changes("id")).where("status <> 'cancelled'")
    homes = customers.transform(table_changes("id")).drop("name")
    bought = standing.transform(join_tables(homes, on={"customer_id": "id"}, prefix="home_"))
    by_city = group_changes(by="home_city", orders=agg.count(), cents=agg.sum("cents"))
    return bought.transform(by_city).withColumnRenamed("home_city", "city")
