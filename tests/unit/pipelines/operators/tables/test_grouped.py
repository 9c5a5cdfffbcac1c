"""What `group_changes` tells of a few changes, what it keeps, and what it refuses."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.errors import BadAggregate, BadField
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, WEIGHT, WEIGHT_TYPE
from headrace.pipelines.operators.tables.groups.changes import group_changes, plan_groups
from headrace.pipelines.operators.tables.groups.operators import GROUPS, REVISION, GroupedRows
from tests.keyed_memory import MemoryRunner

SCHEMA = pa.schema(
    [
        ("g", pa.string()),
        ("x", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("m", pa.map_(pa.string(), pa.int64())),
        (WEIGHT, WEIGHT_TYPE),
        (TIME, TIME_TYPE),
    ]
)


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def change(weight: int, second: int = 0, **row: Any) -> dict[str, Any]:
    return {"g": "a", **row, WEIGHT: weight, TIME: at(second)}


def runner(**aggregates: Any) -> MemoryRunner:
    return MemoryRunner(GroupedRows(plan_groups(aggregates, SCHEMA).parts), by=["g"], schema=SCHEMA)


def told(run: MemoryRunner, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Weight, revision, second, results."""
    found = run.batch(list(rows)).to_pylist()
    names = [name for name in run.output.names if name not in ("g", WEIGHT, REVISION, TIME)]
    return [(row[WEIGHT], row[REVISION], row[TIME].timestamp(), *(row[name] for name in names)) for row in found]


def test_a_group_appears_changes_disappears_and_returns() -> None:
    run = runner(n=agg.count(), total=agg.sum("x"))
    assert told(run, change(1, 5, x=3)) == [(1, 1, 5, 1, 3)]
    assert told(run, change(-1, 9, x=3), change(1, 9, x=4)) == [(-1, 1, 5, 1, 3), (1, 2, 9, 1, 4)]
    assert told(run, change(-1, 10, x=4)) == [(-1, 2, 9, 1, 4)]
    # Its revisions go on, so that no two rows of the group have the same version.
    assert told(run, change(1, 11, x=4)) == [(1, 3, 11, 1, 4)]


def test_what_alters_no_result_is_not_told() -> None:
    run = runner(least=agg.min("x"), mean=agg.avg("x"))
    told(run, change(1, x=1), change(1, x=3))
    assert told(run, change(1, x=2)) == []
    assert told(run, change(-1, x=2), change(1, x=2)) == []
    assert told(run, change(-1, x=1), change(1, x=0))[0][:2] == (-1, 1)


def test_a_row_taken_away_before_it_came_is_no_group_and_leaves_nothing() -> None:
    run = runner(n=agg.count(), least=agg.min("x"), mean=agg.avg("f"))
    assert told(run, change(-1, x=1, f=0.1)) == []
    assert told(run, change(1, x=1, f=0.1)) == []
    assert [run.state(table.name) for table in run.plan.tables] == [[]] * len(run.plan.tables)


def test_sums_of_doubles_are_free_of_what_is_gone() -> None:
    run = runner(total=agg.sum("f"), mean=agg.avg("f"))
    told(run, change(1, f=0.1), change(1, f=0.2))
    (gone, big) = told(run, change(1, f=1e300), change(1, f=math.inf), change(1, f=math.nan))
    assert gone[3:] == (0.30000000000000004, 0.15000000000000002)
    assert math.isnan(big[3])
    back = told(run, change(-1, f=math.nan), change(-1, f=1e300))
    assert back[1][3] == math.inf
    assert told(run, change(-1, f=math.inf))[1][3:] == gone[3:]


def test_sums_are_exact_beyond_what_a_double_holds() -> None:
    run = runner(total=agg.sum("x"), mean=agg.avg("x"), money=agg.sum("d"), each=agg.avg("d"))
    cent, much = Decimal("0.01"), Decimal("99999999.99")
    told(run, change(1, x=2**62, d=much), change(1, x=1, d=cent))
    assert told(run, change(-1, x=2**62, d=much))[1][3:] == (1, 1.0, cent, Decimal("0.010000"))
    with pytest.raises(BadAggregate, match="more than a bigint holds"):
        told(run, change(1, x=2**62), change(1, x=2**62))


def test_a_sum_of_nothing_is_null() -> None:
    run = runner(total=agg.sum("x"), mean=agg.avg("f"), least=agg.min("s"), all=agg.collect("s"), n=agg.count("x"))
    assert told(run, change(1)) == [(1, 1, 0, None, None, None, [], 0)]


def test_groups_without_time_have_none() -> None:
    run = runner(n=agg.count())
    assert run.batch([{"g": "a", WEIGHT: 1, TIME: None}]).to_pylist()[0][TIME] is None


def test_a_change_far_behind_is_only_noted() -> None:
    run = runner(least=agg.min("x"))
    told(run, *(change(1, x=x) for x in range(1000)))
    (head, tail) = (len(run.state(f"least.{part}")) for part in ("head", "tail"))
    assert head + tail == 1000
    assert head < 100
    assert told(run, change(-1, x=900), change(1, x=2000)) == []
    assert (len(run.state("least.head")), len(run.state("least.tail"))) == (head, tail + 2)
    (row,) = run.state(GROUPS)
    assert row[1]["least.rows"] == 1000
    for x in range(1, 200, 2):
        assert told(run, change(-1, x=x - 1), change(-1, x=x))[1][3] == x + 1


@pytest.mark.parametrize(
    ("aggregate", "sentence"),
    [
        (agg.sum("y"), "a: there is no column 'y': there are "),
        (agg.sum("s"), "field 's' is string, and only numbers can be summed: cast it to one first"),
        (agg.stddev("x"), "cannot take back a row that is gone: use count, sum, avg, min"),
        (agg.last("x"), "cannot take back a row that is gone"),
        (agg.min("m"), "has no order: take a field of it"),
        (agg.count_distinct("m"), "cannot be compared: take a field of it"),
    ],
    ids=lambda each: getattr(each, "named", ""),
)
def test_what_cannot_be_kept_is_refused(aggregate: Any, sentence: str) -> None:
    with pytest.raises((BadAggregate, BadField)) as refused:
        plan_groups({"a": aggregate}, SCHEMA)
    assert sentence in str(refused.value)


def test_what_is_no_aggregate_is_refused() -> None:
    with pytest.raises(BadAggregate, match="computes nothing: name an aggregate, for example"):
        group_changes("g")
    with pytest.raises(BadAggregate, match="n='x' is not an aggregate: write for example"):
        group_changes("g", n="x")  # type: ignore[arg-type]
