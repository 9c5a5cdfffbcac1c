"""Every operator as Spark runs it and as a database would say it, so that any two can be put behind each other.

A step takes rows with `shop`, `value` and a time and gives such rows again. Its SQL is over `R(shop, value, t)`, `t` in
microseconds: what `time_marks` says is the time of a row. Tables as changes have no time to go by; their `t` is null.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import (
    appended,
    batches,
    compare,
    correct,
    correct_clock,
    deduplicate,
    distinct_changes,
    enrich,
    event_time,
    ewma,
    first_rows,
    flag_anomalies,
    group_changes,
    hopping,
    join_streams,
    join_tables,
    join_windows,
    on_time,
    rolling,
    row_versions,
    sessions,
    side_output,
    sliding,
    table_changes,
    top_n,
    tumbling,
)
from headrace.pipelines.operators.time_marks import time_marks

START = datetime(2026, 1, 1, tzinfo=UTC)
FAR = timedelta(days=1)
END = "zz"
"""The key of the rows that move the watermark behind all others."""
EVENTS = "shop string, value long, at timestamp"
PRICES = "shop string, price long, _offset long, _partition int, _topic string, _timestamp timestamp"
SECOND = 1_000_000
_KEPT = ("retracted", "revision", "final", "_aside", "_weight", "_version", "_versions", "_time")

# Times of a shop differ, and lie on no edge of a window.
CLICKS = [("abc"[n % 3], n + 1, n * 4.013 + 0.1 + (n // 20) * 31) for n in range(60)]
CLICKS[24] = ("a", 25, 125.938)  # where the watermark stands after the first batch, by the views
VIEWS = [("abc"[n % 3], n + 1, n * 9.017 + 1.7) for n in range(30)]
RATES = [("abc"[n % 3], 100 * (n + 1), -30 + n * 21.003) for n in range(12)]
NAMES = [("a", 7, -60.0), ("b", 9, -60.0)]


class Streams:
    """The inputs as files, a few in each micro-batch, and as tables of a database."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.database = duckdb.connect()
        for name, rows in (("clicks", CLICKS), ("views", VIEWS), ("rates", RATES), ("names", NAMES)):
            self._write(name, rows)

    def _write(self, name: str, rows: list[tuple[str, int, float]]) -> None:
        tabled = [(shop, value, microseconds(START + timedelta(seconds=second))) for shop, value, second in rows]
        self.database.execute(f"CREATE TABLE {name} (shop TEXT, value BIGINT, t BIGINT)")
        self.database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", tabled)
        self.store(name, rows, is_table=name in ("rates", "names"))

    def store(self, name: str, rows: list[tuple[str, int, float]], *, is_table: bool, batches: int = 2) -> None:
        """An input's rows, to be read in their order; the last moves the watermark behind all others."""
        size = len(rows) if is_table else -(-len(rows) // batches)
        parts = [rows[at : at + size] for at in range(0, len(rows), size)] + [[(END, 0, FAR.total_seconds())]]
        (self.folder / name).mkdir(parents=True)
        offset = 0
        for number, part in enumerate(parts):
            lines = []
            for shop, value, second in part:
                at = (START + timedelta(seconds=second)).isoformat()
                about = {"price": value, "_offset": offset, "_partition": 0, "_topic": name, "_timestamp": at}
                lines.append({"shop": shop, **(about if is_table else {"value": value, "at": at})})
                offset += 1
            path = self.folder / name / f"{number}.json"
            path.write_text("\n".join(map(json.dumps, lines)))
            os.utime(path, (number + 1, number + 1))  # which is how Spark knows their order

    def read(self, name: str, schema: str) -> DataFrame:
        """An input as a stream."""
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / name))

    def events(self, name: str) -> DataFrame:
        return self.read(name, EVENTS).transform(event_time("at", delay="2 seconds")).drop("at")

    def versions(self, name: str) -> DataFrame:
        return self.read(name, PRICES).transform(row_versions("shop", form="rows"))

    def table(self, name: str) -> DataFrame:
        return self.read(name, PRICES).transform(table_changes("shop", form="rows"))

    def answer(self, *steps: "Step") -> Counter[tuple[Any, ...]]:
        """What the database says."""
        relation = "clicks"
        for step in steps:
            relation = f"({step.sql.format(R=relation)})"
        return Counter(self.database.execute(f"SELECT shop, value, t FROM {relation} WHERE shop <> '{END}'").fetchall())

    def chained(self, *steps: "Step") -> DataFrame:
        """The query; refused here or never."""
        frame = self.events("clicks")
        for step in steps:
            frame = normal(step.made(frame, self))
        return frame


@dataclass(frozen=True)
class Step:
    """An operator: its name in the docs, Spark's and the database's way."""

    name: str
    made: Callable[[DataFrame, Streams], DataFrame]
    sql: str


def microseconds(moment: datetime) -> int:
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def normal(frame: DataFrame) -> DataFrame:
    """What a step gives, with the one time it carries on."""
    marks = [mark.column for mark in time_marks(frame)][:1] if "_weight" not in frame.columns else []
    names = ["shop", "value", *(name for name in ("window_start", *marks, *_KEPT) if name in frame.columns)]
    return frame.select(*dict.fromkeys(names))


def result(frame: DataFrame) -> DataFrame:
    """Rows as they are compared: shop, value, time in microseconds, and how often."""
    marks = time_marks(frame) if "_weight" not in frame.columns else []
    at = fn.unix_micros(marks[0].value()) if marks else fn.lit(None).cast("long")
    weight = "1"
    if "_weight" in frame.columns:
        weight = "_weight"
    elif "retracted" in frame.columns:
        weight = "if(retracted, -1, 1)"
    if "final" in frame.columns:
        frame = frame.where("final")
    return frame.select("shop", fn.col("value").cast("long"), at.alias("t"), fn.expr(weight).alias("weight"))


def found(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    """Rows that stand, each as often as it does."""
    net: Counter[tuple[Any, ...]] = Counter()
    for shop, value, at, weight in rows:
        if shop != END:
            net[shop, value, at] += weight
    assert all(count >= 0 for count in net.values()), "more taken back than given"
    return +net


def at(frame: DataFrame) -> str:
    """The column that carries the time; any for a frame without one."""
    return next((mark.column for mark in time_marks(frame)), frame.columns[-1])


# --- windows

_TUMBLED = "SELECT shop, sum(value)::BIGINT AS value, t // {s} * {s} + {s} - 1 AS t FROM {{R}} GROUP BY shop, t // {s}"
TUMBLED = _TUMBLED.format(s=60 * SECOND)
HOPPED = (
    "SELECT shop, sum(value)::BIGINT AS value, e - 1 AS t FROM (SELECT *, (t // {h} + 1 + k) * {h} AS e "
    "FROM {{R}}, (VALUES (0), (1)) AS K(k)) GROUP BY shop, e"
).format(h=30 * SECOND)
SLID = (
    f"SELECT shop, (sum(value) OVER (PARTITION BY shop ORDER BY t RANGE BETWEEN {45 * SECOND} PRECEDING AND CURRENT "
    "ROW))::BIGINT AS value, t FROM {R}"
)
_GAP = 20_500_000
SESSIONS = (
    f"SELECT shop, sum(value)::BIGINT AS value, max(t) + {_GAP} - 1 AS t FROM (SELECT *, sum(new) OVER (PARTITION BY "
    f"shop ORDER BY t ROWS UNBOUNDED PRECEDING) AS session FROM (SELECT *, (coalesce(t - lag(t) OVER (PARTITION BY "
    f"shop ORDER BY t) > {_GAP}, true))::INT AS new FROM {{R}})) GROUP BY shop, session"
)
_TOTAL = {"by": "shop", "value": agg.sum("value")}
_IDENTITY = "SELECT shop, value, t FROM {R}"

# --- joins

_NEAR = f"l.shop = r.shop AND r.t BETWEEN l.t - {10 * SECOND} AND l.t + {10 * SECOND}"
_PAIRED = "coalesce(l.value, 0) * 1000 + coalesce(r.value, 0)"
_PAIRS = f"SELECT l.shop, {_PAIRED} AS value, l.t FROM {{R}} l JOIN views r ON {_NEAR}"


def joined(how: str, **given: Any) -> Callable[[DataFrame, Streams], DataFrame]:
    """Pairs, with a value of both; a full join names the time that every row has."""

    def made(frame: DataFrame, streams: Streams) -> DataFrame:
        right = streams.events("views")
        left = frame
        if how == "full":
            left, right = (each.withColumn(name, fn.timestamp_micros(fn.unix_micros(time_marks(each)[0].value())))
                           for each, name in ((frame, "left_at"), (right, "right_at")))  # fmt: skip
        pairs = left.transform(join_streams(right, on="shop", within="10 seconds", how=how, **given))
        if "_aside" in pairs.columns:
            pairs = on_time(pairs)
        pairs = pairs.withColumn("value", fn.expr("coalesce(value, 0) * 1000 + coalesce(right_value, 0)"))
        if how != "full":
            return pairs
        both = pairs.withColumn("both_at", fn.expr("coalesce(left_at, right_at)"))
        return both.transform(event_time("both_at", delay="11 seconds", into="both_at"))

    return made


def joined_windows(frame: DataFrame, streams: Streams) -> DataFrame:
    """An interval join with results of windows."""
    windows = streams.events("views").transform(tumbling("30 seconds", by="shop", seen=agg.sum("value")))
    pairs = frame.transform(join_streams(windows, on="shop", within=("-40 seconds", "20 seconds"), how="left"))
    return pairs.withColumn("value", fn.expr("value * 1000 + coalesce(seen, 0)")).drop("window_start")


def joined_by_window(frame: DataFrame, streams: Streams) -> DataFrame:
    """Pairs in a window, of which there are several."""
    left = frame.drop("window_start").withColumnRenamed("window_end", "at") if "window_end" in frame.columns else frame
    pairs = left.transform(join_windows(streams.events("views"), on="shop", size="1 minute"))
    return pairs.withColumn("value", fn.expr("value * 1000 + right_value")).drop("window_start")


_WINDOWS_OF_VIEWS = _TUMBLED.format(s=30 * SECOND).format(R="views")
JOINED_WINDOWS = (
    f"SELECT l.shop, {_PAIRED} AS value, l.t FROM {{R}} l LEFT JOIN ({_WINDOWS_OF_VIEWS}) r ON l.shop = r.shop AND r.t "
    f"BETWEEN l.t - {40 * SECOND} AND l.t + {20 * SECOND}"
)

# --- tables


def as_table(frame: DataFrame) -> DataFrame:
    """Events as a table that only grows, and results that are taken back as one whose rows go again."""
    if "_weight" in frame.columns:
        return frame
    if "final" in frame.columns:
        frame = frame.where("final").drop("final")
    return frame.transform(appended())


def _join_names(frame: DataFrame, streams: Streams) -> DataFrame:
    pairs = as_table(frame).transform(join_tables(streams.table("names"), on="shop"))
    return pairs.withColumn("value", fn.expr("value + price"))


def _best(frame: DataFrame, _: Streams) -> DataFrame:
    best = as_table(frame).transform(group_changes(by="shop", best=top_n(2, "-value", "value")))
    return best.withColumn("value", fn.expr("get(best, 0).value * 2 + coalesce(get(best, 1).value, 0)"))


def _compared(frame: DataFrame, _: Streams) -> DataFrame:
    known = frame.transform(compare("value", by="shop", against={"previous": "previous"}))
    return known.withColumn("value", fn.expr("value + bigint(coalesce(previous_value, 0))"))


def _priced(table: str, **given: Any) -> Callable[[DataFrame, Streams], DataFrame]:
    def made(frame: DataFrame, streams: Streams) -> DataFrame:
        about = {"as_of": at(frame), "delay": "2 seconds"} if given.get("as_of") else {}
        more = {name: value for name, value in given.items() if name != "as_of"}
        rows = frame.transform(enrich(streams.versions(table), on="shop", **about, **more))
        if "_aside" in rows.columns:
            rows = on_time(rows)
        return rows.withColumn("value", fn.expr("value + price"))

    return made


_AS_OF = (
    "SELECT shop, value + price AS value, t FROM (SELECT shop, value, t, (SELECT arg_max(v.value, v.t) FROM rates v "
    "WHERE v.shop = e.shop AND v.t <= e.t) AS price FROM {R} e) WHERE price IS NOT NULL"
)

STEPS = [
    Step("tumbling", lambda f, _: f.transform(tumbling("1 minute", **_TOTAL)), TUMBLED),
    Step(
        "tumbling, side_output",
        lambda f, _: on_time(f.transform(tumbling("1 minute", stragglers=side_output(), **_TOTAL))),
        TUMBLED,
    ),
    Step(
        "tumbling, correct",
        lambda f, _: f.transform(tumbling("1 minute", stragglers=correct("5 s"), **_TOTAL)),
        TUMBLED,
    ),
    Step("tumbling, early", lambda f, _: f.transform(tumbling("1 minute", early="1 hour", **_TOTAL)), TUMBLED),
    Step(
        "tumbling, wall_clock",
        lambda f, _: f.transform(tumbling("1 minute", wall_clock="10000 days", **_TOTAL)),
        TUMBLED,
    ),
    Step("hopping", lambda f, _: f.transform(hopping("1 minute", "30 seconds", **_TOTAL)), HOPPED),
    Step("sliding", lambda f, _: f.transform(sliding("45 seconds", **_TOTAL)), SLID),
    Step(
        "sliding, correct", lambda f, _: f.transform(sliding("45 seconds", stragglers=correct("5 s"), **_TOTAL)), SLID
    ),
    Step("rolling", lambda f, _: f.transform(rolling(10_000, within="45 seconds", **_TOTAL)), SLID),
    Step("batches", lambda f, _: f.transform(batches(1, **_TOTAL)), _IDENTITY),
    Step("first_rows", lambda f, _: f.transform(first_rows(10_000, by="shop")), _IDENTITY),
    Step("flag_anomalies", lambda f, _: f.transform(flag_anomalies("value", ewma("1 minute"), by="shop")), _IDENTITY),
    Step("sessions", lambda f, _: f.transform(sessions("20500 ms", **_TOTAL)), SESSIONS),
    Step("sessions, maximum", lambda f, _: f.transform(sessions("20500 ms", maximum="9 hours", **_TOTAL)), SESSIONS),
    Step("compare", _compared,
         "SELECT shop, value + coalesce(lag(value) OVER (PARTITION BY shop ORDER BY t), 0) AS value, t FROM {R}"),
    Step("correct_clock", lambda f, _: f.transform(
        correct_clock(device="shop", event=at(f), sent=at(f), received=at(f))), _IDENTITY),
    Step("join_streams", joined("inner"), _PAIRS),
    Step(
        "join_streams, left",
        joined("left"),
        f"SELECT l.shop, {_PAIRED} AS value, l.t FROM {{R}} l LEFT JOIN views r ON {_NEAR}",
    ),
    Step(
        "join_streams, full",
        joined("full"),
        f"SELECT coalesce(l.shop, r.shop) AS shop, {_PAIRED} AS value, coalesce(l.t, r.t) AS t FROM {{R}} l "
        f"FULL JOIN views r ON {_NEAR}",
    ),
    Step(
        "join_streams, side_output",
        joined("inner", stragglers=side_output()),
        _PAIRS,
    ),
    Step("join_streams of windows", joined_windows, JOINED_WINDOWS),
    Step(
        "join_windows",
        joined_by_window,
        f"SELECT l.shop, {_PAIRED} AS value, (l.t // {60 * SECOND} + 1) * {60 * SECOND} - 1 AS t FROM {{R}} l "
        f"JOIN views r ON l.shop = r.shop AND l.t // {60 * SECOND} = r.t // {60 * SECOND}",
    ),
    Step(
        "deduplicate",
        lambda f, _: f.transform(deduplicate(["shop", "value", at(f)], within="1 hour")),
        "SELECT DISTINCT shop, value, t FROM {R}",
    ),
    Step("enrich, as_of", _priced("rates", as_of=True), _AS_OF),
    Step("enrich", _priced("names"),
         "SELECT e.shop, e.value + v.value AS value, e.t FROM {R} e JOIN names v ON e.shop = v.shop"),
    Step("group_changes", lambda f, _: as_table(f).transform(group_changes(**_TOTAL)),
         "SELECT shop, sum(value)::BIGINT AS value, NULL AS t FROM {R} GROUP BY shop"),
    Step("group_changes, top_n", _best,
         "SELECT shop, best[1] * 2 + coalesce(best[2], 0) AS value, NULL AS t FROM (SELECT shop, "
         "list_sort(list(value), 'DESC') AS best FROM {R} GROUP BY shop)"),
    Step("distinct_changes", lambda f, _: as_table(f).transform(distinct_changes(["shop", "value"])),
         "SELECT DISTINCT shop, value, NULL AS t FROM {R}"),
    Step("join_tables", _join_names,
         "SELECT e.shop, e.value + v.value AS value, NULL AS t FROM {R} e JOIN names v ON e.shop = v.shop"),
]  # fmt: skip
BY_NAME = {step.name: step for step in STEPS}
BEFORE = {"compare": ("tumbling",)}
"""What has to stand before an operator."""

# The table of the docs: how its rows and columns are called, and which operators they stand for.
_TABLES = ("group_changes", "group_changes, top_n", "distinct_changes", "join_tables")
_JOINS = (
    "join_streams", "join_streams, left", "join_streams, full", "join_streams, side_output", "join_streams of windows",
    "join_windows",
)  # fmt: skip
_WINDOWS = ("tumbling", "tumbling, side_output", "hopping", "sliding", "sessions", "sessions, maximum", "batches",
)  # fmt: skip
_CORRECTED = ("tumbling, correct", "sliding, correct")
ROWS = {
    "`tumbling`, `hopping`, `sessions`, `sliding`, `batches`": _WINDOWS,
    "… with `correct`": _CORRECTED,
    "… with `early`": ("tumbling, early",),
    "… with `wall_clock`": ("tumbling, wall_clock",),
    "`join_streams`, `join_windows`": _JOINS,
    "`enrich`, `correct_clock`, `deduplicate`, `rolling`, `first_rows`, `flag_anomalies`": (
        "enrich, as_of",
        "enrich",
        "correct_clock",
        "deduplicate",
        "rolling",
        "first_rows",
        "flag_anomalies",
    ),
    "`compare`": ("compare",),
    "`table_changes`, `join_tables`, `group_changes`, `distinct_changes`": _TABLES,
}
COLUMNS = {
    "windows, `deduplicate`, `rolling`, `batches`, `first_rows`, `flag_anomalies`": (
        *_WINDOWS,
        *_CORRECTED,
        "tumbling, early",
        "tumbling, wall_clock",
        "deduplicate",
        "first_rows",
        "flag_anomalies",
    ),
    "`join_streams`, `join_windows`": _JOINS,
    "`enrich`, `as_of`": ("enrich, as_of",),
    "`enrich`": ("enrich",),
    "`compare`": ("compare",),
    "tables": _TABLES,
}


def chain(first: str, second: str) -> tuple[Step, ...]:
    """An operator behind another, and what the first needs before it."""
    return tuple(BY_NAME[name] for name in (*BEFORE.get(first, ()), first, second))
