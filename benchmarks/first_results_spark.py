"""Plain PySpark's side of `first_results.py`: BOOTSTRAP FOLDER. As Spark comes, with its own connector."""

import sys

from pyspark.sql import functions as fn

import harness  # noqa: F401  puts `peers` on the path
from pipelines_events import FIELDS, LEAST_AMOUNT, WANTED_EVENT
from pipelines_spark import PlainSpark

bootstrap, folder = sys.argv[1:]
spark = PlainSpark.session(PlainSpark.__new__(PlainSpark))
read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "events")
schema = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS)
value = fn.from_json(fn.col("value").cast("string"), schema).alias("event")
events = read.option("startingOffsets", "earliest").load().select(value).select("event.*")
large = events.where((fn.col("event") == WANTED_EVENT) & (fn.col("amount") > LEAST_AMOUNT))
rows = large.selectExpr("user AS key", "to_json(struct(*)) AS value")
writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "large")
writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
