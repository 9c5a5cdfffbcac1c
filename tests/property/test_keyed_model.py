"""State in levels says the same as dictionaries, whatever rows do and however they are cut, cached and restarted."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.keyed.operator import (
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Longs,
    Plan,
    Rows,
    State,
    Timers,
    Times,
    Values,
)
from tests.keyed_memory import MemoryRunner, digest
from tests.keyed_model import identity
from tests.property.storage_model import examples

INPUT = pa.schema(
    [("name", pa.string()), ("real", pa.float64()), ("op", pa.string()), ("n", pa.int64()), ("t", pa.int64())]
)
CELL = pa.schema([("n", pa.int64()), ("t", pa.int64()), ("text", pa.string())])
OUT = pa.schema([("what", pa.string()), ("n", pa.int64()), ("t", pa.int64())])
TABLES = (Values("plain", CELL), Values("timed", CELL, "t"), Rows("buffer", CELL, "t"))


@dataclass(frozen=True)
class Scripted:
    """Does to each table what the rows say, and emits all that it is shown."""

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        return Plan(OUT, TABLES, Clock.WALL)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        ops = np.array(batch.rows["op"].to_pylist(), object)
        t = batch.rows["t"].to_numpy()

        def given(op: str) -> Keyed:
            mine = np.flatnonzero(ops == op)
            part = batch.rows.take(pa.array(mine))
            texts = pa.array([f"{n}" * (n % 4) if n % 5 else None for n in part["n"].to_pylist()], pa.string())
            return Keyed(batch.key[mine], pa.RecordBatch.from_arrays([part["n"], part["t"], texts], schema=CELL))

        def timers(op: str) -> Timers:
            mine = {int(batch.key[row]): int(t[row]) for row in np.flatnonzero(ops == op)}
            return Timers(np.array(list(mine), np.int64), np.array(list(mine.values()), np.int64))

        put = {name: given(f"put {name}") for name in ("plain", "timed")}
        delete = {table.name: np.unique(batch.key[ops == f"delete {table.name}"]) for table in TABLES}
        for name, rows in put.items():
            delete[name] = np.setdiff1d(delete[name], rows.key)
        expire = {
            name: int(t[ops == f"expire {name}"].max())
            for name in ("timed", "buffer")
            if (ops == f"expire {name}").any()
        }
        return Changes(
            emit=shown(state, len(batch.keys), times),
            put=put,
            append={"buffer": given("append buffer")},
            delete=delete,
            expire=expire,
            event_timers=timers("event"),
            wall_timers=timers("wall"),
            counts={"rows": len(batch)},
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        again = np.flatnonzero(due.event_us % 3 == 0)
        return Changes(
            emit=shown(state, len(due), times, due.event_us, due.wall_us),
            delete={"plain": np.flatnonzero(due.event_us % 2 == 0)},
            event_timers=Timers(again, due.event_us[again] + 5),
            counts={"timers": len(due)},
        )


def shown(state: State, keys: int, times: Times, *more: Longs) -> Keyed:
    parts = [(table.name, state.read(table.name)) for table in TABLES]
    rows = [
        (int(key), f"{name} {row['text']}", row["n"], row["t"])
        for name, part in parts
        for key, row in zip(part.key, part.rows.to_pylist(), strict=True)
    ]
    for clock in (Clock.EVENT, Clock.WALL):
        rows += [(key, clock.value, int(at), times.watermark_us) for key, at in enumerate(state.timers(clock))]
    rows += [(key, "due", int(at), times.wall_us) for each in more for key, at in enumerate(each)]
    rows += [(key, "key", 0, 0) for key in range(keys)]
    columns = [pa.array([row[index] for row in rows], OUT.field(index - 1).type) for index in (1, 2, 3)]
    return Keyed(np.array([row[0] for row in rows], np.int64), pa.RecordBatch.from_arrays(columns, schema=OUT))


OPS = [f"put {name}" for name in ("plain", "timed")] + [f"delete {table.name}" for table in TABLES]
OPS += ["append buffer", "append buffer", "expire timed", "expire buffer", "event", "wall", "look"]
ROW = st.fixed_dictionaries(
    {
        "name": st.sampled_from([None, "", "a", "b", "a\0", "long " * 5]),
        "real": st.sampled_from([None, 0.0, -0.0, math.nan, 1.5]),
        "op": st.sampled_from(OPS),
        "n": st.integers(0, 9),
        "t": st.integers(0, 40),
    }
)
STEP = st.tuples(st.lists(ROW, max_size=25), st.integers(0, 4), st.integers(0, 4), st.booleans())
HASHES: dict[str, Callable[[dict[str, Any]], int]] = {
    "apart": digest,
    "all one": lambda _: 7,
    "few": lambda key: digest(key) % 5 - 2,
}


def by_key(rows: Iterable[dict[str, Any]]) -> list[Any]:
    """Rows in the order of keys; a key's rows as they came."""
    return sorted(
        ((repr((identity(row["name"]), identity(row["real"]))), row["what"], row["n"], row["t"]) for row in rows),
        key=lambda row: row[0],
    )


def held(runner: MemoryRunner, table: str) -> list[Any]:
    return sorted(
        ((repr(tuple(map(identity, key.values()))), row) for key, row in runner.state(table)),
        key=lambda found: found[0],
    )


@pytest.mark.parametrize("hashed", HASHES)
@examples(60)
@given(
    steps=st.lists(STEP, min_size=1, max_size=12),
    buckets=st.integers(1, 3),
    call_rows=st.sampled_from([None, 1, 3]),
    cache_bytes=st.sampled_from([0, 700, 1 << 20]),
)
def test_levels_say_what_dictionaries_say(
    hashed: str, steps: list[Any], buckets: int, call_rows: int | None, cache_bytes: int
) -> None:
    settled = {"by": ["name", "real"], "schema": INPUT, "buckets": buckets, "hashed": HASHES[hashed]}
    model = MemoryRunner(Scripted(), call_rows=call_rows, model=True, **settled)
    levels = MemoryRunner(Scripted(), call_rows=call_rows, cache_bytes=cache_bytes, **settled)
    watermark = wall = 0
    for rows, event_step, wall_step, is_restarted in steps:
        watermark, wall = watermark + event_step, wall + wall_step
        clocks = {"watermark_us": watermark, "wall_us": wall}
        expected = model.batch(rows, **clocks)
        if is_restarted:
            levels.restart()
        assert by_key(levels.batch(rows, **clocks).to_pylist()) == by_key(expected.to_pylist())
        for table in TABLES:
            assert held(levels, table.name) == held(model, table.name)
        assert levels.counts == model.counts
        assert levels.cache.size_bytes <= cache_bytes
