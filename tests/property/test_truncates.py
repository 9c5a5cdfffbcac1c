"""Truncates in any batches, buckets and calls: a table and its past are what the log says, record by record."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators.stragglers import drop
from headrace.pipelines.operators.tables.current import CurrentRows
from headrace.pipelines.operators.tables.enrichment.operators import AsOf, Latest, Sides
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, VERSION, VERSION_TYPE, WEIGHT
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples
from tests.property.windows_model import END, Run, cut, runs

ROW = pa.struct([("name", pa.string())])
EVENT = pa.struct([("n", pa.int64())])
TABLE = pa.schema(
    [
        ("k", pa.string()),
        ("row", ROW),
        ("gone", pa.bool_()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        (VERSION, VERSION_TYPE),
        (TIME, TIME_TYPE),
        ("emptied", pa.bool_()),
    ]
)
SIDES = pa.schema(
    [
        ("k", pa.string()),
        ("_at", TIME_TYPE),
        ("_event", EVENT),
        ("_row", ROW),
        ("_gone", pa.bool_()),
        ("_offset", pa.int64()),
        ("_partition", pa.int32()),
        ("_id", VERSION_TYPE),
        ("_emptied", pa.bool_()),
    ]
)
KEYS = ["a", "b", "c", "d", "e"]
TRUNCATE = "truncate"
Row = dict[str, Any]
# A change of a key (without a name the row is deleted), or a truncate; and how much later than the one before it is.
steps = st.lists(
    st.tuples(st.sampled_from([*KEYS, TRUNCATE]), st.none() | st.sampled_from(["x", "y"]), st.integers(0, 2)),
    max_size=25,
)


def home(key: str) -> int:
    return KEYS.index(key) % 2


def log(history: Sequence[tuple[str, str | None, int]]) -> list[Row]:
    """The records of a topic with two partitions; a truncate is in both."""
    rows, offsets, at = [], [0, 0], 0
    for key, name, later in history:
        at += later
        for partition in (0, 1) if key == TRUNCATE else (home(key),):
            is_all = key == TRUNCATE
            place = {"partition": partition, "offset": offsets[partition], TIME: at}
            row = None if is_all or name is None else {"name": name}
            version = {"table": "t", "key": key, "offset": offsets[partition], "lsn": None}
            whose = {"k": None if is_all else key, "gone": row is None, "emptied": is_all}
            rows.append({**whose, "row": row, VERSION: version, **place})
            offsets[partition] += 1
    return rows


def applied(table: dict[str, str], row: Row) -> None:
    for key in [key for key in table if home(key) == row["partition"]] if row["emptied"] else [row["k"]]:
        table.pop(key, None)
        if row["row"] is not None:
            table[key] = row["row"]["name"]


@examples(60)
@given(steps, runs, st.booleans())
def test_what_is_told_adds_up_to_the_table(history: list[tuple[str, str | None, int]], run: Run, model: bool) -> None:
    runner = MemoryRunner(
        CurrentRows(ROW, empties=True),
        by=["k"],
        schema=TABLE,
        buckets=run.buckets,
        call_rows=run.call_rows,
        model=model,
    )
    told: Counter[tuple[str, str]] = Counter()
    table: dict[str, str] = {}
    for batch in cut(log(history), run):
        if run.restarts:
            runner.restart()
        for row in runner.batch(batch).to_pylist():
            told[row["k"], row["name"]] += row[WEIGHT]
        for row in batch:
            applied(table, row)
        assert +told == Counter(table.items())
        assert min(told.values(), default=0) >= 0
    assert {key["k"] for key, _ in runner.state("current")} == set(table)


def sided(row: Row) -> Row:
    made = {"k": row["k"], "_at": row[TIME], "_row": row["row"], "_gone": row["gone"], "_id": row[VERSION]}
    return {**made, "_offset": row["offset"], "_partition": row["partition"], "_emptied": row["emptied"]}


def event(number: int, key: str, at: int) -> Row:
    return {"k": key, "_at": at, "_event": {"n": number}}


@examples(60)
@given(steps, st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 30)), max_size=12), runs)
def test_a_truncate_ends_every_version_at_its_time(
    history: list[tuple[str, str | None, int]], asked: list[tuple[str, int]], run: Run
) -> None:
    records = log(history)
    events = [event(number, *each) for number, each in enumerate(asked)]
    rows = sorted([*map(sided, records), *events], key=lambda row: int(row["_at"]))  # the order of a log stays
    sides = Sides(EVENT, ROW, VERSION_TYPE, True, drop(), empties=True)
    runner = MemoryRunner(AsOf(sides), by=["k"], schema=SIDES, buckets=run.buckets, call_rows=run.call_rows)
    found: list[Row] = []
    batches = cut(rows, run)
    for number, batch in enumerate(batches):
        behind = min((row["_at"] for later in batches[number:] for row in later), default=END)
        found += runner.batch(batch, watermark_us=behind).to_pylist()
    found += runner.batch(watermark_us=END).to_pylist()
    expected = []
    for number, (key, at) in enumerate(asked):
        table: dict[str, str] = {}
        for row in records:
            if row[TIME] <= at:
                applied(table, row)
        expected.append((number, key, table.get(key)))
    assert sorted((row["n"], row["k"], row["name"]) for row in found) == expected


@examples(30)
@given(steps, runs)
def test_the_latest_row_of_a_table_that_was_emptied_is_none(
    history: list[tuple[str, str | None, int]], run: Run
) -> None:
    sides = Sides(EVENT, ROW, VERSION_TYPE, True, empties=True)
    runner = MemoryRunner(Latest(sides), by=["k"], schema=SIDES, buckets=run.buckets)
    table: dict[str, str] = {}
    for batch in cut(log(history), run):
        runner.batch([sided(row) for row in batch])
        for row in batch:
            applied(table, row)
    answers = runner.batch([event(number, key, 0) for number, key in enumerate(KEYS)]).to_pylist()
    assert {row["k"]: row["name"] for row in answers} == {key: table.get(key) for key in KEYS}
