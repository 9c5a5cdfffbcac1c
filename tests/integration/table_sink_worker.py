"""Six streaming queries in one process, one per store, from one folder of files, to be killed at any instant.

Arguments: the folder of everything, the URL of PostgreSQL. Each input file is one batch of changes of keys. Where a
store can upsert, the changes are merged by key into one table and appended as they come to another. Prints a line
when a batch is about to be written and when it was, for the test to choose its instant.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.sink import delta, duckdb, outbox, parquet, postgres, sqlite

KEYS = 40
SHAPE = "seq long, k int, v string, op string"
STORES = ("postgres", "sqlite", "duckdb", "delta", "parquet", "outbox")


def changes(file: int, rows: int) -> list[dict[str, Any]]:
    """The rows of one input file: the same for the same number, everywhere."""
    found = []
    for at in range(rows):
        seq = file * rows + at
        key = seq * 7919 % KEYS
        found.append({"seq": seq, "k": key, "v": f"{key}/{seq}", "op": "d" if seq * 31 % 5 == 0 else "u"})
    return found


def write_input(folder: Path, files: int, rows: int) -> None:
    """All input files, with times in their order, since Spark takes the oldest first."""
    folder.mkdir(parents=True)
    for file in range(files):
        path = folder / f"{file:05}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in changes(file, rows)))
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))


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


def main(root: Path, url: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # to start soon
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .config(
            "spark.sql.streaming.checkpointFileManagerClass",
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    writers = sinks(root, url)

    def started(name: str) -> Any:
        stream = spark.readStream.schema(SHAPE).option("maxFilesPerTrigger", 1).json(str(root / "input"))
        return (
            stream.writeStream.foreachBatch(told(name, writers[name]))
            .option("checkpointLocation", str(root / "checkpoints" / name))
            .trigger(availableNow=True)
            .start()
        )

    queries = {name: started(name) for name in STORES}
    said("started")
    while queries:
        for name, query in list(queries.items()):
            if query.isActive:
                continue
            if query.exception() is None:
                said(f"finished {name}")
                del queries[name]
            else:
                # PostgreSQL was away: the query is started again, as a supervisor would.
                said(f"broke {name}: {str(query.exception())[-300:]!r}")
                queries[name] = started(name)
        time.sleep(0.05)
    said("all finished")
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main(Path(sys.argv[1]), sys.argv[2])
