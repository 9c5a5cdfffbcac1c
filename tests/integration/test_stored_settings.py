"""What operators store with their state stays as it is: a job that ran before has to go on from its checkpoint.

For each query below, every operator on keyed state in it: its parameters as texts (class names and fields are in them),
its key, its tables with their columns. And what `stateful-steps.json` says of the steps that Spark keeps state for.
`stored_settings.json` was written on 16 November 2026. Whoever means to change a line of it breaks checkpoints: write
`HEADRACE_WRITE_SETTINGS=1 pytest …` to add a query, and look at the difference.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.keyed import stateful
from headrace.pipelines.keyed.settings import Settings
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    appended,
    compare,
    correct,
    correct_clock,
    deduplicate,
    distinct_changes,
    enrich,
    event_time,
    group_changes,
    hopping,
    join_streams,
    join_tables,
    join_windows,
    latest,
    on_time,
    row_versions,
    sessions,
    side_output,
    sliding,
    table_changes,
    top_n,
    top_rows,
    tumbling,
)
from headrace.pipelines.spark.stateful_steps import steps_of

pytestmark = pytest.mark.java
FILE = Path(__file__).with_name("stored_settings.json")
EVENTS = (
    "shop string, who string, value long, price double, dec decimal(12,2), ts timestamp, sent timestamp, "
    "_timestamp timestamp"
)
ROWS = (
    "shop string, price long, name string, score double, dec decimal(12,2), n int, _offset long, _partition int, "
    "_topic string, _timestamp timestamp, __deleted string"
)
STATE = pa.struct([("n", pa.int64()), ("sum", pa.float64())])
WINDOWED = {
    "rows": agg.count(),
    "values": agg.count("value"),
    "total": agg.sum("value"),
    "decimals": agg.sum("dec"),
    "doubles": agg.sum("price"),
    "mean": agg.avg("value"),
    "decimal_mean": agg.avg("dec"),
    "double_mean": agg.avg("price"),
    "least": agg.min("value"),
    "most": agg.max("price"),
    "least_text": agg.min("who"),
    "best": agg.max_by("who", "value"),
    "worst": agg.min_by("value", "who"),
    "spread": agg.stddev("value"),
    "first": agg.first("who"),
    "last": agg.last("value"),
    "different": agg.count_distinct("who"),
    "all": agg.collect("value"),
    "some": agg.count(where="value > 3"),
    "some_total": agg.sum("dec", where="who = 'w'"),
    "top": top_n(2, "-value", "who"),
    "top_ranked": top_n(2, "-value", "who", ties="rank"),
    "own": agg.custom("price", state=STATE, result=pa.float64(), lift=list, merge=list, finish=list),  # type: ignore[arg-type]
}
GROUPED = {
    "rows": agg.count(),
    "values": agg.count("n"),
    "total": agg.sum("price"),
    "small_total": agg.sum("n"),
    "decimals": agg.sum("dec"),
    "doubles": agg.sum("score"),
    "mean": agg.avg("price"),
    "decimal_mean": agg.avg("dec"),
    "double_mean": agg.avg("score"),
    "least": agg.min("price"),
    "most": agg.max("name"),
    "best": agg.max_by("shop", "price"),
    "worst": agg.min_by("name", "score"),
    "different": agg.count_distinct("price"),
    "all": agg.collect("price"),
    "some": agg.count(where="price > 5"),
    "top": top_n(2, "-price", "shop"),
    "top_ranked": top_n(2, "-price", "shop", ties="dense_rank"),
    "some_best": agg.max_by("shop", "price", where="n = 1"),
    "some_top": top_n(2, "shop", where="n = 1"),
}
GROWING = {
    "rows": agg.count(),
    "doubles": agg.sum("price"),
    "most": agg.max("value"),
    "different": agg.count_distinct("who"),
    "all": agg.collect("value"),
    "top": top_n(3, "-value", "who"),
    "best": agg.max_by("who", "value"),
}
NATIVE = {"n": agg.count(), "total": agg.sum("value"), "mean": agg.avg("dec"), "best": agg.max_by("who", "value")}
LATE = correct("3 minutes")


def timed(frame: DataFrame) -> DataFrame:
    return frame.transform(event_time("ts", delay="5 seconds"))


def other(frame: DataFrame) -> DataFrame:
    return timed(frame.select("who", "value", "ts"))


def table(frame: DataFrame) -> DataFrame:
    return frame.transform(table_changes("shop", form="rows"))


def versions(frame: DataFrame) -> DataFrame:
    return frame.transform(row_versions("shop", form="rows"))


def minutes(frame: DataFrame) -> DataFrame:
    window = tumbling("1 minute", by="shop", total=agg.sum("value"), stragglers=side_output())
    return timed(frame).transform(window).transform(on_time)


QUERIES: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "tumbling": lambda e, _: timed(e).transform(tumbling("1 minute", offset="5 seconds", stragglers=LATE, **WINDOWED)),
    "hopping": lambda e, _: timed(e).transform(hopping("20 seconds", "5 seconds", by="shop", **WINDOWED)),
    "early": lambda e, _: timed(e).transform(tumbling("1 minute", by="who", early="5 seconds", n=agg.count())),
    "sessions": lambda e, _: timed(e).transform(sessions("15 seconds", by="shop", stragglers=LATE, **WINDOWED)),
    "sliding": lambda e, _: timed(e).transform(
        sliding("20 seconds", by="shop", keep="who", stragglers=LATE, **WINDOWED)
    ),
    "native tumbling": lambda e, _: timed(e).transform(tumbling("1 minute", by="shop", **NATIVE)),
    "native sessions": lambda e, _: timed(e).transform(sessions("1 minute", by="shop", **NATIVE)),
    "top_rows of windows": lambda e, _: (
        timed(e)
        .transform(hopping("20 seconds", "10 seconds", by="shop", v=agg.sum("value")))
        .transform(top_rows(1, "-v"))
    ),
    "compare": lambda e, _: minutes(e).transform(compare("total", by="shop", rolling="1 hour")),
    "deduplicate": lambda e, _: timed(e).transform(deduplicate("who", within="30 seconds")),
    "deduplicate for ever": lambda e, _: e.transform(deduplicate(["shop", "value"])),
    "correct_clock": lambda e, _: e.transform(
        correct_clock(device="shop", event="ts", sent="sent", received="_timestamp")
    ),
    "join_streams": lambda e, _: timed(e).transform(
        join_streams(other(e), on="who", within=("-5 seconds", "20 seconds"), how="full", stragglers=LATE)
    ),
    "native join_streams": lambda e, _: timed(e).transform(join_streams(other(e), on="who", within="20 seconds")),
    "join_windows": lambda e, _: timed(e).transform(
        join_windows(other(e), on="who", size="30 seconds", how="left", stragglers=LATE)
    ),
    "enrich as of": lambda e, t: timed(e).transform(
        enrich(versions(t), on="shop", as_of="event_time", prefix="t_", delay="10 seconds", stragglers=LATE)
    ),
    "enrich": lambda e, t: e.transform(enrich(versions(t), on="shop", how="left", prefix="t_")),
    "table_changes": lambda _, t: table(t),
    "group_changes": lambda _, t: table(t).transform(group_changes("n", native=False, **GROUPED)),
    "group_changes of all": lambda _, t: table(t).transform(group_changes(native=False, n=agg.count())),
    "group_changes of events": lambda e, _: e.transform(appended()).transform(group_changes("shop", **GROWING)),
    "distinct_changes": lambda _, t: table(t).transform(distinct_changes(["n", "name"])),
    "latest": lambda e, _: e.transform(latest("shop", "value")),
    "top_rows of a table": lambda _, t: table(t).transform(top_rows(2, "-price", by="n")),
    "join_tables": lambda _, t: table(t).transform(
        join_tables(table(t).drop("n"), on={"name": "shop"}, how="full", prefix="u_")
    ),
}


def columns(schema: pa.Schema) -> list[str]:
    return [f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings of each operator that is put on keyed state."""
    found: list[Any] = []

    class Noticed(stateful.KeyedProcessor):
        def __init__(self, operator: Any, plan: Any, keys: pa.Schema, buckets: int, **given: Any) -> None:
            super().__init__(operator, plan, keys, buckets, **given)
            made = Settings.of(plan, keys, buckets)
            tables = [
                {"name": each.name, "kind": type(each).__name__, "time": each.time, "columns": columns(each.schema)}
                for each in made.tables
            ]
            found.append({"keys": columns(keys), "parameters": dict(made.parameters), "tables": tables})

    monkeypatch.setattr(stateful, "KeyedProcessor", Noticed)
    return found


def test_operators_store_what_they_stored(spark: SparkSession, tmp_path: Path, kept: list[Any]) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "rows").mkdir()
    events = spark.readStream.schema(EVENTS).json(str(tmp_path / "events"))
    rows = spark.readStream.schema(ROWS).json(str(tmp_path / "rows"))
    stored = {}
    for name, make in QUERIES.items():
        kept.clear()
        steps = steps_of(make(events, rows))
        assert steps is not None
        stored[name] = {"keyed": list(kept), "steps": [step.meaning for step in steps]}
    if os.environ.get("HEADRACE_WRITE_SETTINGS"):
        FILE.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    before = json.loads(FILE.read_text())
    assert list(stored) == list(before)
    for name, now in stored.items():
        assert now == before[name], name
