"""Events for window operators, a way to run them through one in any batches, and DuckDB's answer over all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner

SECOND = 1_000_000
END = 10**15
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("t", TIMESTAMP),
        ("x", pa.int64()),
        ("d", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("p", pa.struct([("u", pa.int64()), ("w", pa.string())])),
        ("l", pa.list_(pa.int64())),
    ]
)
AGGREGATES = {
    "n": agg.count(),
    "nx": agg.count("x"),
    "sum_x": agg.sum("x"),
    "sum_d": agg.sum("d"),
    "avg_f": agg.avg("f"),
    "min_s": agg.min("s"),
    "max_d": agg.max("d"),
    "dev": agg.stddev("x"),
    "first": agg.first("s"),
    "last": agg.last("x"),
    "distinct": agg.count_distinct("s"),
    "all": agg.collect("x"),
    "max_p": agg.max("p"),
    "min_l": agg.min("l"),
    "first_l": agg.first("l"),
    "distinct_p": agg.count_distinct("p"),
    "all_p": agg.collect("p"),
}
SQL = """count(*) n, count(x) nx, sum(x)::bigint sum_x, sum(d)::decimal(20, 2) sum_d, avg(f) avg_f, min(s) min_s,
    max(d) max_d, stddev_samp(x) dev,
    (min({'t': t, 's': s}) FILTER (s IS NOT NULL)).s AS first, (max({'t': t, 'x': x}) FILTER (x IS NOT NULL)).x AS last,
    count(DISTINCT s) "distinct", coalesce(list(x ORDER BY t, x) FILTER (x IS NOT NULL), []) AS "all", max(p) max_p,
    min(l) min_l, (list(l ORDER BY t, l) FILTER (l IS NOT NULL))[1] first_l, count(DISTINCT p) distinct_p,
    coalesce(list(p ORDER BY t, p) FILTER (p IS NOT NULL), []) AS all_p """
Event = dict[str, Any]

events = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", None]),
            "t": st.integers(-40, 100).map(lambda second: second * SECOND) | st.integers(-30 * SECOND, 90 * SECOND),
            "x": st.none() | st.integers(-(2**40), 2**40),
            "d": st.none() | st.integers(-(10**9), 10**9).map(lambda n: Decimal(n) / 100),
            "s": st.none() | st.sampled_from(["", "a", "b", "é", "z\x00", "zz"]),
            "f": st.none() | st.integers(-(2**20), 2**20).map(lambda n: n / 8),
            "p": st.none() | st.fixed_dictionaries({"u": st.integers(0, 3), "w": st.sampled_from("xyz")}),
            "l": st.none() | st.lists(st.integers(-2, 2), max_size=3),
        }
    ),
    max_size=40,
)


@dataclass(frozen=True)
class Run:
    """How events are cut: after how many a batch ends, how many buckets, how many rows a call, where restarts are."""

    batches: tuple[int, ...]
    buckets: int
    call_rows: int | None
    restarts: bool


runs = st.builds(
    Run,
    st.lists(st.integers(1, 12), max_size=8).map(tuple),
    st.integers(1, 4),
    st.none() | st.integers(1, 9),
    st.booleans(),
)


def cut(found: Sequence[Event], run: Run) -> list[list[Event]]:
    """The batches."""
    batches, at = [], 0
    for size in run.batches:
        batches.append(list(found[at : at + size]))
        at += size
    return [*batches, list(found[at:])]


def emitted(operator: Any, found: Sequence[Event], run: Run, watermarks: Sequence[int]) -> list[Event]:
    """All that comes out, in its order; the watermark of each batch holds while it runs, then everything is closed."""
    runner = MemoryRunner(operator, by=["k"], schema=SCHEMA, buckets=run.buckets, call_rows=run.call_rows)
    out: list[Event] = []
    for number, batch in enumerate(cut(found, run)):
        if run.restarts:
            runner.restart()
        watermark = watermarks[number] if number < len(watermarks) else None
        out += runner.batch(batch, watermark_us=watermark, wall_us=number * SECOND).to_pylist()
    out += runner.batch(watermark_us=END, wall_us=END).to_pylist()
    assert [row for table in runner.plan.tables for row in runner.state(table.name)] == [], "state is left"
    return out


def honest(found: Sequence[Event], run: Run) -> list[int]:
    """For each batch the latest watermark that makes nothing late, in it or behind it."""
    batches = cut(found, run)
    left = [event["t"] for event in found]
    marks = []
    for batch in batches:
        marks.append(min(left, default=0) - 1)
        for event in batch:
            left.remove(event["t"])
    return marks


def asked(found: Sequence[Event], query: str) -> list[Event]:
    """DuckDB's answer over all events, in the table `events`."""
    events = pa.Table.from_pylist(list(found), schema=SCHEMA)
    connection = _duckdb()
    connection.register("given", events)
    connection.execute("CREATE OR REPLACE TABLE events AS SELECT * REPLACE (t::timestamp AS t) FROM given")
    answer = connection.execute(query)
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def comparable(rows: Sequence[Event]) -> list[Any]:
    """Rows without regard to order, times without zones, and doubles as far as they are certain."""
    names = ("k", "window_start", "window_end", *AGGREGATES)
    return sorted((tuple(_plain(row[name]) for name in names) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}") + 0.0
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value
