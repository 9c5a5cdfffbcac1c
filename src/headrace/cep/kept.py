"""What is kept of keys between calls: partial matches as arrays, and as tables that can be stored.

    runs      partial matches                          nodes   the rows that they took, with the values still looked at
    waiting   matches that wait for their turn         keys    where the next match may begin; how many there were
    tail      the last rows of a key, for PREV         began   values that a match began with, for every-distinct

What always holds: a key without rows in any table is as one that was never seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.cep.lanes import NO_NODES
from headrace.cep.loops import layout
from headrace.cep.loops.layout import NEVER, Longs

Tables = Mapping[str, tuple[Longs, pa.RecordBatch]]
"""By name: the number of each row's key, and the rows."""

_RUNS = ("state", "open", "start", "start_us", "node", "last_us", "is_fresh", "was_match", "deadline_us")
_NODES = ("row", "state", "parent", "choice", "time_us")
_WAITING = ("start", "node", "time_us", "choice")


def _no_longs() -> Longs:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Kept:
    """The partial matches of some keys; `…_ends[key]` is where those of a key end."""

    runs: Longs
    run_ends: Longs
    waiting: Longs
    waiting_ends: Longs
    froms: Longs
    """Rows with a smaller number begin nothing."""
    numbers: Longs
    """How many matches there were, where that is counted."""
    nodes: Longs
    node_keys: Longs = field(default_factory=_no_longs)
    values: pa.RecordBatch | None = None
    """The lanes of the nodes."""
    tail: pa.RecordBatch | None = None
    tail_ends: Longs = field(default_factory=_no_longs)
    began: pa.Array | None = None
    began_keys: Longs = field(default_factory=_no_longs)
    began_us: Longs = field(default_factory=_no_longs)
    expires_us: int = NEVER

    @staticmethod
    def nothing(keys: int) -> "Kept":
        """What is kept of keys that were never seen."""
        ends = np.zeros(keys, np.int64)
        return Kept(
            np.empty((0, layout.R_WIDTH), np.int64), ends, np.empty((0, layout.M_WIDTH), np.int64), ends.copy(),
            ends.copy(), ends.copy(), NO_NODES, tail_ends=ends.copy(),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.run_ends)

    def sizes(self) -> Longs:
        """How many partial matches each key has."""
        return np.diff(self.run_ends, prepend=0)

    def deadlines_us(self) -> Longs:
        """When each key has to be looked at though no row comes; `NEVER` if it need not."""
        found = np.full(len(self), NEVER, np.int64)
        owners = np.repeat(np.arange(len(self)), self.sizes())
        np.minimum.at(found, owners, self.runs[:, layout.R_DEADLINE])
        if len(self.began_us) and self.expires_us != NEVER:
            last = np.full(len(self), layout.NOT_YET, np.int64)
            np.maximum.at(last, self.began_keys, self.began_us + self.expires_us)
            is_only = (found == NEVER) & (last != layout.NOT_YET)
            found[is_only] = last[is_only]
        return found

    def held_rows(self) -> tuple[Longs, Longs]:
        """The rows that partial matches and waiting matches hold, each once: their keys and their numbers, rising."""
        pairs = np.unique(np.stack([self.node_keys, self.nodes[:, layout.N_ROW]], axis=1), axis=0)
        return pairs[:, 0].copy(), pairs[:, 1].copy()


@dataclass(frozen=True)
class Shelves:
    """Which tables a pattern needs, and their columns."""

    values: pa.Schema
    tail: pa.Schema
    began: pa.DataType | None
    waits: bool
    counts: bool
    """Whether anything is kept of a key by itself."""
    expires_us: int = NEVER

    def schemas(self) -> dict[str, pa.Schema]:
        long = pa.int64()

        def of(*names: str) -> list[pa.Field]:
            return [pa.field(name, long) for name in names]

        found = {"runs": pa.schema(of("at", *_RUNS)), "nodes": pa.schema([*of("at", *_NODES), *self.values])}
        if self.waits:
            found["waiting"] = pa.schema(of("at", *_WAITING))
        if self.counts:
            found["keys"] = pa.schema(of("from", "matches"))
        if len(self.tail):
            found["tail"] = pa.schema([*of("at"), *self.tail])
        if self.began is not None:
            found["began"] = pa.schema([pa.field("value", self.began), *of("began_us")])
        return found

    def write(self, kept: Kept) -> dict[str, tuple[Longs, pa.RecordBatch]]:
        """The tables of what is kept; numbers of nodes count within a key there."""
        schemas = self.schemas()
        order = np.argsort(kept.node_keys, kind="stable")
        node_keys = kept.node_keys[order]
        local = np.empty(len(order), np.int64)
        local[order] = _positions(node_keys)
        nodes = kept.nodes[order]
        parents = nodes[:, layout.N_PARENT]
        parents = np.where(parents >= 0, local[parents], -1) if len(local) else parents
        values = [] if kept.values is None else [column.take(pa.array(order)) for column in kept.values.columns]
        run_keys = np.repeat(np.arange(len(kept)), kept.sizes())
        runs = kept.runs
        found: dict[str, tuple[Longs, list[object]]] = {
            "runs": (
                run_keys,
                [
                    _positions(run_keys),
                    *(
                        local[runs[:, at]] if at == layout.R_NODE and len(runs) else runs[:, at]
                        for at in range(layout.R_WIDTH)
                    ),
                ],
            ),
            "nodes": (
                node_keys,
                [local[order], nodes[:, layout.N_ROW], nodes[:, layout.N_STATE], parents, nodes[:, layout.N_CHOICE],
                 nodes[:, layout.N_TIME], *values],
            ),
        }  # fmt: skip
        if self.waits:
            waiting = kept.waiting
            keys = np.repeat(np.arange(len(kept)), np.diff(kept.waiting_ends, prepend=0))
            places = local[waiting[:, layout.M_NODE]] if len(waiting) else waiting[:, layout.M_NODE]
            found["waiting"] = (
                keys,
                [_positions(keys), waiting[:, layout.M_START], places, waiting[:, layout.M_TIME],
                 waiting[:, layout.M_CHOICE]],
            )  # fmt: skip
        if self.counts:
            keys = np.flatnonzero((kept.froms > 0) | (kept.numbers > 0))
            found["keys"] = keys, [kept.froms[keys], kept.numbers[keys]]
        if len(self.tail):
            keys = np.repeat(np.arange(len(kept)), np.diff(kept.tail_ends, prepend=0))
            columns = [] if kept.tail is None else kept.tail.columns
            found["tail"] = keys, [_positions(keys), *columns]
        if self.began is not None:
            began = pa.array([], self.began) if kept.began is None else kept.began
            order = np.argsort(kept.began_keys, kind="stable")
            found["began"] = kept.began_keys[order], [began.take(pa.array(order)), kept.began_us[order]]
        return {name: (keys, _batch(columns, schemas[name], len(keys))) for name, (keys, columns) in found.items()}

    def read(self, keys: int, tables: Tables) -> Kept:
        """What is kept, from its tables: rows of any order; a table that is missing is empty."""
        schemas = self.schemas()
        given = {name: _sorted(tables.get(name), schema) for name, schema in schemas.items()}
        nothing = Kept.nothing(keys)

        def longs(name: str, *columns: str) -> Longs:
            batch = given[name][1]
            found = [batch.column(batch.schema.get_field_index(column)).to_numpy() for column in columns]
            return np.stack(found, axis=1).astype(np.int64) if found else np.empty((len(batch), 0), np.int64)

        node_keys, node_rows = given["nodes"]
        starts = np.searchsorted(node_keys, np.arange(keys))
        base = starts[node_keys] if len(node_keys) else node_keys
        plain = longs("nodes", *_NODES)
        nodes = np.zeros((len(node_keys), layout.N_WIDTH), np.int64)
        for column, at in enumerate(
            (layout.N_ROW, layout.N_STATE, layout.N_PARENT, layout.N_CHOICE, layout.N_TIME)
        ):  # fmt: skip
            nodes[:, at] = plain[:, column]
        nodes[:, layout.N_PARENT] = np.where(nodes[:, layout.N_PARENT] >= 0, nodes[:, layout.N_PARENT] + base, -1)
        run_keys = given["runs"][0]
        runs = np.ascontiguousarray(longs("runs", *_RUNS))
        runs[:, layout.R_NODE] += starts[run_keys] if len(run_keys) else 0
        values = pa.RecordBatch.from_arrays(node_rows.columns[1 + len(_NODES) :], schema=self.values)
        waiting, waiting_ends = nothing.waiting, nothing.waiting_ends
        if self.waits:
            waiting_keys = given["waiting"][0]
            waiting = np.ascontiguousarray(longs("waiting", *_WAITING))
            waiting[:, layout.M_NODE] += starts[waiting_keys] if len(waiting_keys) else 0
            waiting_ends = _ends(waiting_keys, keys)
        froms, numbers = nothing.froms, nothing.numbers
        if self.counts:
            own, table = given["keys"]
            froms[own], numbers[own] = table.column(0).to_numpy(), table.column(1).to_numpy()
        tail, tail_ends = None, nothing.tail_ends
        if len(self.tail):
            tail_keys, rows = given["tail"]
            tail = pa.RecordBatch.from_arrays(rows.columns[1:], schema=self.tail)
            tail_ends = _ends(tail_keys, keys)
        began_keys, began, began_us = nothing.began_keys, None, nothing.began_us
        if self.began is not None:
            began_keys, rows = given["began"]
            began, began_us = rows.column(0), rows.column(1).to_numpy()
        return Kept(
            runs, _ends(run_keys, keys), waiting, waiting_ends, froms, numbers, nodes, node_keys, values, tail,
            tail_ends, began, began_keys, began_us, self.expires_us,
        )  # fmt: skip


def _positions(keys: Longs) -> Longs:
    """Which row of its key each is; keys rise."""
    if not len(keys):
        return np.empty(0, np.int64)
    begins = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    return np.arange(len(keys)) - np.repeat(begins, np.diff(np.append(begins, len(keys))))


def _ends(owners: Longs, keys: int) -> Longs:
    return np.cumsum(np.bincount(owners, minlength=keys)).astype(np.int64)


def _batch(columns: list[object], schema: pa.Schema, count: int) -> pa.RecordBatch:
    if len(columns) != len(schema):  # nothing was ever kept
        assert not count
        return pa.RecordBatch.from_pylist([], schema=schema)
    arrays = [
        column.cast(one.type) if isinstance(column, pa.Array) else pa.array(column, one.type)
        for column, one in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _sorted(given: tuple[Longs, pa.RecordBatch] | None, schema: pa.Schema) -> tuple[Longs, pa.RecordBatch]:
    if given is None:
        return np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=schema)
    keys, rows = given
    keys = np.asarray(keys, np.int64)
    if schema.names[0] != "at":
        order = np.argsort(keys, kind="stable")
        return keys[order], rows.take(pa.array(order))
    places = rows.column(0).to_numpy()
    is_sorted = (np.diff(keys) > 0) | ((np.diff(keys) == 0) & (np.diff(places) > 0))
    if is_sorted.all():
        return keys, rows
    order = np.lexsort((places, keys))
    return keys[order], rows.take(pa.array(order))
