"""An aggregate of the user's own."""

# ruff: noqa: ARG002 - what the methods do is said once, in `Aggregate` and `Cell`

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.operators.cells import Cell
from headrace.pipelines.operators.grouping import Groups, Longs
from headrace.pipelines.operators.partials import PREPARED, Aggregate, Arrays, Loaded, valid_in


@dataclass(frozen=True)
class Made(Cell):
    """States that a user's own function merges."""

    states: pa.Array
    join: Callable[[pa.Array], Any]

    def take(self, rows: Longs) -> "Made":
        return Made(self.states.take(pa.array(rows)), self.join)

    def reduce(self, groups: Groups) -> "Made":
        states = self.states.take(pa.array(groups.order))
        return self._joined(
            [states.slice(low, high - low) for low, high in zip(groups.starts, groups.ends, strict=True)]
        )

    def over(self, lows: Longs, highs: Longs) -> "Made":
        return self._joined([self.states.slice(low, high - low) for low, high in zip(lows, highs, strict=True)])

    def _joined(self, parts: list[pa.Array]) -> "Made":
        found = [self.join(some) if len(some := part.drop_null()) else None for part in parts]
        plain = [each.as_py() if isinstance(each, pa.Scalar) else each for each in found]
        return Made(pa.array(plain, self.states.type), self.join)


@dataclass(frozen=True)
class Custom(Aggregate):
    """A user's own."""

    kept: pa.DataType
    given: pa.DataType
    make: Callable[[pa.Array], pa.Array]
    join: Callable[[pa.Array], Any]
    end: Callable[[pa.Array], pa.Array]

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        return [("state", self.kept)]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return self.given

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        states = self.make(values).cast(self.kept)
        if (self.field or "").startswith(PREPARED):  # what a condition leaves out is null, whatever is made of a null
            states = states.take(pa.array(np.arange(len(states)), mask=~valid_in(values)))
        return [states]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded((Made(columns[0], self.join),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        return [loaded.cells[0].states]  # type: ignore[attr-defined]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return self.end(loaded.cells[0].states).cast(self.given)  # type: ignore[attr-defined]
