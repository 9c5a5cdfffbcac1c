"""Every operator behind every other, in one query: the answer of a database, or a sentence before anything runs."""

import json
import threading
from contextlib import suppress
from datetime import timedelta
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace import Broker
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    appended,
    correct,
    deduplicate,
    enrich,
    event_time,
    join_streams,
    side_output,
    sliding,
    tumbling,
)
from headrace.pipelines.operators.errors import BadTime, BadWindow
from headrace.pipelines.operators.time_marks import TimeMark, time_marks
from tests.integration.composing import (
    BY_NAME,
    CLICKS,
    COLUMNS,
    END,
    FAR,
    ROWS,
    SECOND,
    START,
    STEPS,
    Step,
    Streams,
    chain,
    found,
    microseconds,
    result,
)

pytestmark = pytest.mark.java
_names = (f"composed_{number}" for number in count())
# Of the matrix, which `test_every_operator_behind_every_other` runs whole: each kind of operator first and second.
SOME = [
    ("hopping", "sessions"),
    ("join_streams", "hopping"),
    ("tumbling", "join_streams of windows"),
    ("enrich, as_of", "tumbling"),
    ("hopping", "enrich, as_of"),
    ("sliding", "deduplicate"),
    ("sliding, correct", "group_changes"),
]


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return Streams(spark, tmp_path_factory.mktemp("composing"))


class Running:
    """A query with the rows that it has given."""

    def __init__(self, streams: Streams, *steps: Step, frame: DataFrame | None = None) -> None:
        frame = result(streams.chained(*steps) if frame is None else frame)
        self.name = next(_names)
        writer = frame.writeStream.format("memory").queryName(self.name).trigger(availableNow=True)
        self.query, self.spark = writer.start(), streams.spark

    def rows(self) -> list[Any]:
        self.query.awaitTermination()
        return [tuple(row) for row in self.spark.table(self.name).collect()]

    def late(self) -> int:
        return late_rows_of(self.query)


def late_rows_of(query: Any) -> int:
    """Rows that any operator counted as late."""
    progress = query.recentProgress
    counted = [row.asDict() for each in progress for row in each.observedMetrics.values()]
    dropped = [step.numRowsDroppedByWatermark for each in progress for step in each.stateOperators]
    return sum(row.get("late") or 0 for row in counted) + sum(dropped)


def named(steps: tuple[Step, ...]) -> str:
    return " -> ".join(step.name for step in steps)


def run(streams: Streams, chains: list[tuple[Step, ...]], at_once: int = 4) -> dict[str, str]:
    """Chains, some at once; what is wrong with each."""
    wrong: dict[str, str] = {}
    turns = threading.Semaphore(at_once)

    def answer(steps: tuple[Step, ...]) -> None:
        name = named(steps)
        with turns:
            try:
                running = Running(streams, *steps)
                rows, expected = found(running.rows()), expectations[name]
                if rows != expected:
                    wrong[name] = (
                        f"missing {sorted((expected - rows).items(), key=str)[:3]}, too many {sorted((rows - expected).items(), key=str)[:3]} of {expected.total()}"  # noqa: E501
                    )
                elif not expected:
                    wrong[name] = "nothing to compare"
                elif running.late():
                    wrong[name] = f"{running.late()} rows late"
            except Exception as error:
                wrong[name] = f"{type(error).__name__}: {str(error)[:300]}"

    expectations = {named(steps): streams.answer(*steps) for steps in chains}
    threads = [threading.Thread(target=answer, args=(steps,)) for steps in chains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def refusal(streams: Streams, *steps: Step) -> str | None:
    """The sentence by which a chain is refused; None if it may run."""
    try:
        streams.chained(*steps)
    except PipelineError as error:
        return str(error)
    return None


def page() -> dict[tuple[str, str], str]:
    """The table of the docs: row and column, and what it says."""
    text = (Path(__file__).parents[2] / "docs/how-to/compose-operators.md").read_text()
    table = text.partition("## What may stand behind what")[2].partition("\n| |")[2].partition("\n\n")[0]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {(row[0], name): cell for row in rows for name, cell in zip(header, row[1:], strict=True)}


def compared(streams: Streams, rows: dict[str, tuple[str, ...]], columns: dict[str, tuple[str, ...]]) -> None:
    """Hold the table of the docs against what is refused, and look at the sentences."""
    said = page()
    assert {row for row, _ in said} == set(ROWS)
    assert {column for _, column in said} == set(COLUMNS)
    for row, column in said:
        for first, second in product(rows[row], columns[column]):
            sentence = refusal(streams, *chain(first, second))
            assert (sentence is None) == (said[row, column] == "yes"), (first, second, sentence)
            assert sentence is None or (": " in sentence and len(sentence) < 400), sentence


@pytest.mark.long
def test_operators_behind_operators_give_a_databases_answer(streams: Streams) -> None:
    assert run(streams, [chain(*pair) for pair in SOME]) == {}


def test_what_cannot_be_is_refused_before_it_runs_as_the_page_says(streams: Streams) -> None:
    compared(streams, *({name: some[:1] for name, some in each.items()} for each in (ROWS, COLUMNS)))
    clicks, windows = streams.events("clicks"), tumbling("1 minute", by="shop", value=agg.sum("value"))
    first = clicks.transform(windows)
    with pytest.raises(BadTime, match="'window_end' carries a watermark already: leave out event_time"):
        first.transform(event_time("window_end", delay="0 seconds"))
    with pytest.raises(BadWindow, match="a second watermark is set behind a step that waits for the first"):
        first.withWatermark("window_start", "1 second").transform(windows)
    with pytest.raises(BadWindow, match=r"keep the column that carries it .* or write .*event_time\("):
        first.select("shop", "value").transform(windows)
    with pytest.raises(BadWindow, match=r"late rows beside them: write \.transform\(on_time\)"):
        clicks.transform(tumbling("1 minute", n=agg.count(), stragglers=side_output())).transform(
            tumbling("1 hour", n=agg.count())
        )


@pytest.mark.long
def test_the_page_holds_for_every_pair(streams: Streams) -> None:
    compared(streams, ROWS, COLUMNS)


@pytest.mark.long
@pytest.mark.parametrize("first", [name for names in ROWS.values() for name in names])
def test_every_operator_behind_every_other(streams: Streams, first: str) -> None:
    pairs = [chain(first, step.name) for step in STEPS]
    assert run(streams, [pair for pair in pairs if refusal(streams, *pair) is None]) == {}


class AtRest(Streams):
    """The same files, read at once."""

    def read(self, name: str, schema: str) -> DataFrame:
        return self.spark.read.schema(schema).json(str(self.folder / name))


def test_read_at_once_the_answer_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    files = AtRest(spark, tmp_path)
    for names in (("tumbling", "hopping"), ("tumbling", "sessions"), ("hopping", "join_streams of windows")):
        rows = [tuple(row) for row in result(files.chained(*chain(*names))).collect()]
        assert found(rows) == files.answer(*chain(*names)), names


class Topics(Streams):
    """The inputs as topics of four partitions, each in the order of time, read in small batches."""

    def __init__(self, spark: SparkSession, folder: Path, servers: str) -> None:
        self.servers = servers
        super().__init__(spark, folder)

    def store(self, name: str, rows: list[tuple[str, int, float]], *, is_table: bool, batches: int = 2) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for future in admin.create_topics([NewTopic(name, 1 if is_table else 4)]).values():
            future.result()
        producer = Producer({"bootstrap.servers": self.servers})
        for number, (shop, value, second) in enumerate([*rows, (END, 0, FAR.total_seconds())]):
            at = START + timedelta(seconds=second)
            row = {"shop": shop, "price" if is_table else "value": value, "at": at.isoformat()}
            about = {"timestamp": microseconds(at) // 1000, "partition": 0 if is_table else number * 7 % 4}
            producer.produce(name, json.dumps(row), key=json.dumps({"shop": shop}), **about)
        assert producer.flush(30) == 0

    def read(self, name: str, schema: str) -> DataFrame:
        options = {"bootstrap": self.servers, "format": "json", "startingOffsets": "earliest"}
        reader = self.spark.readStream.format("headrace").options(**options, maxRecordsPerTrigger=25)
        return reader.schema(schema).load(name)


CRASHING = [("tumbling", "hopping"), ("hopping", "join_streams of windows"), ("enrich, as_of", "sliding")]


@pytest.mark.parametrize(
    "names", [CRASHING[0], *(pytest.param(each, marks=pytest.mark.long) for each in CRASHING[1:])], ids=" -> ".join
)
def test_a_replay_of_many_partitions_that_crashes_on_its_way(
    spark: SparkSession, tmp_path: Path, names: tuple[str, str]
) -> None:
    """Nothing is late in small batches, and what a run had begun when it failed is done once."""
    written: dict[int, list[Any]] = {}
    crashes = {2, 3}

    def write(frame: DataFrame, number: int) -> None:
        rows = [tuple(row) for row in frame.collect()]
        if number in crashes:
            crashes.remove(number)
            raise RuntimeError("crash before the commit")
        # A batch may be run again, and is the same then.
        assert sorted(written.setdefault(number, rows), key=str) == sorted(rows, key=str)

    with Broker(tmp_path / "broker") as broker:
        topics = Topics(spark, tmp_path, broker.bootstrap_servers)
        late, runs, query = 0, 0, None
        while query is None or query.exception() is not None:
            assert runs < 4, "it fails by itself"
            frame = result(topics.chained(*chain(*names)))
            writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
            with suppress(StreamingQueryException):
                query.awaitTermination()
            late, runs = late + late_rows_of(query), runs + 1
        assert runs == 3
        assert len(written) > 3
        assert found([row for rows in written.values() for row in rows]) == topics.answer(*chain(*names))
        assert late == 0


def test_rows_that_were_held_up_are_not_late_behind(streams: Streams) -> None:
    """Events that are late by less than `correct` allows are answered, and count in the window behind."""
    # By the third batch, the watermark before it is behind all of its rows.
    streams.store("late", [*CLICKS[40:], *CLICKS[20:40], *CLICKS[:20]], is_table=False, batches=3)
    late = streams.events("late")
    versions = streams.versions("rates")
    priced = enrich(versions, on="shop", as_of="event_time", delay="2 seconds", stragglers=correct("1 hour"))
    known = late.transform(priced).withColumn("value", fn.expr("value + price"))
    windows = known.transform(tumbling("1 minute", by="shop", value=agg.sum("value")))
    running = Running(streams, frame=windows)
    assert found(running.rows()) == streams.answer(BY_NAME["enrich, as_of"], BY_NAME["tumbling"])
    assert running.late() == 0


def test_rows_of_a_union_are_as_far_behind_as_those_of_its_inputs(streams: Streams) -> None:
    minutes = streams.events("clicks").transform(tumbling("1 minute", by="shop", value=agg.count()))
    others = streams.events("views").transform(tumbling("1 minute", by="shop", value=agg.count()))
    pairs = minutes.transform(join_streams(others, on="shop", within="1 hour", how="left")).select(*minutes.columns)
    (one,), (other,) = time_marks(minutes), time_marks(pairs)
    assert one.lag_us < other.lag_us
    renamed = minutes.union(pairs).where("value > 0").withColumnRenamed("window_end", "until")
    for united in (minutes.union(pairs), pairs.union(minutes), minutes.unionByName(others).union(pairs)):
        assert time_marks(united) == [other]
    assert [mark.lag_us for mark in time_marks(renamed)] == [other.lag_us]
    assert time_marks(minutes.union(others)) == [one]
    # What is the last moment of a window here is the time itself there: no operator can go by it.
    slid = streams.events("views").transform(sliding("1 minute", by="shop", value=agg.count()))
    mixed = minutes.union(slid.select(*minutes.columns))
    with pytest.raises(BadWindow, match="keep the column that carries it behind the step before"):
        mixed.transform(tumbling("1 hour", n=agg.count()))
    mixed = mixed.transform(event_time("window_end", delay="1 minute"))
    assert time_marks(mixed) == [TimeMark("event_time", lag_us=60 * SECOND)]


def test_results_that_are_given_more_than_once_are_known_under_any_name(streams: Streams) -> None:
    made = streams.events("clicks").transform(
        tumbling("1 minute", by="shop", stragglers=correct("1 hour"), value=agg.count())
    )
    renamed = made.withColumnRenamed("retracted", "gone")
    for frame in (renamed, renamed.drop("window_end"), made.withColumn("retracted", fn.lit(False)).union(made)):
        with pytest.raises(BadWindow, match="given more than once"):
            frame.transform(deduplicate("shop"))
    table = renamed.transform(appended())
    assert ("gone" in table.columns, "_weight" in table.columns) == (False, True)
