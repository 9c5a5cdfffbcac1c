"""A job whose stateful steps were changed is refused before Spark plans a batch, with or without new rows."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace.pipelines import job, topic
from headrace.pipelines.jobs.build import Prepared, start
from headrace.pipelines.jobs.declare import AVAILABLE_NOW, BadJob
from headrace.pipelines.jobs.failures import sentence_of, will_last
from headrace.pipelines.jobs.place import Place
from headrace.pipelines.operators import join_streams
from headrace.pipelines.spark.stateful_steps import FILE, steps_of

pytestmark = pytest.mark.java

Query = Callable[[DataFrame], DataFrame]
LATER = "value > 5"
WINDOW = "10 seconds"


def counted(rows: DataFrame, *keys: str, window: str = WINDOW, of: str = "value") -> DataFrame:
    return rows.groupBy(fn.window("at", window), *keys).agg(fn.sum(of).alias("total"))


SAME: dict[str, Query] = {
    "another name of the result": lambda rows: counted(rows, "key").withColumnRenamed("total", "sum"),
    "other rows": lambda rows: counted(rows.where(LATER), "key"),
    "another computation before": lambda rows: counted(rows.withColumn("value", fn.col("value") * 2), "key"),
    "another column besides": lambda rows: counted(rows.withColumn("more", fn.lit(1)), "key"),
    "a table that does not stream": lambda rows: counted(
        rows.join(rows.sparkSession.range(9).groupBy((fn.col("id") % 3).alias("key")).count(), "key"), "key"
    ),
}
CHANGED: dict[str, tuple[Query, str]] = {
    "a key more": (
        lambda rows: counted(rows, "key", "value"),
        r"now has groupBy\(window, key, value\) with sum\(value",
    ),
    "a key less": (counted, r"now has groupBy\(window\) with"),
    "another window": (lambda rows: counted(rows, "key", window="20 seconds"), "computes a window or a key of it in"),
    "a key computed otherwise": (
        lambda rows: counted(rows.withColumn("key", fn.col("key") % 2), "key"),
        "computes a window or a key of it in another way",
    ),
    "another column summed": (lambda rows: counted(rows, "key", of="other"), r"now has .* with sum\(other\)"),
    "another aggregate": (
        lambda rows: rows.groupBy(fn.window("at", WINDOW), "key").agg(fn.max("value")),
        r"now has .* with max\(value\)",
    ),
    "no state": (lambda rows: rows, "now has no step"),
    "a step before": (
        lambda rows: counted(rows.dropDuplicatesWithinWatermark(["key"]), "key"),
        r"now has dropDuplicates\(key\), then groupBy",
    ),
}


class Changing:
    """A job over files, whose query can be another at every start."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        (folder / "in").mkdir(parents=True)
        self.write(0)

    def write(self, number: int) -> None:
        rows = [{"key": n % 3, "value": n, "other": n, "at": f"2026-01-01T00:00:{n:02d}Z"} for n in range(30)]
        (self.folder / "in" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))

    def prepared(self, query: Query) -> Prepared:
        made = job(inputs={"rows": topic("rows")}, outputs=lambda batch, _: batch.collect(), name="changing")(_returned)
        read = self.spark.readStream.schema("key long, value long, other long, at timestamp").json(
            str(self.folder / "in")
        )
        results = {"out": query(read.withWatermark("at", "1 second"))}
        return Prepared(made, Place(self.folder, 1), "127.0.0.1:1", results, AVAILABLE_NOW)

    def run(self, query: Query) -> BaseException | None:
        started = start(self.prepared(query))["out"]
        with suppress(StreamingQueryException):
            started.awaitTermination()
        return started.exception()


def _returned(rows: DataFrame) -> DataFrame:
    return rows


@pytest.fixture(scope="module")
def changing(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Changing:
    made = Changing(spark, tmp_path_factory.mktemp("changing"))
    assert made.run(lambda rows: counted(rows, "key")) is None
    return made


@pytest.mark.parametrize(("query", "said"), CHANGED.values(), ids=CHANGED)
def test_another_state_is_refused_with_the_remedy(changing: Changing, query: Query, said: str) -> None:
    kept = r"job 'changing': its state was kept by groupBy\(window, key\) with sum\(value\), and the query "
    with pytest.raises(BadJob, match=f"{kept}.*{said}.*: write the query as it was, or .* headrace pipeline reset"):
        start(changing.prepared(query))


def test_what_keeps_the_state_as_it_is_may_change(changing: Changing) -> None:
    for number, (name, query) in enumerate(SAME.items()):
        if number == 0:
            changing.write(1)  # one of them with rows
            assert changing.run(query) is None, name
        else:
            started = start(changing.prepared(query))["out"]
            started.stop()


def test_windows_that_overlap_are_told_apart_by_length_and_step(changing: Changing) -> None:
    def meaning(*window: str) -> str:
        frame = changing.prepared(lambda rows: rows.groupBy(fn.window("at", *window)).count()).results["out"]
        (step,) = steps_of(frame) or ()
        return step.meaning

    assert meaning("10 seconds", "5 seconds") == meaning("10 seconds", "5 seconds")
    others = [("20 seconds", "5 seconds"), ("10 seconds", "2 seconds"), ("10 seconds", "5 seconds", "1 second")]
    assert len({meaning(*window) for window in [("10 seconds", "5 seconds"), *others]}) == 4


ORDERS: dict[str, tuple[Query, Query]] = {
    "aggregates": (
        lambda rows: rows.groupBy("key").agg(fn.max("value"), fn.min("value")),
        lambda rows: rows.groupBy("key").agg(fn.min("value"), fn.max("value")),
    ),
    "keys of duplicates": (
        lambda rows: rows.dropDuplicates(["value", "other"]),
        lambda rows: rows.dropDuplicates(["other", "value"]),
    ),
    "columns of a join": (
        lambda rows: rows.select("key", "value", "other", "at").transform(itself),
        lambda rows: rows.select("key", "other", "value", "at").transform(itself),
    ),
    "columns of Spark's join": (
        lambda rows: rows.select("key", "value", "other").join(rows.select("key"), "key"),
        lambda rows: rows.select("key", "other", "value").join(rows.select("key"), "key"),
    ),
}


def itself(rows: DataFrame) -> DataFrame:
    return rows.transform(join_streams(rows.select("key", "at"), on="key", within="1 minute"))


@pytest.mark.parametrize(("before", "now"), ORDERS.values(), ids=ORDERS)
def test_what_is_kept_by_its_place_has_to_stay_there(changing: Changing, before: Query, now: Query) -> None:
    def meanings(query: Query) -> list[str]:
        return [step.meaning for step in steps_of(changing.prepared(query).results["out"]) or ()]

    assert len(meanings(before)) == 1
    assert meanings(before) == meanings(before) != meanings(now)


def test_columns_that_nothing_behind_a_join_looks_at_may_come_and_go(changing: Changing) -> None:
    def meanings(*columns: str) -> list[str]:
        def joined(rows: DataFrame) -> DataFrame:
            keys = rows.select(fn.col("key").alias("same"))
            return rows.select(*columns).join(keys, fn.col("key") == fn.col("same")).select("value")

        return [step.meaning for step in steps_of(changing.prepared(joined).results["out"]) or ()]

    assert meanings("key", "value") == meanings("key", "other", "value") != meanings("value", "key")


def test_a_checkpoint_from_before_steps_were_written_down_runs_and_sparks_own_refusal_is_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = Changing(spark, tmp_path / "before")
    assert before.run(lambda rows: counted(rows, "key")) is None
    checkpoint = Place(before.folder, 1).checkpoint("out")
    (checkpoint / FILE).unlink()
    before.write(1)
    failure = before.run(lambda rows: counted(rows, "key", "other"))
    assert failure is not None
    assert will_last(failure)
    said = sentence_of(failure)
    assert said.startswith("its state was kept by other steps than the query now has (Spark's STATE_STORE_")
    assert "headrace pipeline reset" in said
