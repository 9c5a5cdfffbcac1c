"""Groups by Spark's own aggregation, where every aggregate can be subtracted: a sum of weighted values.

Spark's state keeps a running sum a group, in its own memory and without Python. It emits only what a group's row is
now, so what comes out are upserts, for a store that keeps a row by key. Doubles are not summed so: what rounding did to
a running double stays in it, and one NaN for ever.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.aggregation.sums import Count, Mean, Total
from headrace.pipelines.operators.tables.form import TIME, VERSION, WEIGHT
from headrace.pipelines.spark.plan import stateful_step

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_WIDEST: Final = 17
"""Digits of a decimal that can be weighted, summed and divided within the 38 that Spark has."""
TABLE: Final = "group"
"""The table that versions of groups name."""
_ROWS, _CHANGES = "_rows", "_changes"


@dataclass(frozen=True)
class Upserts:
    """What `group_changes` returns with its changes: how to make the same groups as `group_natively` emits them.

    Only a DataFrame that is a query's last step has it: what is made of that does not.
    """

    by: tuple[str, ...]
    make: Callable[[], DataFrame]


def why_not_native(frame: DataFrame, aggregates: Mapping[str, Aggregate]) -> str | None:
    """Why Spark's own aggregation cannot do it, as half a sentence; None if it can."""
    for name, each in aggregates.items():
        if not isinstance(each, Count | Total | Mean):
            return f"{name} is none of count, sum and avg, which alone can be subtracted: leave native out"
        kind = _kind(frame, each)
        if isinstance(each, Count) or kind in _WHOLE:
            continue
        if not kind.startswith("decimal"):
            return (
                f"{name} sums {each.field!r}, which is {kind} and would drift: leave native out, or cast to a decimal"
            )
        if int(kind[len("decimal(") :].split(",")[0]) > _WIDEST:
            return f"{name} sums {each.field!r}, which is {kind}, longer than {_WIDEST} digits: leave native out"
    if before := stateful_step(frame):
        return f"the query has a {before} before it, which Spark follows with no other in update mode: leave native out"
    return None


def group_natively(frame: DataFrame, by: Sequence[str], aggregates: Mapping[str, Aggregate]) -> DataFrame:
    """The groups as upserts."""
    columns = [fn.sum(WEIGHT).alias(_ROWS), fn.count(fn.lit(1)).alias(_CHANGES), fn.max(TIME).alias(TIME)]
    results = []
    for place, (name, each) in enumerate(aggregates.items()):
        sums, result = _summed(frame, each, f"_n{place}", f"_sum{place}")
        columns += sums
        results.append(result.alias(name))
    keys = [fn.col(f"`{name}`") for name in by]
    weight = fn.when(fn.col(_ROWS) > 0, fn.lit(1)).otherwise(fn.lit(-1)).alias(WEIGHT)
    return (
        frame.groupBy(*keys)
        .agg(*columns)
        .select(*keys, *results, weight, group_version(by, _CHANGES).alias(VERSION), TIME)
    )


def _summed(frame: DataFrame, each: Aggregate, n: str, total: str) -> tuple[list[Column], Column]:
    """The running sums of an aggregate, and what it makes of them."""
    weight = fn.col(WEIGHT)
    if each.field is None:
        return [], fn.col(_ROWS)
    value = fn.col(f"`{each.field}`")
    count = fn.sum(fn.when(value.isNotNull(), weight).otherwise(0)).alias(n)
    if isinstance(each, Count):
        return [count], fn.col(n)
    kind = _kind(frame, each)
    # Twenty digits hold any bigint: a sum that passes beyond one for a while comes back.
    exact = value.cast("decimal(20,0)") if kind == "bigint" else value.cast("bigint") if kind in _WHOLE else value
    factor = weight.cast("bigint") if kind in _WHOLE and kind != "bigint" else weight.cast("decimal(7,0)")
    sums = [count, fn.sum(exact * factor).alias(total)]
    some = fn.col(n) != 0
    if isinstance(each, Total):
        return sums, fn.when(some, fn.col(total)).cast(_total_type(kind))
    if kind in _WHOLE:
        return sums, fn.when(some, fn.col(total).cast("double") / fn.col(n))
    # With these digits the quotient needs at most 38, beyond which Spark would drop some behind the point.
    mean = fn.col(total).cast(_total_type(kind)) / fn.col(n).cast("decimal(10,0)")
    return sums, fn.when(some, mean).cast(_mean_type(kind))


def _kind(frame: DataFrame, each: Aggregate) -> str:
    return "" if each.field is None else frame.schema[each.field].dataType.simpleString()


def _digits(kind: str) -> tuple[int, int]:
    precision, scale = kind[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def _total_type(kind: str) -> str:
    if kind in _WHOLE:
        return "bigint"
    precision, scale = _digits(kind)
    return f"decimal({precision + 10},{scale})"


def _mean_type(kind: str) -> str:
    precision, scale = _digits(kind)
    return f"decimal({precision + 4},{scale + 4})"


def group_version(by: Sequence[str], revision: str) -> Column:
    """The version of a group: its key as JSON, and a number that grows."""
    key = fn.to_json(fn.struct(*(fn.col(f"`{name}`") for name in by)), {"ignoreNullFields": "false"})
    return fn.struct(
        fn.lit(TABLE).alias("table"),
        (key if by else fn.lit("{}")).alias("key"),
        fn.col(revision).cast("bigint").alias("offset"),
        fn.lit(None).cast("string").alias("lsn"),
    )
