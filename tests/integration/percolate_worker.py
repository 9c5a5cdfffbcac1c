"""Documents held against stored queries from topic to topic in a process of its own, to be killed at any instant.

Arguments: the folder of everything, and the broker. Two queries: one with stored queries that stay, and one with those
of a topic. A line is printed when a micro-batch is over, and at the end.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from headrace.pipelines import session
from headrace.pipelines.operators import percolate, queries_from

DOCUMENTS, QUERIES = "documents", "searches"
HITS = {"fixed": "hits-fixed", "topic": "hits-topic"}
PER_BATCH = 120
SHAPE = "title string, `a.b` string, parts array<struct<name string, price double>>, _partition int, _offset long"
FIELDS = ["title", "a.b", "parts"]
FIXED = {
    "all": "title:*",
    "bikes": "title:bike",
    "dotted": "a.b:blue",
    "within": "parts:nested(name:wheel AND price:<3)",
}
STORED = {
    "all": '{"query": "title:*"}',
    "bikes": '{"query": "title:bike", "owner": "ann", "tags": ["sport"]}',
    "goes": '{"query": "title:car", "boost": 2}',
    "rests": '{"query": "-title:car"}',
    "broken": '{"query": "title:(("}',
}


def documents(count: int) -> list[bytes]:
    """The same every time; among them what is none, what is empty, deep and long."""
    words = ("bike", "car", "red", "blue", "boat")
    found = []
    for n in range(count):
        document: dict[str, Any] = {"title": " ".join(words[(n * n + at) % 5] for at in range(n % 4 + 1))}
        if n % 3 == 0:
            document["a.b"] = words[n % 5]
        if n % 5 == 0:
            document["parts"] = [{"name": ("wheel", "bell")[at % 2], "price": (n + at) % 6} for at in range(n % 3)]
        if n % 40 == 7:
            document["title"] = "bike " * 3_000
        found.append(json.dumps(document).encode())
    return found


def said(what: str) -> None:
    print(what, flush=True)


def main(root: Path, bootstrap: str) -> None:
    spark = session("percolate", master="local[2]", conf={"spark.driver.memory": "1g"})

    def read(topic: str, **options: str) -> DataFrame:
        stream = spark.readStream.format("headrace").options(bootstrap=bootstrap, subscribe=topic, **options)
        stream = stream.option("startingOffsets", "earliest")
        return stream.schema(SHAPE).load() if "format" in options else stream.load()

    columns = read(DOCUMENTS, format="json", maxRecordsPerTrigger=str(PER_BATCH))
    raw = read(DOCUMENTS, maxRecordsPerTrigger=str(PER_BATCH)).selectExpr(
        "value AS body", "partition AS _partition", "offset AS _offset"
    )
    made = {
        "fixed": columns.transform(percolate(FIXED, fields=FIELDS)).drop("title"),
        "topic": raw.transform(percolate(queries_from(read(QUERIES)), json="body", buckets=3)).drop("body"),
    }
    queries = {
        name: frame.selectExpr("to_json(struct(*)) AS value")
        .writeStream.format("headrace")
        .options(bootstrap=bootstrap, topic=HITS[name])
        .option("checkpointLocation", str(root / "checkpoints" / name))
        .trigger(availableNow=True)
        .start()
        for name, frame in made.items()
    }
    told = dict.fromkeys(queries, -1)
    while any(query.isActive for query in queries.values()):
        for name, query in queries.items():
            if query.lastProgress and query.lastProgress["batchId"] > told[name]:
                told[name] = query.lastProgress["batchId"]
                said(f"batch {name} {told[name]}")
        time.sleep(0.02)
    for query in queries.values():
        if (error := query.exception()) is not None:
            said(f"failed {error}")
            sys.exit(1)
    said("finished")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
