"""Tables that change, what a join of them should say by DuckDB, and the operators that say it change by change."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headrace.pipelines.operators.tables.current import CurrentRows
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, VERSION, VERSION_TYPE, VERSIONS, WEIGHT
from headrace.pipelines.operators.tables.joins.operator import TableJoin
from tests.keyed_memory import MemoryRunner

Row = dict[str, Any]
ROWS = {
    "a": pa.schema([("fk", pa.int64()), ("s", pa.string())]),
    "b": pa.schema([("w", pa.float64()), ("s", pa.string())]),
    "c": pa.schema([("s", pa.string()), ("n", pa.int32())]),
}
TEXTS = st.sampled_from(["", "x", "yy", None])
CELLS = {
    "a": st.fixed_dictionaries({"fk": st.integers(0, 3) | st.none(), "s": TEXTS}),
    "b": st.fixed_dictionaries({"w": st.sampled_from([0.0, 1.5, float("nan"), None]), "s": TEXTS}),
    "c": st.fixed_dictionaries({"s": TEXTS, "n": st.integers(0, 2)}),
}


def writes(tables: Sequence[str]) -> Any:
    """A row written, deleted (None), or an earlier record told again (True)."""
    return st.one_of(
        *(
            st.tuples(st.just(name), st.integers(0, 3), CELLS[name] | CELLS[name] | st.none() | st.just(True))
            for name in tables
        )
    )


def batches(tables: Sequence[str]) -> Any:
    """Micro-batches of writes."""
    return st.lists(st.lists(writes(tables), max_size=8), min_size=1, max_size=4)


runs = st.fixed_dictionaries({"buckets": st.integers(1, 3), "call_rows": st.none() | st.integers(1, 4)})


class Source:
    """A table, its change records, and the operator that makes changes of them."""

    def __init__(self, name: str, **run: Any) -> None:
        self.name = name
        self.rows: dict[int, Row] = {}
        self.last: dict[int, Row] = {}
        self.offset = 0
        self.kind = pa.struct(list(ROWS[name]))
        schema = pa.schema(
            [
                ("id", pa.int64()),
                ("row", self.kind),
                ("gone", pa.bool_()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                (VERSION, VERSION_TYPE),
                (TIME, TIME_TYPE),
            ]
        )
        self.runner = MemoryRunner(CurrentRows(self.kind), by=["id"], schema=schema, **run)
        self.records: list[Row] = []

    def write(self, key: int, row: Any) -> None:
        if row is True:
            # The log itself repeats nothing; a record that comes again finds the row there.
            if key in self.rows:
                self.records.append(self.last[key])
            return
        self.offset += 1
        version = {"table": self.name, "key": f'{{"id":{key}}}', "offset": self.offset, "lsn": f"L{self.offset}"}
        self.last[key] = {
            "id": key,
            "row": row,
            "gone": row is None,
            "partition": 0,
            "offset": self.offset,
            VERSION: version,
            TIME: self.offset * 1_000_000,
        }
        self.records.append(self.last[key])
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row

    def changes(self) -> pa.Table:
        told = self.runner.batch(pa.RecordBatch.from_pylist(self.records, schema=self.runner.schema))
        self.records = []
        return told

    def table(self) -> pa.Table:
        rows = [{"id": key, **row} for key, row in self.rows.items()]
        return pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.int64()), *ROWS[self.name]]))


def forgetful(changes: pa.Table) -> pa.Table:
    """Changes passed on without state: a row that goes is known by table and key alone."""
    rows = changes.to_pylist()
    for row in rows:
        if row[WEIGHT] < 0:
            row[VERSION] = {**row[VERSION], "offset": None, "lsn": None}
            row[TIME] = None
    return pa.Table.from_pylist(rows, schema=changes.schema)


def side(schema: pa.Schema, rename: dict[str, str]) -> pa.StructType:
    return pa.struct([pa.field(rename.get(field.name, field.name), field.type) for field in schema])


class Join:
    """A join that is kept; `names` are what the columns of either side are called in it."""

    def __init__(
        self, left: pa.Schema, right: pa.Schema, on: tuple[str, str], how: str, names: tuple[Any, Any], **run: Any
    ) -> None:
        self.on = on
        kinds = side(left, names[0]), side(right, names[1])
        self.key = left.field(on[0]).type
        operator = TableJoin(*kinds, how in ("left", "full"), how in ("right", "full"))
        self.schema = pa.schema([("(on)", self.key), ("left", kinds[0]), ("right", kinds[1])])
        self.runner = MemoryRunner(operator, by=["(on)"], schema=self.schema, **run)
        self.output = self.runner.plan.output
        self.told: Counter[tuple[str, str]] = Counter()

    def batch(self, left: pa.Table, right: pa.Table) -> pa.Table:
        parts = [self._input(left, 0), self._input(right, 1)]
        order = np.random.default_rng(left.num_rows).permutation(left.num_rows + right.num_rows)
        told = self.runner.batch(pa.concat_tables(parts).take(pa.array(order)))
        told = told.drop_columns(["(on)"])
        for row in told.to_pylist():
            weight = row.pop(WEIGHT)
            marks = repr((row.pop(VERSIONS), row.pop(TIME)))
            self.told[plain(list(row.values())), marks] += weight
        self.told = Counter({row: count for row, count in self.told.items() if count})
        return told

    def _input(self, rows: pa.Table, at: int) -> pa.Table:
        rows = rows.combine_chunks()
        keys = rows.column(self.on[at])
        kind = self.schema.field(1 + at).type
        cells = [rows.column(i).combine_chunks() for i in range(rows.num_columns)]
        cells = [cell.cast(field.type) for cell, field in zip(cells, kind, strict=True)]
        structs = pa.StructArray.from_arrays(cells, fields=list(kind))
        nothing = pa.nulls(rows.num_rows, self.schema.field(2 - at).type)
        both = [structs, nothing] if at == 0 else [nothing, structs]
        return pa.Table.from_arrays([keys, *both], schema=self.schema)

    def view(self) -> Counter[str]:
        """The rows that are there, without their versions."""
        found: Counter[str] = Counter()
        for (row, _), count in self.told.items():
            found[row] += count
        return Counter({row: count for row, count in found.items() if count})


def plain(cells: Sequence[Any]) -> str:
    return repr(tuple(cells))


def queried(sql: str, **tables: pa.Table) -> Counter[str]:
    """What DuckDB says."""
    db = _database()
    for name, table in tables.items():
        db.register(name, table)
    return Counter(plain(row) for row in db.execute(sql).fetchall())


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})
