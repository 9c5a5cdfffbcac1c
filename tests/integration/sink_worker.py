"""Streaming queries in one process, one per sink, from one topic, to be killed at any instant.

Arguments: the folder of everything, the URL of PostgreSQL, the broker, the names of sinks. Where a store can upsert,
the changes are merged by key into one table and appended as they come to another. Prints a line when a batch is about
to be written and when it was, for the test to choose its instant.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from headrace.pipelines import session
from headrace.pipelines.sink import delta, duckdb, outbox, parquet, postgres, sqlite

KEYS = 40
PER_BATCH = 200
INPUT, OUTPUT = "changes", "results"
SHAPE = "seq long, k int, v string, op string"
STORES = ("topic", "postgres", "sqlite", "duckdb", "delta", "parquet", "outbox")


def change(seq: int) -> dict[str, Any]:
    """The same for the same number, everywhere."""
    key = seq * 7919 % KEYS
    return {"seq": seq, "k": key, "v": f"{key}/{seq}", "op": "d" if seq * 31 % 5 == 0 else "u"}


def sinks(root: Path, url: str) -> dict[str, list[Callable[[DataFrame, int], None]]]:
    """An upserting and an appending sink per store."""
    upsert: dict[str, Any] = {"keys": ["k"], "order_by": "seq", "delete_when": "op = 'd'", "name": "last"}
    return {
        "postgres": [postgres(url, "last", **upsert), postgres(url, "log", name="log")],
        "sqlite": [sqlite(root / "s.sqlite", "last", **upsert), sqlite(root / "s.sqlite", "log", name="log")],
        "duckdb": [duckdb(root / "s.duckdb", "last", **upsert), duckdb(root / "s.duckdb", "log", name="log")],
        "delta": [delta(root / "delta-last", **upsert), delta(root / "delta-log", name="log")],
        "parquet": [parquet(root / "parquet-log", name="log")],
        "outbox": [
            outbox(f"sqlite:///{root}/outbox.sqlite", Receiver(root / "received"), "seq", order_key="k", order_by="seq")
        ],
    }


class Receiver:
    """What was sent, with its key: a line in a file. It does not drop what comes twice, so that the test sees it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def __call__(self, record: Any, key: str) -> None:
        self._file.write(json.dumps({"key": key, "seq": record["seq"], "k": record["k"]}).encode() + b"\n")


def said(what: str) -> None:
    print(what, flush=True)


def told(name: str, writes: list[Callable[[DataFrame, int], None]]) -> Callable[[DataFrame, int], None]:
    def write(df: DataFrame, batch_id: int) -> None:
        for number, one in enumerate(writes):
            said(f"begin {name} {batch_id} {number}")
            one(df, batch_id)
            said(f"end {name} {batch_id} {number}")

    return write


def main(root: Path, url: str, bootstrap: str, stores: list[str]) -> None:
    spark = session("sinks", master="local[2]", conf={"spark.driver.memory": "1g"})
    writers = sinks(root, url)

    def started(name: str) -> Any:
        stream = (
            spark.readStream.format("headrace")
            .options(bootstrap=bootstrap, subscribe=INPUT, startingOffsets="earliest", format="json")
            .option("maxRecordsPerTrigger", PER_BATCH)
            .schema(SHAPE)
            .load()
        )
        if name == "topic":
            rows = stream.repartition(2).selectExpr("cast(k as string) as key", "to_json(struct(*)) as value")
            writer = rows.writeStream.format("headrace").options(bootstrap=bootstrap, topic=OUTPUT)
        else:
            writer = stream.writeStream.foreachBatch(told(name, writers[name]))
        return writer.option("checkpointLocation", str(root / "checkpoints" / name)).trigger(availableNow=True).start()

    queries = {name: started(name) for name in stores}
    said("started")
    batches = -1
    while queries:
        for name, query in list(queries.items()):
            if name == "topic" and query.lastProgress and query.lastProgress["batchId"] != batches:
                batches = query.lastProgress["batchId"]
                said(f"end topic {batches}")
            if query.isActive:
                continue
            if query.exception() is None:
                said(f"finished {name}")
                del queries[name]
            else:
                # The broker or the database was away for long: the query is started again, as a supervisor would.
                said(f"broke {name}: {str(query.exception())[-300:]!r}")
                queries[name] = started(name)
        time.sleep(0.05)
    said("all finished")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
