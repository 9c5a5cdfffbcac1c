"""What Spark's plan of a DataFrame says; Spark shows it nowhere else."""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATEFUL: Final = (
    "TransformWithState",
    "FlatMapGroups",
    "Aggregate",
    "Deduplicate",
    "Distinct",
    "Join",
    "GlobalLimit",
)


def has_watermark(frame: "DataFrame") -> bool:
    """Whether any of its inputs has a watermark."""
    return "EventTimeWatermark" in _plan(frame)


def stateful_step(frame: "DataFrame") -> str | None:
    """A step of a stream that keeps state, and so may have held rows until the watermark passed; None without one."""
    if not frame.isStreaming:
        return None
    steps = re.findall(r"^\W*(\w+)", _plan(frame), re.MULTILINE)
    return next((name for name in _STATEFUL for step in steps if step.startswith(name)), None)


def _plan(frame: "DataFrame") -> str:
    return str(frame._jdf.queryExecution().analyzed().toString())  # noqa: SLF001
