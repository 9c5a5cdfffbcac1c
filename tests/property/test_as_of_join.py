"""Joins as of event time, in any batches, buckets and calls, give what DuckDB computes over the whole history."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators.stragglers import drop, side_output
from headrace.pipelines.operators.tables.enrichment.operators import AsOf, Latest, Sides
from headrace.pipelines.operators.tables.form import VERSION_TYPE
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples
from tests.property.windows_model import END, Run, cut, runs

EVENT = pa.struct([("n", pa.int64()), ("t", TIMESTAMP)])
ROW = pa.struct([("name", pa.string()), ("level", pa.int64())])
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("_at", TIMESTAMP),
        ("_event", EVENT),
        ("_row", ROW),
        ("_gone", pa.bool_()),
        ("_offset", pa.int64()),
        ("_partition", pa.int32()),
        ("_id", VERSION_TYPE),
    ]
)
Row = dict[str, Any]
keys = st.sampled_from(["a", "b", "é", None])
times = st.integers(0, 12)


def event(number: int, key: str | None, at: int) -> Row:
    return {"k": key, "_at": at, "_event": {"n": number, "t": at}}


def change(offset: int, key: str, at: int, name: str | None) -> Row:
    """A version; without a name the row is deleted."""
    row = None if name is None else {"name": name, "level": offset}
    version = {"table": "shops", "key": f'{{"k":"{key}"}}', "offset": offset, "lsn": f"{offset:x}"}
    place = {"_offset": offset, "_partition": 0}
    return {"k": key, "_at": at, "_event": None, "_row": row, "_gone": name is None, "_id": version, **place}


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Events and changes as they come, in order of time, nearly so or not at all; some changes come again."""
    events = draw(st.lists(st.tuples(keys, times), max_size=25))
    names = st.none() | st.sampled_from(["x", "y", ""])
    changes = draw(st.lists(st.tuples(st.sampled_from(["a", "b", "é"]), times, names), max_size=25))
    rows = [event(number, *each) for number, each in enumerate(events)]
    rows += [change(offset, *each) for offset, each in enumerate(changes)]
    again = draw(st.lists(st.sampled_from(range(len(changes))), max_size=5)) if changes else []
    rows += [change(offset, *changes[offset]) for offset in again]
    mixed = draw(st.permutations(rows))
    # In most histories time goes on, more or less: else no watermark could, either.
    step = draw(st.sampled_from([1, 2, 4, 100]))
    return sorted(mixed, key=lambda row: row["_at"] // step)


@st.composite
def orderly(draw: st.DrawFn) -> list[Row]:
    """Events in any order, among changes that come in the order of a log: a key's times never go back."""
    rows = draw(histories())
    last: dict[str, int] = {}
    offset = 0
    for number, row in enumerate(rows):
        if row["_event"] is None:
            last[row["k"]] = max(row["_at"], last.get(row["k"], 0))
            rows[number] = change(offset, row["k"], last[row["k"]], row["_row"] and row["_row"]["name"])
            offset += 1
    return rows


def emitted(operator: Any, rows: Sequence[Row], run: Run, watermarks: Sequence[int]) -> tuple[list[Row], MemoryRunner]:
    runner = MemoryRunner(operator, by=["k"], schema=SCHEMA, buckets=run.buckets, call_rows=run.call_rows)
    out: list[Row] = []
    for number, batch in enumerate(cut(rows, run)):
        if run.restarts:
            runner.restart()
        watermark = watermarks[number] if number < len(watermarks) else None
        out += runner.batch(batch, watermark_us=watermark).to_pylist()
    out += runner.batch(watermark_us=END).to_pylist()
    return out, runner


def honest(rows: Sequence[Row], run: Run) -> list[int]:
    """For each batch the latest watermark that makes nothing late, in it or behind it."""
    batches = cut(rows, run)
    return [min((row["_at"] for batch in batches[at:] for row in batch), default=END) for at in range(len(batches))]


def told(out: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Answers in a form that compares."""
    return sorted(
        (row["n"], row["k"] or "", row["name"], row["level"], row["_joined"] and tuple(row["_joined"].values()))
        for row in out
        if row.get("_aside") is None
    )


@cache
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def by_duckdb(rows: Sequence[Row], *, keeps_unmatched: bool) -> list[tuple[Any, ...]]:
    """The join over the whole history at once."""
    whole = pa.Table.from_pylist(list(rows), schema=SCHEMA).rename_columns(["k", "moment", *SCHEMA.names[2:]])
    connection = database()
    connection.register("whole", whole)
    found = connection.execute(
        """WITH events AS (SELECT k, moment, _event.n AS n FROM whole WHERE _gone IS NULL),
            versions AS (SELECT k, moment, _row, _gone, _id,
                row_number() OVER (PARTITION BY k, moment ORDER BY _offset DESC) AS number
                FROM whole WHERE _gone IS NOT NULL)
        SELECT e.n, coalesce(e.k, '') AS k, v._row.name AS name, v._row.level AS level, v._id AS joined, v._gone AS gone
        FROM events e ASOF LEFT JOIN (SELECT * FROM versions WHERE number = 1) v
            ON e.k = v.k AND e.moment >= v.moment"""
    )
    names = [each[0] for each in found.description]
    answers = [dict(zip(names, values, strict=True)) for values in found.fetchall()]
    lines = []
    for each in answers:
        there = each["joined"] is not None and not each["gone"]
        if there or keeps_unmatched:
            lines.append(
                (each["n"], each["k"], each["name"] if there else None, each["level"] if there else None,
                 tuple(each["joined"].values()) if there else None)
            )  # fmt: skip
    return sorted(lines)


@examples(80)
@given(histories(), runs, st.booleans(), st.integers(0, 6))
def test_the_whole_history_decides(rows: list[Row], run: Run, left: bool, allowed: int) -> None:
    operator = AsOf(Sides(EVENT, ROW, VERSION_TYPE, left, drop()), allowed)
    out, runner = emitted(operator, rows, run, honest(rows, run))
    assert all(row["_aside"] is None for row in out)
    assert told(out) == by_duckdb(rows, keeps_unmatched=left)
    last: dict[str, Row] = {}
    changes = [row for row in rows if row["_event"] is None]
    for row in sorted(changes, key=lambda row: (row["_at"], row["_offset"])):
        last[row["k"]] = row
    kept = {key["k"]: row["_id"] for key, row in runner.state("versions")}
    assert kept == {key: row["_id"] for key, row in last.items() if not row["_gone"]}, "the last version, no more"
    assert [row for table in runner.plan.tables if table.name != "versions" for row in runner.state(table.name)] == []


@examples(80)
@given(orderly(), runs, st.lists(st.integers(0, 14), max_size=9).map(sorted), st.booleans(), st.integers(0, 5))
def test_late_events_and_late_changes(
    rows: list[Row], run: Run, watermarks: list[int], left: bool, allowed: int
) -> None:
    """Each event is answered once, by all that had come when the watermark passed it, or set aside once."""
    operator = AsOf(Sides(EVENT, ROW, VERSION_TYPE, left, side_output()), allowed)
    out, _ = emitted(operator, rows, run, watermarks)
    expected, late, late_changes = [], [], 0
    waiting: list[Row] = []
    known: list[Row] = []
    watermark = -1
    for number, batch in enumerate([*cut(rows, run), []]):
        is_end = number == len(cut(rows, run))
        watermark = END if is_end else max(watermark, watermarks[number] if number < len(watermarks) else -1)
        for row in batch:
            if row["_event"] is None:
                known.append(row)
                late_changes += row["_at"] < watermark
            elif row["_at"] < watermark - allowed:
                late.append(row["_event"]["n"])
            else:
                waiting.append(row)
        for row in waiting:
            if row["_at"] < watermark:
                mine = [each for each in known if each["k"] == row["k"] and each["_at"] <= row["_at"]]
                best = max(mine, key=lambda each: (each["_at"], each["_offset"]), default=None)
                if best is not None and not best["_gone"]:
                    expected.append((row["_event"]["n"], row["k"], *best["_row"].values(), tuple(best["_id"].values())))
                elif left:
                    expected.append((row["_event"]["n"], row["k"] or "", None, None, None))
        waiting = [row for row in waiting if row["_at"] >= watermark]
    assert told(out) == sorted(expected)
    aside = [row["_aside"] for row in out if row["_aside"] is not None]
    assert sorted(each["row"]["n"] for each in aside if each["reason"] == "late") == sorted(late)
    assert sum(each["rows"] for each in aside if each["reason"] == "late change") == late_changes


@examples(60)
@given(orderly(), runs, st.booleans())
def test_latest_sees_what_had_come(rows: list[Row], run: Run, left: bool) -> None:
    whole_batches = Run(run.batches, run.buckets, None, run.restarts)
    out, runner = emitted(Latest(Sides(EVENT, ROW, VERSION_TYPE, left)), rows, whole_batches, [])
    expected = []
    now: dict[str | None, Row] = {}
    for batch in cut(rows, run):
        now |= {row["k"]: row for row in batch if row["_event"] is None}
        for row in batch:
            if row["_event"] is not None:
                found = now.get(row["k"])
                if found is not None and not found["_gone"]:
                    expected.append(
                        (row["_event"]["n"], row["k"], *found["_row"].values(), tuple(found["_id"].values()))
                    )
                elif left:
                    expected.append((row["_event"]["n"], row["k"] or "", None, None, None))
    assert told(out) == sorted(expected)
    kept = {key["k"]: row["_id"] for key, row in runner.state("current")}
    assert kept == {key: row["_id"] for key, row in now.items() if not row["_gone"]}
