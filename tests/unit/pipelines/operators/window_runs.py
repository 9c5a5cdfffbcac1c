"""Small runs of window operators: rows as tuples, answers as tuples."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.string()), ("t", TIMESTAMP), ("x", pa.int64())])


def rows(*given: tuple[str, int | None, int | None]) -> list[dict[str, Any]]:
    """Rows of key, second and number."""
    return [{"k": key, "t": None if second is None else second * SECOND, "x": x} for key, second, x in given]


def seconds(value: Any) -> Any:
    """A time as seconds since 1970."""
    return round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) if isinstance(value, datetime) else value


class Stream:
    """An operator fed by the second."""

    def __init__(self, operator: Any) -> None:
        self.runner = MemoryRunner(operator, by=["k"], schema=SCHEMA, buckets=2)

    def batch(
        self, *given: tuple[str, int | None, int | None], watermark: int | None = None, wall: int | None = None
    ) -> list[dict[str, Any]]:
        """What comes out, times in seconds."""
        found = self.runner.batch(
            rows(*given),
            watermark_us=None if watermark is None else watermark * SECOND,
            wall_us=None if wall is None else wall * SECOND,
        )
        return [{name: seconds(value) for name, value in row.items()} for row in found.to_pylist()]


def told(out: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Some columns of results, sorted."""
    chosen = ("k", "window_start", *names)
    return sorted(tuple(row[name] for name in chosen) for row in out if row["_aside"] is None)


def aside(out: list[dict[str, Any]]) -> dict[str, int]:
    """How many rows were set aside, by reason."""
    found: dict[str, int] = {}
    for row in out:
        if row["_aside"] is not None:
            found[row["_aside"]["reason"]] = found.get(row["_aside"]["reason"], 0) + row["_aside"]["rows"]
    return found
