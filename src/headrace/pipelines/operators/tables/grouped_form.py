"""The rows of groups in the form of changes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.pipelines.operators.tables.form import TIME, VERSION, WEIGHT, row_names
from headrace.pipelines.operators.tables.grouped_rows import REVISION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TABLE: Final = "group"
"""The table that versions of groups name."""


def in_form(frame: "DataFrame", by: Sequence[str]) -> "DataFrame":
    """A frame with `_weight`, `_revision` and `_time`, with the version of each group instead of the revision."""
    own = [f"`{name}`" for name in row_names(frame.columns) if name != REVISION]
    return frame.select(*own, WEIGHT, group_version(by, REVISION).alias(VERSION), TIME)


def group_version(by: Sequence[str], revision: str) -> "Column":
    """The version of a group: its key as JSON, and a number that grows."""
    from pyspark.sql import functions as fn

    key = fn.to_json(fn.struct(*(fn.col(f"`{name}`") for name in by)), {"ignoreNullFields": "false"})
    return fn.struct(
        fn.lit(TABLE).alias("table"),
        (key if by else fn.lit("{}")).alias("key"),
        fn.col(revision).cast("bigint").alias("offset"),
        fn.lit(None).cast("string").alias("lsn"),
    )
