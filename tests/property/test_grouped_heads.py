"""The head of a large group answers as the whole group would: queues, stacks, churn, and rows gone before they came."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.top_n import top_n
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, WEIGHT, WEIGHT_TYPE
from headrace.pipelines.operators.tables.groups.changes import plan_groups
from headrace.pipelines.operators.tables.groups.operators import REVISION, GroupedRows
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples

SCHEMA = pa.schema([("g", pa.int64()), ("x", pa.int64()), (WEIGHT, WEIGHT_TYPE), (TIME, TIME_TYPE)])
AGGREGATES = {
    "least": agg.min("x"),
    "most": agg.max("x"),
    "first": top_n(3, "x"),
    "last": top_n(2, "-x", "x"),
    "ranked": top_n(3, "x", ties="rank"),
    "dense": top_n(2, "-x", ties="dense_rank"),
}
SHOWN = ("first", "last", "ranked", "dense")


def small_heads() -> GroupedRows:
    """With nothing to spare, so that small groups have tails."""
    parts = plan_groups(AGGREGATES, SCHEMA).parts
    return GroupedRows({name: replace(part, spare=0) for name, part in parts.items()})  # type: ignore[type-var]


def expected(table: list[tuple[int, int]]) -> dict[int, Any]:
    found = {}
    for group in {g for g, _ in table}:
        xs = sorted(x for g, x in table if g == group)
        ranked = [x for x in xs if xs.index(x) < 3]
        dense = [x for x in xs[::-1] if len({y for y in xs if y > x}) < 2]
        found[group] = (xs[0], xs[-1], xs[:3], xs[::-1][:2], ranked, dense)
    return found


def lost(random: np.random.Generator, table: list[tuple[int, int]], how: str, count: int) -> list[tuple[int, int]]:
    """The rows that a batch takes away: from the lower end, from the upper end, or any."""
    if how == "any":
        return [table[at] for at in random.permutation(len(table))[:count]]
    return sorted(table, key=lambda row: row[1], reverse=how == "upper")[:count]


@examples(5)
@given(
    st.integers(0, 2**32),
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(["lower", "upper", "any"]), st.integers(0, 60)),
        min_size=4,
        max_size=12,
    ),
    st.none() | st.integers(5, 80),
    st.sampled_from([15, 10**6]),
)
def test_heads_answer_for_the_whole(seed: int, steps: Any, call_rows: int | None, values: int) -> None:
    random = np.random.default_rng(seed)
    runner = MemoryRunner(small_heads(), by=["g"], schema=SCHEMA, call_rows=call_rows)
    table: list[tuple[int, int]] = []
    view: dict[int, Any] = {}
    for more, how, fewer in [(150, "any", 0), *steps, (0, "any", 10**6)]:
        gone = lost(random, table, how, fewer)
        for row in gone:
            table.remove(row)
        new = [(int(random.integers(0, 2)), int(random.integers(0, values))) for _ in range(more)]
        table += new
        # Some come and go within the batch, and any order will do.
        fleeting = new[: more // 3]
        weighted = [(*row, -1) for row in gone + fleeting] + [(*row, 1) for row in new + fleeting]
        rows = [dict(zip(SCHEMA.names, (*weighted[at], None), strict=True)) for at in random.permutation(len(weighted))]
        for row in sorted(runner.batch(rows).to_pylist(), key=lambda row: (row[REVISION], -row[WEIGHT])):
            shown = (row["least"], row["most"], *([cell["x"] for cell in row[name]] for name in SHOWN))
            if row[WEIGHT] < 0:
                assert view.pop(row["g"]) == shown
            else:
                assert row["g"] not in view
                view[row["g"]] = shown
        assert view == expected(table)
    assert not any(runner.state(f"{name}.head") for name in AGGREGATES)
