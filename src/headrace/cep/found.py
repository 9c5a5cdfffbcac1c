"""What stepping over columns gives: matches of many keys as arrays, and what MATCH_RECOGNIZE shows of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.cep.kept import Kept
from headrace.cep.loops import layout
from headrace.cep.loops.layout import Longs, Look
from headrace.cep.loops.paths import measure_paths, write_paths


@dataclass(frozen=True)
class Rows:
    """The rows of a step, as long as its matches are looked at."""

    nodes: Longs
    look: Look
    texts: pa.Array | None


@dataclass(frozen=True)
class Found:
    """Matches (or partial matches) of some keys: match i belongs to `keys[i]`, was known at `times_us[i]`, is the
    `numbers[i]`-th of its key (0 where that is not counted), and has the rows `rows[ends[i - 1] : ends[i]]`, taken as
    `variables[…]` (numbers of `ColumnarProgram.variables`)."""

    keys: Longs
    times_us: Longs
    numbers: Longs
    ends: Longs
    rows: Longs
    variables: Longs
    path: Longs = field(repr=False)
    call: Rows = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """Key, time, and the rows as variable and number: for tests and people."""
        for number in range(len(self.keys)):
            span = slice(self.ends[number - 1] if number else 0, self.ends[number])
            rows = zip(self.variables[span].tolist(), self.rows[span].tolist(), strict=True)
            yield int(self.keys[number]), int(self.times_us[number]), list(rows)


@dataclass(frozen=True)
class Stepped:
    kept: Kept
    matches: Found
    timed_out: Found
    dropped: int
    """Partial matches that were dropped at the cap."""


@dataclass(frozen=True)
class Shown:
    """What MATCH_RECOGNIZE shows: of which match each row is (its place in `Found`), which row of the input it is (of
    ONE ROW PER MATCH the last), and the measures."""

    matches: Longs
    rows: Longs
    measures: pa.RecordBatch


def describe(call: Rows, states: Longs, found: Longs, key_ends: Longs, numbers: Longs | None) -> Found:
    """What is complete, with its rows; `numbers` are how many matches each key had before, if that is counted."""
    nodes = call.nodes
    ends = np.empty(len(found), np.int64)
    path = np.empty(measure_paths(nodes, found, ends), np.int64)
    write_paths(nodes, found, ends, path)
    counts = np.diff(key_ends, prepend=0)
    keys = np.repeat(np.arange(len(key_ends)), counts)
    counted = np.zeros(len(found), np.int64)
    if numbers is not None:
        counted = np.arange(len(found)) - np.repeat(key_ends - counts, counts) + numbers[keys] + 1
    variables = states[nodes[path, layout.N_STATE], layout.S_VARIABLE]
    return Found(
        keys, found[:, layout.M_TIME].copy(), counted, ends, nodes[path, layout.N_ROW], variables, path, call
    )  # fmt: skip
