"""What an enrichment set aside, counted in the query's progress."""

from itertools import count
from typing import TYPE_CHECKING

from headrace.pipelines.observed import LATE_ROWS
from headrace.pipelines.operators.stragglers import ASIDE, LATE, NO_TIME, Stragglers
from headrace.pipelines.operators.tables.enrich_sides import LATE_CHANGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_numbers = count(1)


def counted(frame: "DataFrame", choice: Stragglers) -> "DataFrame":
    """Answers, and with `side_output()` late events; the table's late changes are in the answers and only counted."""
    from pyspark.sql import functions as fn

    rows, reason = fn.col(f"{ASIDE}.rows"), fn.col(f"{ASIDE}.reason")
    names = {LATE: "late", NO_TIME: "no_time", LATE_CHANGE: "late_changes"}
    sums = [fn.coalesce(fn.sum(fn.when(reason == why, rows)), fn.lit(0)).alias(name) for why, name in names.items()]
    observed = frame.observe(f"{LATE_ROWS}.enrich.{next(_numbers)}", *sums)
    if choice.hands_on:
        return observed.where(f"{ASIDE} IS NULL OR {ASIDE}.row IS NOT NULL")
    return observed.where(f"{ASIDE} IS NULL").drop(ASIDE)
