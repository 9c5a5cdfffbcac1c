"""Rows as a stream of micro-batches through operators, by queries that go on after each other; and DuckDB's answer."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import DataFrame, Row, SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)
Made = Callable[..., DataFrame]
Given = Mapping[str, Any]


def at(second: float) -> str:
    """So many seconds after the start, as JSON has it."""
    return (START + timedelta(seconds=second)).isoformat()


class Stream:
    """Files of a folder, each a micro-batch; `run` goes on where the last one was."""

    def __init__(self, spark: SparkSession, folder: Path, **shapes: str) -> None:
        self.spark, self.folder, self.shapes = spark, folder, shapes
        self.files, self.begun = 0, time.time()
        self.told: list[Row] = []
        for name in shapes:
            (folder / name).mkdir(parents=True)

    def add(self, name: str, rows: Sequence[Given]) -> None:
        """A micro-batch of one of the streams."""
        self.files += 1
        text = "\n".join(json.dumps(row) for row in rows)
        file = self.folder / name / f"{self.files:04d}.json"
        file.write_text(text)
        # Files of one millisecond would be read in any order.
        os.utime(file, (self.begun + self.files, self.begun + self.files))

    def run(self, make: Made) -> list[Row]:
        """What comes out of all that is new; the query is another one each time."""
        readers = [
            self.spark.readStream.schema(shape).option("maxFilesPerTrigger", 1).json(str(self.folder / name))
            for name, shape in self.shapes.items()
        ]
        before = len(self.told)
        query = (
            make(*readers)
            .writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
            .foreachBatch(lambda frame, _: self.told.extend(frame.collect()))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.told[before:]

    def feed(self, make: Made, batches: Sequence[Mapping[str, Sequence[Given]]]) -> list[Row]:
        """All batches; the query ends in their middle and another goes on, so that all passes through what is kept."""
        for number, batch in enumerate(batches):
            for name, rows in batch.items():
                self.add(name, rows)
            if number in (len(batches) // 2 - 1, len(batches) - 1):
                self.run(make)
        return self.told


def plain(row: Any) -> Any:
    """Values that compare: times in UTC, rows and arrays as tuples."""
    if isinstance(row, datetime):
        return row.astimezone(UTC).replace(tzinfo=None).isoformat()
    if isinstance(row, Row):
        return tuple(plain(value) for value in row)
    if isinstance(row, dict):
        return tuple(plain(value) for value in row.values())
    if isinstance(row, list | tuple):
        return tuple(plain(value) for value in row)
    return row


def shown(rows: Sequence[Row], *names: str) -> Counter[Any]:
    """Some columns of rows, each as often as it is there; a table as changes adds up."""
    found: Counter[Any] = Counter()
    for row in rows:
        given = row.asDict()
        weight = given.get("_weight", -1 if given.get("retracted") else 1)
        found[tuple(plain(given[name]) for name in names)] += weight
    return Counter({row: count for row, count in found.items() if count})


def asked(sql: str, **tables: tuple[Sequence[Given], str]) -> Counter[Any]:
    """DuckDB's answer; a table is rows and DuckDB's types of its columns."""
    with duckdb.connect(config={"threads": 1}) as con:
        for name, (rows, columns) in tables.items():
            con.execute(f"CREATE TABLE {name} ({columns})")
            names = [each.split()[0] for each in columns.split(", ")]
            if rows:
                values = [tuple(row.get(column) for column in names) for row in rows]
                con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(names))})", values)
        return Counter(tuple(map(_naive, row)) for row in con.sql(sql).fetchall())


def _naive(value: Any) -> Any:
    """DuckDB's times have no zone, and are in UTC."""
    return value.isoformat() if isinstance(value, datetime) else plain(value)
