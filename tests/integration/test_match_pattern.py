"""Patterns through Spark: on streams that end and go on, and on what does not stream; always what the matcher finds."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.cep import InvalidPattern, Pattern
from headrace.pipelines.errors import BadOption
from headrace.pipelines.jobs.patterns import NOTHING
from headrace.pipelines.keyed.operator import BadState
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    correct,
    event_time,
    match_pattern,
    match_patterns,
    side_output,
    tumbling,
)
from headrace.pipelines.operators.errors import BadField, BadWindow
from tests.integration.operator_streams import START, Stream, at

pytestmark = pytest.mark.java

SHAPE = "card string, at timestamp, amount double, city string, topic string, partition int, offset long"
SMALL_THEN_BIG = (
    Pattern.begin("small", "amount < 10").followed_by("big", "amount > 100 AND city <> small.city").within("20 seconds")
)
SILENT = (
    Pattern.begin("rises", "amount > 50")
    .times(2)
    .consecutive()
    .not_followed_by("calm", "amount < 5", within="8 seconds")
)
FALL_AND_RISE = """MATCH_RECOGNIZE (
    PARTITION BY card ORDER BY at
    MEASURES FIRST(down.amount) AS top, LAST(down.amount) AS bottom, LAST(up.amount) AS upto, COUNT(*) AS n,
             MATCH_NUMBER() AS number
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN (start down+ up+) WITHIN INTERVAL '60' SECOND
    DEFINE down AS amount < PREV(amount), up AS amount > PREV(amount)
)"""
EVERY_ROW = FALL_AND_RISE.replace("ONE ROW PER MATCH", "ALL ROWS PER MATCH").replace(
    "MATCH_NUMBER() AS number", "CLASSIFIER() AS role"
)


def rows(count: int, cards: str = "abc") -> list[dict[str, Any]]:
    """Payments, some at the same time, told apart by their offsets."""
    found = []
    for n in range(count):
        amount = float((n * 37 + n * n * 11) % 160) if n % 7 else 3.0
        found.append(
            {
                "card": cards[n * n % len(cards)],
                "at": at(n // 2 * 1.5),
                "amount": amount if n % 13 else None,
                "city": ["rome", "oslo", None][n // 3 % 3],
                "topic": "pays",
                "partition": n % 2,
                "offset": n // 2,
            }
        )
    return found


ROWS = rows(90)


def shuffled(given: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Out of order by less than the watermark allows."""
    return [one for begin in range(0, len(given), 5) for one in reversed(given[begin : begin + 5])]


def timed(frame: DataFrame) -> DataFrame:
    return frame.transform(event_time("at", delay="10 seconds", into="at"))


def expected(pattern: Pattern | str, given: Sequence[Mapping[str, Any]], **options: Any) -> list[Any]:
    """What the plain matcher finds."""
    made = Pattern.sql(pattern) if isinstance(pattern, str) else pattern
    chosen = {"key": "card", "time": "at"} | options
    ordered = sorted(given, key=lambda one: (one["at"], one["partition"], one["offset"]))
    return list(made.matches(ordered, **chosen))


def coordinates(match: Any) -> tuple[Any, ...]:
    return (match.key[0], *((name, event.partition, event.offset) for name, event in match.rows))


def by_variable(row: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    """A match of a pattern in Python as `coordinates` has it."""
    parts = [(one["at"], one["partition"], one["offset"], name) for name in names for one in row[name]]
    return (row["card"], *((name, partition, offset) for _, partition, offset, name in sorted(parts)))


def test_rows_that_do_not_stream(spark: SparkSession) -> None:
    """The end of the rows decides what is open; nothing needs a bound."""
    frame = spark.createDataFrame([tuple(one.values()) for one in _typed(ROWS)], SHAPE).repartition(3)
    found = timed(frame).transform(match_pattern(SMALL_THEN_BIG, by="card", buckets=3)).collect()
    assert sorted(by_variable(row, "small", "big") for row in found) == sorted(
        map(coordinates, expected(SMALL_THEN_BIG, ROWS, bounded=True))
    )
    assert len(found) > 5
    every = timed(frame).transform(match_pattern(EVERY_ROW))
    told = [(row["card"], row["partition"], row["offset"], row["role"], row["n"]) for row in every.collect()]
    wanted = [
        (out["card"], out["partition"], out["offset"], out["role"], out["n"])
        for match in expected(EVERY_ROW, ROWS, bounded=True)
        for out in match.output
    ]
    assert sorted(told) == sorted(wanted)
    assert len(told) > 10


def _typed(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    from datetime import datetime

    return [{**one, "at": datetime.fromisoformat(one["at"])} for one in given]


def test_streams_that_end_and_go_on(spark: SparkSession, tmp_path: Path) -> None:
    """Several patterns, one query each; rows out of order, in micro-batches, over a restart."""
    late = [{**ROWS[-1], "at": at(300), "card": "z"}]  # moves the watermark past all
    batches = [{"pays": part} for part in (*_cut(shuffled(ROWS), 20), late, [{**late[0], "at": at(301)}])]
    cases = {
        "small": (SMALL_THEN_BIG, {"by": "card"}),
        "silent": (SILENT, {"by": "card"}),
        "fall": (FALL_AND_RISE, {}),
    }
    for name, (pattern, options) in cases.items():
        stream = Stream(spark, tmp_path / name, pays=SHAPE)
        found = stream.feed(
            lambda frame, pattern=pattern, options=options: timed(frame).transform(match_pattern(pattern, **options)),
            batches,
        )
        wanted = expected(pattern, ROWS, lateness="200 seconds")
        if name == "fall":
            told = [(row["card"], row["top"], row["bottom"], row["upto"], row["n"], row["number"]) for row in found]
            assert sorted(told) == sorted(tuple(match.output[0].values()) for match in wanted)
            records = [(row["card"], *((r["variable"], r["partition"], r["offset"]) for r in row["match_rows"]))
                       for row in found]  # fmt: skip
            assert sorted(records) == sorted(map(coordinates, wanted))
        else:
            names = ("small", "big") if name == "small" else ("rises",)
            assert sorted(by_variable(row, *names) for row in found) == sorted(map(coordinates, wanted))
            known = [(row["card"], round((row["match_time"].timestamp() - START.timestamp()) * 1e6)) for row in found]
            since = round(START.timestamp() * 1e6)
            assert sorted(known) == sorted((match.key[0], match.time_us - since) for match in wanted)
        assert len(found) > 2, name


def _cut(given: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [given[begin : begin + size] for begin in range(0, len(given), size)]


def test_several_patterns_in_one_pass_and_windows_behind(spark: SparkSession, tmp_path: Path) -> None:
    """Each under its name; late rows and what ran out of time beside them; a window counts matches."""
    stream = Stream(spark, tmp_path, pays=SHAPE)
    straggler = {**ROWS[0], "at": at(1), "offset": 1_000}
    end = [{**ROWS[-1], "at": at(300 + n), "card": "z"} for n in range(2)]
    batches = [{"pays": part} for part in (*_cut(shuffled(ROWS), 45), end[:1], [straggler, *end[1:]])]
    patterns = {"small": SMALL_THEN_BIG, "fall": FALL_AND_RISE}
    found = stream.feed(
        lambda frame: timed(frame).transform(
            match_patterns(patterns, by="card", time="at", stragglers=side_output(), timed_out=True)
        ),
        batches,
    )
    aside = [row["_aside"] for row in found if row["_aside"] is not None]
    assert [(one["reason"], one["row"]["offset"]) for one in aside] == [("late", 1_000)]
    matches = [row for row in found if row["_aside"] is None and not row["timed_out"]]
    over = [row for row in found if row["_aside"] is None and row["timed_out"]]
    for name, pattern in patterns.items():
        gone: list[Any] = []
        wanted = expected(pattern, ROWS, lateness="200 seconds", on_timed_out=gone.append)
        told = [row for row in matches if row["pattern"] == name and row["card"] != "z"]
        assert sorted(_records(row) for row in told) == sorted(map(coordinates, wanted))
        ran_out = [row for row in over if row["pattern"] == name and row["card"] != "z"]
        assert {_records(row) for row in ran_out} >= {coordinates(match) for match in gone[:1]}
    fall = next(row for row in matches if row["pattern"] == "fall")
    assert set(fall["measures"]) == {"top", "bottom", "upto", "n", "number"}
    counted = Stream(spark, tmp_path / "windows", pays=SHAPE)
    results = counted.feed(
        lambda frame: (
            timed(frame)
            .transform(match_patterns(patterns, by="card", time="at"))
            .transform(tumbling("30 seconds", by="pattern", n=agg.count()))
        ),
        [*batches, {"pays": [{**end[0], "at": at(900)}]}, {"pays": [{**end[0], "at": at(901)}]}],
    )
    assert sum(row["n"] for row in results) == len([row for row in matches if row["card"] != "z"])


def _records(row: Any) -> tuple[Any, ...]:
    return (row["card"], *((one["variable"], one["partition"], one["offset"]) for one in row["match_rows"]))


def test_columns_with_any_name(spark: SparkSession) -> None:
    """A dot is part of a name, of the key too; without a key a column may have the name that stands in for one."""
    shape = "`my.card` string, at timestamp, `how.much` double, _all string"
    given = [("a", START, 1.0, "x"), ("a", START + timedelta(seconds=1), 500.0, "y")]
    frame = timed(spark.createDataFrame(given, shape))
    pattern = Pattern.begin("small", "`how.much` < 10").followed_by("big", "`how.much` > 100").within("20 seconds")
    (found,) = frame.transform(match_pattern(pattern, by="my.card")).collect()
    assert (found["my.card"], found.small[0]["how.much"], found.big[0]["how.much"]) == ("a", 1.0, 500.0)
    (found,) = frame.transform(match_pattern(pattern)).collect()
    assert [one[0]["_all"] for one in (found.small, found.big)] == ["x", "y"]
    with pytest.raises(BadField, match="each row in match_rows would have two columns 'Variable'"):
        frame.withColumnRenamed("_all", "Variable").transform(match_patterns({"one": pattern}, by="my.card"))


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """One sentence each, before the query starts; in a text, with the place."""
    (tmp_path / "in").mkdir()
    pays = timed(spark.readStream.schema(SHAPE).json(str(tmp_path / "in")))
    unbounded = Pattern.begin("small", "amount < 10").followed_by("big", "amount > 100")
    with pytest.raises(InvalidPattern, match=r"for ever: add `within`") as refused:
        pays.transform(match_pattern(unbounded, by="card"))
    assert "^^^^" in str(refused.value)
    with pytest.raises(InvalidPattern, match=r"unknown column 'amout': did you mean 'amount'\?"):
        pays.transform(match_pattern(Pattern.begin("a", "amout < 10"), by="card"))
    with pytest.raises(InvalidPattern, match="MATCH_RECOGNIZE"):
        match_pattern("PATTERN (a b)")
    with pytest.raises(BadField, match="by in match_pattern names 'crd'"):
        pays.transform(match_pattern(SMALL_THEN_BIG, by="crd"))
    with pytest.raises(BadWindow, match="cannot correct matches, because"):
        match_pattern(SMALL_THEN_BIG, by="card", stragglers=correct("1 minute"))
    with pytest.raises(BadOption, match="at_cap is 'drop'"):
        match_pattern(SMALL_THEN_BIG, by="card", at_cap="drop")
    with pytest.raises(BadField, match="two columns 'card'"):
        pays.transform(match_pattern(Pattern.begin("card", "amount < 10"), by="card"))
    with pytest.raises(BadField, match="PARTITION BY and by="):
        pays.transform(match_pattern(FALL_AND_RISE, by="city"))
    with pytest.raises(BadWindow, match="it has seen everything"):
        spark.readStream.schema(SHAPE).json(str(tmp_path / "in")).transform(match_pattern(SMALL_THEN_BIG, by="card"))


def test_another_pattern_under_the_same_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, pays=SHAPE)
    stream.feed(
        lambda frame: timed(frame).transform(match_pattern(SMALL_THEN_BIG, by="card")), [{"pays": ROWS[:9]}] * 2
    )
    stream.add("pays", ROWS[9:12])
    other = SMALL_THEN_BIG.within("30 seconds")
    with pytest.raises(Exception, match=BadState.__name__) as refused:
        stream.run(lambda frame: timed(frame).transform(match_pattern(other, by="card")))
    assert "was made with the pattern = " in str(refused.value)


def test_progress_says_what_patterns_do(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, pays=SHAPE)
    for part in (ROWS[:45], ROWS[45:], [{**ROWS[-1], "at": at(60)}]):
        stream.add("pays", part)
    counted: list[Any] = []
    frame = timed(spark.readStream.schema(SHAPE).option("maxFilesPerTrigger", 1).json(str(tmp_path / "pays")))
    query = (
        frame.transform(match_pattern(SMALL_THEN_BIG, by="card"))
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda found, _number: counted.extend(found.collect()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stand = NOTHING
    for report in query.recentProgress:
        stand = stand.heard(report["observedMetrics"])
    (found,) = stand.patterns
    assert found.matches == len(counted)
    assert found.matches >= 1
    assert found.diagram is not None
    assert stand.events > 10
