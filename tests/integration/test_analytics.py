"""Analytics on Spark: one query with all of its operators, stopped in the middle, and the same over a bounded frame."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    batches,
    correct,
    deduplicate,
    event_time,
    ewma,
    first_rows,
    flag_anomalies,
    hopping,
    on_time,
    ranked,
    robust,
    rolling,
    seasonal,
    side_output,
    sliding,
    top_rows,
    tumbling,
)
from headrace.pipelines.operators.errors import BadAggregate, BadField, BadTime
from tests.integration.operator_streams import START, Stream, at

pytestmark = pytest.mark.java

SHAPE = "k string, at timestamp, x double, user string, tags map<string, string>"
FAR = 1000


def event(n: int) -> dict[str, Any]:
    second = n * 7 % 240 + n / 1000
    x = math.sin(n) * 10 + (500 if n == 200 else 0)
    return {"k": "abc"[n % 3], "at": at(second), "x": x if n % 13 else None, "user": f"u{n * n % 97}"}


EVENTS = [event(n) for n in range(400)]
EVENTS = [each for each in EVENTS if not (each["k"] == "a" and at(60) <= each["at"] < at(180))]
EVENTS.sort(key=lambda each: (each["at"][:18], each["user"]))  # within ten seconds in any order
LAST = {"k": "end", "at": at(FAR), "x": 0.0, "user": "end"}

K: Any = {"by": "k", "buckets": 2}
OPERATORS = {
    "empty": tumbling("10 seconds", **K, n=agg.count(), total=agg.sum("x"), empty="1 minute"),
    "corrected": tumbling(
        "10 seconds", **K, n=agg.count(), empty="1 minute", stragglers=correct("1 hour"),
    ),
    "listed": lambda frame: frame.transform(tumbling("10 seconds", **K, n=agg.count(), empty=["a", "z"])).where(
        fn.col("window_end") <= fn.lit(at(900)).cast("timestamp")
    ),
    "sketches": hopping(
        "1 minute", "20 seconds", **K,
        users=agg.approx_count_distinct("user", error=0.01), bytes=agg.distinct_sketch("user", error=0.01),
        p=agg.approx_percentile("x", [0.5, 0.9]), often=agg.frequent_items("user", 0.02),
        some=agg.approx_count_distinct("user", where="x > 0"),
    ),
    "minutes": lambda frame: frame.transform(
        tumbling("10 seconds", **K, u=agg.distinct_sketch("user"), p=agg.percentile_sketch("x"),
                 f=agg.frequent_sketch("user"))
    ).transform(
        tumbling("1 minute", **K, u=agg.approx_count_distinct(sketches="u"),
                 p=agg.approx_percentile(at=0.5, sketches="p"), f=agg.frequent_items(share=0.02, sketches="f"))
    ),
    "sliding": sliding("30 seconds", **K, keep="user", slope=agg.slope("x"),
                       users=agg.approx_count_distinct("user")),
    "rolling": rolling(5, **K, keep=["user", "x"], within="1 minute", mean=agg.avg("x"), slope=agg.slope("x")),
    "batches": batches(7, **K, n=agg.count(), best=agg.max("x")),
    "top": lambda frame: frame.transform(
        tumbling("20 seconds", **K, n=agg.count(), stragglers=correct("1 hour"))
    ).transform(top_rows(1, "-n", buckets=2)),
    "first_rows": first_rows(3, **K),
    "ewma": flag_anomalies("x", ewma("30 seconds"), **K),
    "robust": flag_anomalies("x", robust(20, within="2 minutes"), **K, stragglers=side_output()),
    "seasonal": lambda frame: frame.transform(OPERATORS["empty"]).transform(
        flag_anomalies("n", seasonal("1 minute", "10 seconds", least_spread=1), **K)
    ),
    "bloom": deduplicate(["k", "user"], buckets=2, within="20 seconds", expected=10_000, error=1e-6),
    "bloom ever": deduplicate("user", buckets=2, expected=10_000, error=1e-6),
}  # fmt: skip


QUICK = ("corrected", "top", "batches", "robust")


def all_of(frame: DataFrame, names: Iterable[str] = tuple(OPERATORS)) -> DataFrame:
    """The results of the operators as JSON beside each one's name."""
    frame = frame.withColumn("tags", fn.create_map(fn.lit("a"), fn.lit("b")))
    frame = frame.transform(event_time("at", delay="30 seconds", into="at"))
    found = None
    for name in names:
        made = frame.transform(OPERATORS[name])
        made = made.transform(on_time) if name == "robust" else made
        shown = made.where("k <> 'end'") if "k" in made.columns else made
        columns = [column for column in shown.columns if column != "tags"]
        one = shown.select(fn.lit(name).alias("name"), fn.to_json(fn.struct(*map(fn.col, columns))).alias("row"))
        found = one if found is None else found.union(one)
    assert found is not None
    return found


def by_name(rows: list[Row]) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[row["name"]].append(json.loads(row["row"], parse_float=lambda text: float(f"{float(text):.9g}")))
    return found


@pytest.fixture(scope="module")
def bounded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    file = tmp_path_factory.mktemp("bounded") / "events.json"
    file.write_text("\n".join(json.dumps(each) for each in [*EVENTS, LAST]))
    return by_name(all_of(spark.read.schema(SHAPE).json(str(file))).collect())


def seconds(value: str | None) -> float | None:
    return None if value is None else (datetime.fromisoformat(value) - START).total_seconds()


@pytest.mark.parametrize(
    "names", [pytest.param(QUICK, id="some"), pytest.param(tuple(OPERATORS), id="all", marks=pytest.mark.long)]
)
def test_a_stream_in_batches_gives_what_the_bounded_frame_gives(
    spark: SparkSession, tmp_path: Path, bounded: dict[str, list[dict[str, Any]]], names: tuple[str, ...]
) -> None:
    stream = Stream(spark, tmp_path, events=SHAPE)
    parts = [EVENTS[at : at + 90] for at in range(0, len(EVENTS), 90)]
    rows = stream.feed(partial(all_of, names=names), [{"events": part} for part in [*parts, [LAST]]])
    found = by_name(rows)
    assert found.keys() == set(names)
    assert bounded.keys() == OPERATORS.keys()
    for name in names:
        wanted = bounded[name]
        ours = Counter(json.dumps(row, sort_keys=True) for row in found[name])
        assert ours == Counter(json.dumps(row, sort_keys=True) for row in wanted), name


def test_a_rate_reads_0(bounded: dict[str, list[dict[str, Any]]]) -> None:
    counts = {seconds(row["window_start"]): row["n"] for row in bounded["empty"] if row["k"] == "a"}
    assert [counts.get(start) for start in (60, 110, 120, 170, 180)] == [0, 0, None, None, counts[180]]
    assert counts[180] > 0
    assert all("total" not in row for row in bounded["empty"] if not row["n"])
    listed = Counter((row["k"], row["n"] > 0) for row in bounded["listed"])
    assert listed["a", True] + listed["a", False] == listed["z", False] == 90
    assert listed["b", False] == listed["z", True] == 0
    most = Counter({(each["k"], seconds(each["at"]) // 20 * 20): 0 for each in EVENTS})
    most.update((each["k"], seconds(each["at"]) // 20 * 20) for each in EVENTS)
    best = {start: max(n for (_, other), n in most.items() if other == start) for _, start in most}
    assert {(row["k"], seconds(row["window_start"]), row["n"]) for row in bounded["top"]} == {
        (key, start, n) for (key, start), n in most.items() if n == best[start]
    }
    corrected = [{**row, "revision": None, "retracted": None} for row in bounded["corrected"]]
    assert {(row["k"], row["window_start"], row["n"]) for row in corrected} == {
        (row["k"], row["window_start"], row["n"]) for row in bounded["empty"]
    }


def test_sketches_are_near_and_spark_reads_them(spark: SparkSession, bounded: dict[str, list[dict[str, Any]]]) -> None:
    rows = bounded["sketches"]
    assert len(rows) > 30
    for row in rows:
        start = seconds(row["window_start"])
        mine = [e for e in EVENTS if e["k"] == row["k"] and start <= seconds(e["at"]) < start + 60]
        users = Counter(each["user"] for each in mine)
        assert abs(row["users"] - len(users)) <= max(0.05 * len(users), 0.5)
        positive = {each["user"] for each in mine if each["x"] is not None and each["x"] > 0}
        assert abs(row["some"] - len(positive)) <= max(0.05 * len(positive), 0.5)
        assert {item["value"]: item["count"] for item in row["often"]} == {
            user: n for user, n in users.items() if n > 0.02 * len(mine)
        }
        values = sorted(each["x"] for each in mine if each["x"] is not None)
        for share, value in zip((0.5, 0.9), row["p"], strict=True):
            exact = values[math.ceil(share * len(values)) - 1]
            assert abs(value - exact) <= 0.0101 * abs(exact)
    frame = spark.createDataFrame(
        [(row["k"], row["bytes"], row["users"]) for row in rows], "k string, b string, n long"
    )
    read = frame.select("n", fn.hll_sketch_estimate(fn.unbase64("b")).alias("spark")).collect()
    assert all(abs(row["n"] - row["spark"]) <= 0.01 * row["n"] + 1 for row in read)
    union = frame.groupBy("k").agg(fn.hll_sketch_estimate(fn.hll_union_agg(fn.unbase64("b"))).alias("n")).collect()
    for row in union:
        users = {each["user"] for each in EVENTS if each["k"] == row["k"]}
        assert abs(row["n"] - len(users)) <= 0.05 * len(users)
    whole = {(row["k"], row["window_start"]): row["users"] for row in rows if seconds(row["window_start"]) % 60 == 0}
    minutes = {(row["k"], row["window_start"]): row for row in bounded["minutes"]}
    assert all(abs(row["u"] - whole[key]) <= 0.1 * whole[key] + 1 for key, row in minutes.items())
    often = {(row["k"], row["window_start"]): row["often"] for row in rows}
    assert all(row["f"] == often[key] != [] for key, row in minutes.items())


def test_anomalies_and_first_rows_and_batches(bounded: dict[str, list[dict[str, Any]]]) -> None:
    spike = next(each for each in EVENTS if each["x"] is not None and each["x"] > 400)
    for name in ("ewma", "robust"):
        assert len(bounded[name]) == len(EVENTS)
        flagged = [row for row in bounded[name] if row["is_anomaly"]]
        assert seconds(spike["at"]) in {seconds(row["at"]) for row in flagged}
        assert len(flagged) < 10
    assert all("score" not in row for row in bounded["ewma"] if "x" not in row)
    assert any(row["is_anomaly"] for row in bounded["seasonal"])
    firsts = defaultdict(list)
    for each in sorted(EVENTS, key=lambda each: seconds(each["at"])):
        firsts[each["k"]].append(seconds(each["at"]))
    assert sorted(seconds(row["at"]) for row in bounded["first_rows"]) == sorted(
        time for times in firsts.values() for time in times[:3]
    )
    sizes = Counter(row["k"] for row in bounded["batches"])
    assert sizes == {key: len(times) // 7 for key, times in firsts.items()}
    assert {row["n"] for row in bounded["batches"]} == {7}
    assert len(bounded["rolling"]) == len(bounded["sliding"]) == len(EVENTS)
    assert sorted(row["user"] for row in bounded["bloom ever"]) == sorted({each["user"] for each in EVENTS})


def test_what_bloom_filters_leave_out_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"k": "a", "at": at(1), "x": n % 50, "user": f"u{n % 50}"} for n in range(200)]
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, rows)))
    once = spark.readStream.schema(SHAPE).json(str(tmp_path / "in")).transform(
        deduplicate("user", expected=1000, error=0.001)
    )  # fmt: skip
    query = once.writeStream.format("memory").queryName("once").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("once").count() == 50
    counted = [row.asDict() for each in query.recentProgress for row in each.observedMetrics.values()]
    assert sum(row.get("left_out", 0) for row in counted) == 150
    assert 0 <= sum(row.get("perhaps_wrongly", 0) for row in counted) < 0.1


def test_mistakes_get_a_sentence_before_anything_runs(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], SHAPE).transform(event_time("at", delay="1 second", into="at"))
    for transform, error, said in [
        (flag_anomalies("user", ewma("1 minute")), BadField, "'user' is string"),
        (flag_anomalies("y", ewma("1 minute")), BadField, "names 'y'"),
        (rolling(3, by="y", n=agg.count()), BadField, "names 'y'"),
        (rolling(3, keep="y", n=agg.count()), BadField, "names 'y'"),
        (first_rows(3, by="y"), BadField, "names 'y'"),
        (batches(ends="nothing = 1", n=agg.count()), BadField, "cannot be evaluated"),
        (batches(ends="x", n=agg.count()), BadField, "is double and no condition"),
        (batches(3, time="x", n=agg.count()), BadTime, "is double"),
        (tumbling("1 minute", u=agg.approx_count_distinct("tags")), BadAggregate, "cannot be evaluated"),
        (tumbling("1 minute", u=agg.approx_percentile("user")), BadAggregate, "only numbers have percentiles"),
        (tumbling("1 minute", u=agg.distinct_sketch(sketches="user")), BadAggregate, "sketches are bytes"),
        (tumbling("1 minute", u=agg.slope("user")), BadAggregate, "only numbers have a slope"),
        (tumbling("1 minute", u=agg.frequent_items(sketches="x")), BadAggregate, "as frequent_sketch makes them"),
    ]:
        with pytest.raises(error, match=said):
            frame.transform(transform)
    with pytest.raises(BadField, match="adds a column 'score'"):
        frame.withColumn("score", fn.lit(1)).transform(flag_anomalies("x", ewma("1 minute")))
    assert frame.transform(tumbling("1 minute", top=agg.frequent_items("user"))).transform(ranked("top")).count() == 0
