"""Patterns from topic to topic in a process of its own, to be killed at any instant.

Arguments: the folder of everything, and the broker. Two queries: one pattern, and those of a topic. A line is printed
when a micro-batch is over, and at the end.
"""

import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from headrace.cep import Pattern
from headrace.pipelines import session
from headrace.pipelines.operators import event_time, match_pattern, match_patterns, patterns_from

PAYS, PATTERNS = "pays", "patterns"
FOUND = {"one": "found", "many": "found-many"}
PER_BATCH = 150
SHAPE = "card string, at timestamp, amount double, _topic string, _partition int, _offset long"
BIG = Pattern.begin("small", "amount < 10").followed_by("big", "amount > 100").within("20 seconds").skip_past_last()
STORED = {
    "stays": 'Pattern.begin("low", "amount < 20").followed_by("high", "amount > low.amount + 90").within("15 seconds")',
    "goes": 'Pattern.begin("a", "amount > 120").within("5 seconds")',
    "broken": 'Pattern.begin("a", "amout > 120")',
}


def payments(count: int) -> list[dict[str, Any]]:
    """The same every time; the last is long after all others."""
    found = [
        {"card": f"c{n * n % 17}", "second": n * 0.11, "amount": float((n * 37 + n * n * 11) % 160)}
        for n in range(count)
    ]
    return [*found, {"card": "end", "second": 10_000.0, "amount": 50.0}]


def said(what: str) -> None:
    print(what, flush=True)


def main(root: Path, bootstrap: str) -> None:
    spark = session("patterns", master="local[2]", conf={"spark.driver.memory": "1g"})

    def read(topic: str, **options: str) -> DataFrame:
        stream = spark.readStream.format("headrace").options(bootstrap=bootstrap, subscribe=topic, **options)
        stream = stream.option("startingOffsets", "earliest")
        return stream.schema(SHAPE).load() if "format" in options else stream.load()

    def rows() -> DataFrame:
        pays = read(PAYS, format="json", maxRecordsPerTrigger=str(PER_BATCH))
        return pays.transform(event_time("at", delay="2 seconds", into="at"))

    made = {
        "one": rows().transform(match_pattern(BIG, by="card", buckets=4)),
        "many": rows().transform(match_patterns(patterns_from(read(PATTERNS)), by="card", buckets=4)),
    }
    queries = {
        name: frame.selectExpr("card AS key", "to_json(struct(*)) AS value")
        .writeStream.format("headrace")
        .options(bootstrap=bootstrap, topic=FOUND[name])
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
