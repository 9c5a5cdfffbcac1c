"""`flag_anomalies`: each row with the value that was to be expected, how far off it is, and whether that is too far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from headrace.pipelines.keyed.operator import Keyed, State, Table
from headrace.pipelines.operators.errors import BadAggregate, BadField, as_names, require
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.ordered.in_order import Ready, Stepped, check_stragglers, put_in_order, time_of
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, drop

EXPECTED, SCORE, ANOMALY = "expected", "score", "is_anomaly"
Doubles = NDArray[np.float64]
_MOST = 1e150
"""What is further from 0 is learned from as if it were this: squares stay numbers, and so fade again."""


class Points(NamedTuple):
    """Values sorted by key, time and value; `valid` are those that are numbers."""

    keys: int
    key: Longs
    time: Longs
    value: Doubles
    valid: NDArray[np.bool_]
    reached: int


class Judged(NamedTuple):
    """What was expected of each point and by how much values spread around that, both NaN where it is not known yet."""

    expected: Doubles
    spread: Doubles
    kept: Stepped
    """The changes of its tables, with nothing to emit."""


class Way(Protocol):
    """A way to expect values from those before. Values of the same time are expected from those before all of them."""

    @property
    def threshold(self) -> float:
        """From how many spreads on a value is an anomaly."""
        ...

    @property
    def least_spread(self) -> float:
        """What the spread is at least."""
        ...

    @property
    def parameters(self) -> Mapping[str, object]:
        """What decides what it keeps."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]: ...

    def judge(self, points: Points, state: State) -> Judged: ...


def flag_anomalies(
    value: str,
    way: Way,
    *,
    by: str | Sequence[str] = (),
    time: str | None = None,
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
) -> Transform:
    """Each row with what its `value` was expected to be from the rows of its key before it, and whether it is that.

    Adds `expected`; `score`, by how many spreads the value is above that (or below, if it is negative); and
    `is_anomaly`, whether the score is further from 0 than the threshold of `way`: `ewma`, `robust` or `seasonal`. As
    long as the way has seen too little, the score is null and nothing is an anomaly. A null, NaN or infinity is not
    judged, and nothing is expected from it. Where all values were equal, another one has a score of plus or minus
    infinity: `least_spread` of the way says what is never an anomaly.

    Rows come out when the watermark has reached them. It takes events, or results of windows that are emitted once.
    """
    if not hasattr(way, "judge"):
        raise BadAggregate(f'flag_anomalies: {way!r} is no way to expect values: write for example ewma("10 minutes")')
    keys, choice = as_names(by), stragglers or drop()
    check_stragglers(choice, "flag_anomalies")

    def apply(frame: DataFrame) -> DataFrame:
        require([value], frame.columns, "flag_anomalies")
        kind = frame.schema[value].dataType.simpleString()
        if kind not in ("tinyint", "smallint", "int", "bigint", "float", "double") and not kind.startswith("decimal"):
            raise BadField(f"flag_anomalies: {value!r} is {kind}, and only numbers can be expected so")
        for name in (EXPECTED, SCORE, ANOMALY):
            if name in frame.columns:
                raise BadField(f"flag_anomalies adds a column {name!r}, and there is one already: rename it before")
        mark = time_of(frame, time, keys, "flag_anomalies")
        timed, at = mark.at_hand(frame)
        carried = tuple(name for name in frame.columns if name not in keys)
        columns = tuple(dict.fromkeys([*carried, value]))
        found = put_in_order(timed, at, columns, keys, choice, buckets,
                             lambda schema: Flags(value, way, carried, schema))  # fmt: skip
        names = [*frame.columns, EXPECTED, SCORE, ANOMALY, *(name for name in found.columns if name == ASIDE)]
        return found.select(*(f"`{name}`" for name in names)).transform(mark.put)

    return apply


@dataclass(frozen=True)
class Flags:
    """The step."""

    value: str
    way: Way
    carried: tuple[str, ...]
    rows: pa.Schema

    @property
    def parameters(self) -> Mapping[str, object]:
        return {"value": self.value, "way": type(self.way).__name__.lower(), **self.way.parameters}

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.way.tables

    @property
    def output(self) -> pa.Schema:
        added = [(EXPECTED, pa.float64()), (SCORE, pa.float64()), (ANOMALY, pa.bool_())]
        return pa.schema([*(self.rows.field(name) for name in self.carried), *added])

    def run(self, ready: Ready, state: State) -> Stepped:
        numbers = ready.rows.column(self.value).cast(pa.float64(), safe=False)
        value = np.array(numbers.fill_null(np.nan))
        order = np.lexsort((value, ready.time, ready.key))
        key, time, value = ready.key[order], ready.time[order], value[order]
        valid = np.isfinite(value)
        learned = np.where(valid, np.clip(value, -_MOST, _MOST), 0.0)
        found = self.way.judge(Points(ready.keys, key, time, learned, valid, ready.reached), state)
        spread = np.maximum(found.spread, self.way.least_spread)
        known = ~np.isnan(found.spread) & valid
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            off = np.where(known, value - found.expected, 0.0)
            score = np.where(off == 0, 0.0, off / spread)
        flagged = known & (np.abs(score) > self.way.threshold)
        rows = ready.rows.select(self.carried).take(pa.array(order))
        added = [pa.array(found.expected, mask=np.isnan(found.expected)), pa.array(score, mask=~known)]
        shown = pa.RecordBatch.from_arrays([*rows.columns, *added, pa.array(flagged)], schema=self.output)
        kept = found.kept
        return Stepped(Keyed(key, shown), kept.wake, kept.put, kept.append, kept.delete, kept.expire)


def check_way(what: str, threshold: float, least_spread: float, warm_up: int) -> None:
    """Refuse what no way can have."""
    for name, number in (("threshold", threshold), ("least_spread", least_spread)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < np.inf:
            raise BadAggregate(f"{what}: {name}={number!r}: write a number that is not below 0")
    if isinstance(warm_up, bool) or not isinstance(warm_up, int) or warm_up < 1:
        raise BadAggregate(f"{what}: warm_up={warm_up!r}: write how many values it has to have seen, 1 or more")
