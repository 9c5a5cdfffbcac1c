"""A batch of changes reduced to the last one of each key, by Spark itself and in parallel.

Writing only the last state of a key gives the same table as writing all of them in order, since every change carries
the whole row. Rows without a key, and two rows of one key with nothing to tell which is the last, are errors:
choosing would make the result depend on chance.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from headrace.pipelines.sink.tables.target import DELETED, Target


def reduced(df: DataFrame, target: Target) -> DataFrame:
    """The rows to write: all of them to append, else one row a key with the flag `DELETED`."""
    columns = target.written(df.columns)
    if not target.keys:
        return df.select(*(_column(name) for name in columns))
    deleted = F.coalesce(F.expr(target.delete_when), F.lit(False)) if target.delete_when else F.lit(False)
    change = F.struct(*(_column(name) for name in columns), deleted.alias(DELETED))
    keys = [_present(df, key, target).alias(key) for key in target.keys]
    order = target.ordering(df.columns)
    if order:
        last = F.max_by(change, F.struct(*(_column(name) for name in order)))
    else:
        twice = F.raise_error(
            F.lit(
                f"sink {target.name!r}: a batch has two rows of one key, and nothing says which is the last: "
                "give order_by=... (a column that grows)"
            )
        )
        last = F.when(F.count(F.lit(1)) > 1, twice).otherwise(F.first(change))
    chosen = df.groupBy(*keys).agg(last.alias("headrace_change"))
    return chosen.select("headrace_change.*")


def _present(df: DataFrame, key: str, target: Target) -> Column:
    """The key column, which fails where it is null."""
    missing = F.raise_error(
        F.lit(f"sink {target.name!r}: a row has no {key!r}, which is a key: filter such rows out before the sink")
    )
    return F.coalesce(_column(key), missing.cast(df.schema[key].dataType))


def _column(name: str) -> Column:
    """A column by its very name, also when the name has dots or blanks."""
    return F.col("`" + name.replace("`", "``") + "`")
