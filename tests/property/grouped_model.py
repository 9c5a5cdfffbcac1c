"""A table that changes, `group_changes` over it without Spark, and DuckDB's answer over the table as it is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, WEIGHT, WEIGHT_TYPE
from headrace.pipelines.operators.tables.groups.changes import plan_groups
from headrace.pipelines.operators.tables.groups.operators import REVISION, DistinctMarks, GroupedRows
from tests.keyed_memory import MemoryRunner

COLUMNS = [
    ("g", pa.string()),
    ("h", pa.int32()),
    ("i", pa.int32()),
    ("x", pa.int64()),
    ("d", pa.decimal128(10, 2)),
    ("f", pa.float64()),
    ("s", pa.string()),
]
SCHEMA = pa.schema([*COLUMNS, (WEIGHT, WEIGHT_TYPE), (TIME, TIME_TYPE)])
Row = dict[str, Any]
Table = dict[int, Row]
"""Rows by primary key."""

rows = st.fixed_dictionaries(
    {
        "g": st.sampled_from(["a", "b", None]),
        "h": st.sampled_from([1, 2, None]),
        "i": st.none() | st.integers(-5, 5),
        "x": st.none() | st.sampled_from([2**61, -(2**61), 3]) | st.integers(-9, 9),
        "d": st.none() | st.integers(-(10**9), 10**9).map(lambda n: Decimal(n) / 100),
        "f": st.none() | st.integers(-(2**20), 2**20).map(lambda n: n / 8) | st.sampled_from([float("nan"), -0.0, 0.0]),
        "s": st.none() | st.sampled_from(["", "a", "b", "é", "z\x00", "zz"]),
    }
)
batches = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.none() | rows), max_size=10, min_size=1), min_size=1, max_size=6
)
"""Micro-batches of writes: a key and its row from now on, or None where it is deleted."""


def changes(table: Table, writes: Sequence[tuple[int, Row | None]], second: int) -> list[Row]:
    """What writes do to a table, as weighted rows; the table is left as they make it."""
    found = []
    time = datetime.fromtimestamp(second, UTC)
    for key, row in writes:
        if (old := table.pop(key, None)) is not None:
            found.append({**old, WEIGHT: -1, TIME: time})
        if row is not None:
            table[key] = row
            found.append({**row, WEIGHT: 1, TIME: time})
    return found


class Groups:
    """`group_changes` with its operators one behind the other, and the table that its output adds up to."""

    def __init__(
        self, by: Sequence[str], aggregates: Mapping[str, Aggregate], *, inserts: bool = False, **run: Any
    ) -> None:
        made = plan_groups(aggregates, SCHEMA, inserts=inserts)
        self.runners, schema = [], SCHEMA
        for mark, field in made.marked.items():
            keys = list(dict.fromkeys([*by, field]))
            self.runners.append(MemoryRunner(DistinctMarks(field, mark, schema), by=keys, schema=schema, **run))
            schema = self.runners[-1].output
        self.runners.append(MemoryRunner(GroupedRows(made.parts), by=by, schema=schema, **run))
        self.view: Counter[str] = Counter()
        self.versions: dict[tuple[str, int], str] = {}
        self.by = by

    def batch(self, given: Sequence[Row]) -> list[Row]:
        """A micro-batch; what it told."""
        told: Any = given
        for runner in self.runners:
            told = runner.batch(told)
        for row in told.to_pylist():
            weight, revision, time = row.pop(WEIGHT), row.pop(REVISION), row.pop(TIME)
            self.view[repr(row)] += weight
            key = repr([row[name] for name in self.by])
            # A version is one row (and its time, unless there is nothing else to tell rows of a key apart by), so that
            # a retraction names what it takes back.
            shown = repr((row, time if len(row) > len(self.by) else None))
            assert self.versions.setdefault((key, revision), shown) == shown
        self.view += Counter()
        return list(told.to_pylist())

    def restart(self) -> None:
        for runner in self.runners:
            runner.restart()


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def queried(table: Table, sql: str, kinds: pa.Schema) -> Counter[str]:
    """DuckDB's answer, each row as the groups show it."""
    found = pa.Table.from_pylist(list(table.values()), schema=pa.schema(COLUMNS))
    con = _duckdb()
    con.register("t", found)
    return Counter(map(repr, con.sql(sql).to_arrow_table().cast(kinds).to_pylist()))
