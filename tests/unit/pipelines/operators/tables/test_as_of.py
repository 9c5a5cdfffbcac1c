"""Joins as of event time by small examples: what an event sees, how long it waits, what is kept."""

from typing import Any

import pyarrow as pa

from headrace.pipelines.operators.stragglers import drop, side_output
from headrace.pipelines.operators.tables.enrichment.operators import AsOf, Latest, Sides
from headrace.pipelines.operators.tables.form import VERSION_TYPE
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner

EVENT = pa.struct([("n", pa.int64())])
ROW = pa.struct([("city", pa.string())])
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
SIDES = Sides(EVENT, ROW, VERSION_TYPE, keeps_unmatched=True, stragglers=drop())
Row = dict[str, Any]


def event(n: int, at: int | None, k: str | None = "a") -> Row:
    return {"k": k, "_at": at, "_event": {"n": n}}


def change(offset: int, at: int, city: str | None, k: str = "a", *, partition: int = 0) -> Row:
    """A version; without a city the row is deleted."""
    version = {"table": "shops", "key": k, "offset": offset, "lsn": None}
    row = None if city is None else {"city": city}
    place = {"_offset": offset, "_partition": partition}
    return {"k": k, "_at": at, "_row": row, "_gone": city is None, "_id": version, **place}


def runner(sides: Sides = SIDES, allowed: int = 0) -> MemoryRunner:
    return MemoryRunner(AsOf(sides, allowed), by=["k"], schema=SCHEMA, buckets=2)


def told(found: pa.Table) -> list[tuple[Any, ...]]:
    """Event, city and offset of the version, of all answers."""
    rows = [row for row in found.to_pylist() if row["_aside"] is None]
    return sorted((row["n"], row["city"], row["_joined"] and row["_joined"]["offset"]) for row in rows)


def aside(found: pa.Table) -> dict[str, int]:
    return {row["_aside"]["reason"]: row["_aside"]["rows"] for row in found.to_pylist() if row["_aside"] is not None}


def kept(run: MemoryRunner) -> list[tuple[str, int]]:
    """The versions that are there, with their keys."""
    return sorted((key["k"], row["_offset"]) for name in ("versions", "changes") for key, row in run.state(name))


def test_an_event_sees_the_version_of_its_own_time() -> None:
    run = runner()
    history = [change(0, 10, "Rome"), change(1, 20, "Oslo"), change(2, 30, None), change(3, 40, "Bonn")]
    events = [event(n, at) for n, at in enumerate([9, 10, 19, 20, 29, 30, 39, 40, 99])]
    assert told(run.batch([*events, *history], watermark_us=5)) == []
    assert told(run.batch(watermark_us=100)) == [
        (0, None, None), (1, "Rome", 0), (2, "Rome", 0), (3, "Oslo", 1), (4, "Oslo", 1),
        (5, None, None), (6, None, None), (7, "Bonn", 3), (8, "Bonn", 3),
    ]  # fmt: skip


def test_an_event_waits_for_changes_that_may_still_come() -> None:
    run = runner()
    assert told(run.batch([change(0, 10, "Rome"), event(1, 50)], watermark_us=50)) == [], "at 50 a change may yet come"
    assert told(run.batch([change(1, 50, "Oslo")], watermark_us=50)) == []
    assert told(run.batch(watermark_us=51)) == [(1, "Oslo", 1)]
    assert run.state("events") == []


def test_only_the_last_version_before_the_watermark_stays() -> None:
    run = runner()
    run.batch([change(0, 10, "Rome"), change(1, 20, "Oslo"), change(2, 30, "Bonn"), change(3, 15, "Bari", "b")])
    run.batch(watermark_us=19)
    assert kept(run) == [("a", 0), ("a", 1), ("a", 2), ("b", 3)]
    run.batch(watermark_us=20)
    assert kept(run) == [("a", 1), ("a", 2), ("b", 3)]
    run.batch(watermark_us=1000)
    assert kept(run) == [("a", 2), ("b", 3)]
    assert told(run.batch([event(3, 2000), event(4, 2000, "b")])) == []
    assert told(run.batch(watermark_us=2001)) == [(3, "Bonn", 2), (4, "Bari", 3)]


def test_a_deleted_row_leaves_nothing_behind() -> None:
    run = runner()
    run.batch([change(0, 10, "Rome"), change(1, 20, None), event(1, 15), event(2, 25)], watermark_us=5)
    assert told(run.batch(watermark_us=26)) == [(1, "Rome", 0), (2, None, None)]
    assert kept(run) == []
    assert [row for table in run.plan.tables for row in run.state(table.name)] == []


def test_a_row_that_had_long_been_there_can_be_deleted_and_come_back() -> None:
    run = runner()
    run.batch([change(0, 10, "Rome")], watermark_us=1)
    run.batch(watermark_us=15)
    run.batch([change(1, 20, None), event(1, 19), event(2, 25)])
    assert told(run.batch(watermark_us=30)) == [(1, "Rome", 0), (2, None, None)]
    assert kept(run) == []
    run.batch([event(3, 35), change(2, 40, "Oslo"), event(4, 40)])
    assert told(run.batch(watermark_us=50)) == [(3, None, None), (4, "Oslo", 2)]


def test_of_changes_at_one_time_the_last_counts() -> None:
    run = runner()
    run.batch(
        [change(2, 20, "Oslo"), change(1, 20, None), change(0, 10, "Rome"), change(3, 20, "Bonn")], watermark_us=5
    )
    assert told(run.batch([event(1, 15), event(2, 20)], watermark_us=10)) == []
    assert told(run.batch(watermark_us=30)) == [(1, "Rome", 0), (2, "Bonn", 3)]


def test_a_row_may_come_and_go_in_one_moment() -> None:
    run = runner()
    run.batch([change(0, 10, "Rome"), change(1, 10, None), event(1, 10)], watermark_us=5)
    assert told(run.batch(watermark_us=11)) == [(1, None, None)]
    assert kept(run) == []


def test_inner_leaves_out_what_has_no_row() -> None:
    run = runner(Sides(EVENT, ROW, VERSION_TYPE, keeps_unmatched=False, stragglers=drop()))
    run.batch([change(0, 10, "Rome"), event(1, 5), event(2, 15), event(3, 15, "b"), event(4, 15, None)])
    assert told(run.batch(watermark_us=20)) == [(2, "Rome", 0)]


def test_late_events_are_counted_and_those_without_a_time() -> None:
    run = runner()
    run.batch([change(0, 10, "Rome")], watermark_us=50)
    found = run.batch([event(1, 49), event(2, 50), event(3, None), event(4, 20)])
    assert aside(found) == {"late": 2, "no time": 1}
    assert told(found) == []
    assert told(run.batch(watermark_us=51)) == [(2, "Rome", 0)]


def test_late_events_are_handed_on_whole() -> None:
    run = runner(Sides(EVENT, ROW, VERSION_TYPE, keeps_unmatched=True, stragglers=side_output()))
    run.batch([], watermark_us=5000)
    (found,) = run.batch([event(7, 2000)]).to_pylist()
    assert found["_aside"]["row"] == {"n": 7}
    assert (found["k"], found["_aside"]["reason"], found["_aside"]["lateness_ms"]) == ("a", "late", 3)


def test_late_events_that_are_allowed_get_the_answer_of_their_time() -> None:
    run = runner(allowed=30)
    run.batch([change(0, 10, "Rome"), change(1, 30, "Oslo"), change(2, 40, "Bonn")], watermark_us=60)
    assert kept(run) == [("a", 1), ("a", 2)], "30 is asked for until the watermark is past 70"
    found = run.batch([event(1, 29), event(2, 30), event(3, 45)], watermark_us=60)
    assert told(found) == [(2, "Oslo", 1), (3, "Bonn", 2)]
    assert aside(found) == {"late": 1}
    assert run.state("late events") == []


def test_late_changes_are_taken_in_and_counted() -> None:
    run = runner()
    run.batch([change(0, 10, "Rome"), event(1, 45)], watermark_us=40)
    found = run.batch([change(1, 20, "Oslo"), change(2, 41, "Bonn", "b")], watermark_us=40)
    assert aside(found) == {"late change": 1}
    assert kept(run) == [("a", 1), ("b", 2)]
    assert told(run.batch(watermark_us=50)) == [(1, "Oslo", 1)]


def test_a_change_told_again_changes_nothing() -> None:
    run = runner()
    run.batch([change(0, 10, "Rome"), change(1, 20, "Oslo")], watermark_us=15)
    run.batch([change(0, 10, "Rome"), change(1, 20, "Oslo")], watermark_us=15)
    run.batch([event(1, 19), event(2, 21)])
    assert told(run.batch(watermark_us=30)) == [(1, "Rome", 0), (2, "Oslo", 1)]
    assert kept(run) == [("a", 1)]


def test_latest_goes_by_the_log_and_by_time_where_a_key_moves() -> None:
    sides = Sides(EVENT, ROW, VERSION_TYPE, keeps_unmatched=True)
    run = MemoryRunner(Latest(sides), by=["k"], schema=SCHEMA)

    def city(*rows: Row) -> Any:
        return run.batch([*rows, event(0, None)]).to_pylist()[0]["city"]

    assert city() is None
    assert city(change(7, 20, "Rome")) == "Rome"
    assert city(change(8, 19, "Oslo")) == "Oslo", "the log decides, whatever the clocks say"
    assert city(change(6, 99, "Kiel")) == "Oslo", "told again"
    assert city(change(0, 30, "Bonn", partition=1)) == "Bonn", "offsets of two partitions do not compare"
    assert city(change(1, 31, None, partition=1)) is None
    assert run.state("current") == []
    assert city(change(2, 32, "Bari", partition=1)) == "Bari"
