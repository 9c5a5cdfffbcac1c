"""Every construct of both pattern languages in one query: on a stream, over rows that have an end, in the matcher."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.cep import Contiguity, Match, Pattern
from headrace.pipelines.operators import event_time, match_patterns
from tests.integration.operator_streams import Stream, at

pytestmark = [pytest.mark.java, pytest.mark.long]

SHAPE = "key string, at timestamp, kind string, n long, price decimal(10,2), partition int, offset long"


def letter(name: str) -> Pattern:
    return Pattern.begin(name, f"kind = '{name}'")


def row(name: str) -> tuple[str, str]:
    return name, f"kind = '{name}'"


A, B, C, D = map(letter, "abcd")
AB = A.followed_by(*row("b"))
PYTHON = {
    "strict": A.next(*row("b")),
    "relaxed": AB,
    "non-deterministic relaxed": A.followed_by_any(*row("b")),
    "not next": A.not_next(*row("c")).followed_by(*row("b")),
    "not followed by": A.not_followed_by(*row("c")).followed_by(*row("b")),
    "absence for a time": A.not_followed_by(*row("b"), within="4 seconds"),
    "absence till the end": A.not_followed_by(*row("b")),
    "absence and then more": A.not_followed_by(*row("c"), within="3 seconds").followed_by(*row("b")),
    "alternation": A.followed_by(B | C),
    "group": Pattern.begin(A.next(*row("b"))).times(2),
    "permutation": Pattern.permutation(A, B, C),
    "strict permutation": Pattern.permutation(A, B, contiguity=Contiguity.STRICT),
    "exclusion": A.followed_by(*row("b")).one_or_more().greedy().excluded().followed_by(*row("c")),
    "?": AB.optional().followed_by(*row("c")),
    "+": AB.one_or_more().followed_by(*row("c")),
    "*": AB.one_or_more().optional().followed_by(*row("c")),
    "{2}": AB.times(2).followed_by(*row("c")),
    "{1,2}": AB.times(1, 2).followed_by(*row("c")),
    "{2,}": AB.times_or_more(2).followed_by(*row("c")),
    "greedy": AB.one_or_more().greedy().followed_by("x", "kind IN ('b', 'c')"),
    "reluctant": AB.one_or_more().reluctant().followed_by("x", "kind IN ('b', 'c')"),
    "greedy ?": AB.optional().greedy().followed_by("x", "kind IN ('b', 'c')"),
    "consecutive": AB.times(2).consecutive(),
    "combinations": AB.times(2).allow_combinations(),
    "until": AB.one_or_more().until("kind = 'd'"),
    "within neighbours": A.followed_by(*row("b"), within="2 seconds").followed_by(*row("c"), within="3 seconds"),
    "skip to next": A.one_or_more().followed_by(*row("b")).skip_to_next(),
    "skip past last": A.one_or_more().followed_by(*row("b")).skip_past_last(),
    "skip to first": A.one_or_more().followed_by(*row("b")).followed_by(*row("c")).skip_to_first("b"),
    "skip to last": A.one_or_more().followed_by(*row("b")).skip_to_last("a"),
    "once": AB.once(),
    "every": AB.once().every(),
    "every-distinct": Pattern.begin("one", "kind <> 'd'").next("two").every_distinct("n", expires="5 s"),
    "earlier rows": Pattern.begin("one", "n > 1").one_or_more().greedy().next(
        "two", "n < AVG(one.n) AND n <> FIRST(one.n) AND COUNT(one.*) < 4 AND PREV(n) > n"
    ),
    "texts of two rows": A.followed_by("b", "kind = 'b' AND kind || key <> a.kind || a.key"),
    "decimals of two rows": A.followed_by("b", "kind = 'b' AND price / a.price > 1.1 AND price < 4 * AVG(a.price)"),
}  # fmt: skip


def sql(pattern: str, *more: str, after: str = "", measures: str = "", within: int = 8, subset: str = "") -> str:
    letters = (f"{name} AS kind = '{name}'" for name in "abcd" if re.search(rf"\b{name}\b", pattern))
    defined = ", ".join([*letters, *more])
    return f"""MATCH_RECOGNIZE (PARTITION BY key ORDER BY at {measures} {after}
        PATTERN ({pattern}) WITHIN INTERVAL '{within}' SECOND {subset} DEFINE {defined})"""


SQL = {
    "strict": sql("a b"),
    "relaxed by a variable for others": sql("a o*? b", after="AFTER MATCH SKIP TO NEXT ROW"),
    "alternation": sql("a (b | c)"),
    "groups": sql("(a b){2}"),
    "PERMUTE": sql("PERMUTE(a, b, c)"),
    "exclusion": sql("a {- o* -} b", "o AS kind <> 'd'", measures="MEASURES a.n AS n ALL ROWS PER MATCH"),
    "?": sql("a b? c"), "*": sql("a b* c"), "+": sql("a b+ c"), "{2}": sql("a b{2} c"), "{1,2}": sql("a b{1,2} c"),
    "{2,}": sql("a b{2,} c"), "{,2}": sql("a b{,2} c"),
    "reluctant ?": sql("a x?? y", "x AS kind IN ('b', 'c')", "y AS kind = 'b'"),
    "reluctant *": sql("a x*? b", "x AS kind IN ('b', 'c')"),
    "reluctant +": sql("a x+? b", "x AS kind IN ('b', 'c')"),
    "reluctant {1,3}": sql("a x{1,3}? b", "x AS kind IN ('b', 'c')"),
    "skip past last row": sql("a+ b", after="AFTER MATCH SKIP PAST LAST ROW"),
    "skip to next row": sql("a+ b", after="AFTER MATCH SKIP TO NEXT ROW"),
    "skip to first": sql("a o b+ c", after="AFTER MATCH SKIP TO FIRST b"),
    "skip to last": sql("a+ b", after="AFTER MATCH SKIP TO LAST a"),
    "subset and measures": sql(
        "a+ (b | c)+ d", subset="SUBSET u = (b, c)",
        measures="MEASURES FIRST(a.n) AS f, LAST(u.n, 1) AS l, SUM(u.n) AS s, CLASSIFIER() AS c, MATCH_NUMBER() AS m, "
        "AVG(u.price) AS p, COUNT(DISTINCT u.n) AS k, MIN(u.kind) AS t, FIRST(a.kind) || LAST(u.kind) AS w "
        "ONE ROW PER MATCH",
    ),
    "PREV": sql("s down+ up+", "down AS n < PREV(n)", "up AS n > PREV(n, 2) AND n > LAST(down.n)"),
}  # fmt: skip
PATTERNS: dict[str, Pattern | str] = {
    **{f"Python: {name}": pattern.within("8 seconds") for name, pattern in PYTHON.items()},
    **{f"SQL: {name}": text for name, text in SQL.items()},
}


def made(count: int) -> list[dict[str, Any]]:
    chosen = random.Random(24)
    return [
        {
            "key": chosen.choice("xyz"), "at": at(place * 0.4), "kind": chosen.choice("aaabbbccd"),
            "n": chosen.randrange(6), "price": f"{chosen.randrange(100, 9000) / 100:.2f}",
            "partition": place % 2, "offset": place // 2,
        }
        for place in range(count)
    ]  # fmt: skip


def by_matcher(rows: Sequence[dict[str, Any]]) -> Counter[Any]:
    typed = [{**one, "price": Decimal(one["price"])} for one in rows]
    found: Counter[Any] = Counter()
    for name, pattern in PATTERNS.items():
        gone: list[Match] = []
        read = Pattern.sql(pattern) if isinstance(pattern, str) else pattern
        for match in read.matches(typed, key="key", time="at", on_timed_out=gone.append):
            found[name, False, *_told(match)] += 1
        for match in gone:
            found[name, True, *_told(match)] += 1
    return found


def _told(match: Match) -> tuple[Any, ...]:
    return (match.key[0], tuple((name, event.partition, event.offset) for name, event in match.rows))


def by_spark(rows: Sequence[Any]) -> Counter[Any]:
    return Counter(
        (
            row["pattern"],
            row["timed_out"],
            row["key"],
            tuple((one["variable"], one["partition"], one["offset"]) for one in row["match_rows"]),
        )
        for row in rows
    )


def searched(frame: DataFrame) -> DataFrame:
    return frame.transform(event_time("at", delay="3 seconds", into="at")).transform(
        match_patterns(PATTERNS, by="key", time="at", timed_out=True, buckets=1)
    )


def test_all_of_them_in_three_places(spark: SparkSession, tmp_path: Path) -> None:
    rows = made(160)
    wanted = by_matcher(rows)
    never = {name for name in PATTERNS if not any(key[0] == name and not key[1] for key in wanted)}
    assert not never
    tables = [tuple({**one, "at": datetime.fromisoformat(one["at"])}.values()) for one in rows]
    frame = spark.createDataFrame(tables, SHAPE.replace("price decimal(10,2)", "price string"))
    frame = frame.withColumn("price", frame.price.cast("decimal(10,2)")).repartition(3)
    assert by_spark(searched(frame).collect()) == wanted
    stream = Stream(spark, tmp_path, pays=SHAPE)
    shuffled = [one for begin in range(0, len(rows), 4) for one in reversed(rows[begin : begin + 4])]
    end = [{**rows[-1], "key": "end", "at": at(1000 + n)} for n in range(2)]
    parts = [shuffled[begin : begin + 80] for begin in range(0, len(rows), 80)]
    told = stream.feed(searched, [{"pays": part} for part in (*parts, end[:1], end[1:])])
    assert by_spark([row for row in told if row["key"] != "end"]) == wanted
