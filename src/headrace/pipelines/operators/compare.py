"""`compare`: a window's result beside the one before, the same hour yesterday, and what is usual."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.pipelines.operators.comparing import Comparing, Comparison
from headrace.pipelines.operators.errors import BadField, BadWindow
from headrace.pipelines.operators.fields import as_names, require
from headrace.pipelines.operators.frames import Transform, over_keys
from headrace.pipelines.operators.intervals import Interval, positive
from headrace.pipelines.operators.telling import FINAL, RETRACTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREVIOUS = "previous"
USUAL = MappingProxyType({"previous": PREVIOUS, "yesterday": "1 day", "last_week": "7 days"})


def compare(
    value: str,
    *,
    by: str | Sequence[str] = (),
    against: Mapping[str, Interval] = USUAL,
    history: Interval = "7 days",
    rolling: Interval | None = None,
    buckets: int | None = None,
) -> Transform:
    """Results of windows compared with earlier results of the same key.

    For each name in `against`, the window so long before (or `"previous"`: the last one before, whatever the distance):
    `NAME_value`, `NAME_difference`, `NAME_ratio`; null where there was none, and a ratio to 0 is null. Besides,
    `z_score` against the windows in `history` before it (null of fewer than two, or if all were equal),
    `rate_per_second` (the value by the window's length), and with `rolling` the `rolling_average` of the windows that
    began within so long, this one included. It wants results that are told once: no corrections, no early ones.
    """
    comparisons = tuple(
        Comparison(name, None if back == PREVIOUS else positive(back, f"{name} in compare"))
        for name, back in against.items()
    )
    history_us = positive(history, "history in compare")
    rolling_us = None if rolling is None else positive(rolling, "rolling in compare")
    keys = as_names(by)

    def apply(frame: "DataFrame") -> "DataFrame":
        require([*keys, value, "window_start"], frame.columns, "compare")
        again = [name for name in (RETRACTED, FINAL) if name in frame.columns]
        if again:
            raise BadWindow(
                f"compare takes results that are told once, and these have {again[0]!r}: filter them, drop the column, "
                "and know that what was told before is not compared again"
            )
        kind = frame.schema[value].dataType.simpleString()
        if kind not in ("tinyint", "smallint", "int", "bigint", "float", "double") and not kind.startswith("decimal"):
            raise BadField(f"compare: {value!r} is {kind}, and only numbers can be compared so")
        carried = tuple(name for name in frame.columns if name not in keys)
        return over_keys(
            frame, keys, lambda rows: Comparing(value, comparisons, history_us, rolling_us, carried, rows), buckets
        )

    return apply
