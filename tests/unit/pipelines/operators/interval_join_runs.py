"""Small runs of a join over keyed state: rows as tuples of side, key, second and number; answers likewise."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from headrace.pipelines.operators.joins.interval import IS_LEFT, LEFT, RIGHT, TIME, IntervalJoin
from headrace.pipelines.operators.joins.sides import Bounds
from headrace.pipelines.operators.stragglers import Stragglers, drop
from headrace.pipelines.operators.times import TIMESTAMP as STAMP
from tests.keyed_memory import MemoryRunner

SECOND = 1_000_000
ROW = pa.struct([("x", pa.int64())])
SCHEMA = pa.schema([("k", pa.string()), (TIME, STAMP), (IS_LEFT, pa.bool_()), (LEFT, ROW), (RIGHT, ROW)])
Given = tuple[str, str | None, int | None, int]
Answer = tuple[Any, ...]


def rows(given: Iterable[Given]) -> list[dict[str, Any]]:
    """Rows of the two streams as the operator gets them."""
    return [
        {
            "k": key,
            TIME: None if second is None else second * SECOND,
            IS_LEFT: side == "left",
            LEFT: {"x": x} if side == "left" else None,
            RIGHT: {"x": x} if side == "right" else None,
        }
        for side, key, second, x in given
    ]


class Joined:
    """A join fed by the second."""

    def __init__(self, how: str, low: int, high: int, choice: Stragglers | None = None, **options: Any) -> None:
        operator = IntervalJoin(how, Bounds(low * SECOND, high * SECOND), choice or drop(), ROW, ROW)
        self.runner = MemoryRunner(operator, by=["k"], schema=SCHEMA, **options)
        self.aside: list[dict[str, Any]] = []

    def batch(self, *given: Given, watermark: int | None = None) -> list[Answer]:
        """What comes out, sorted: key, left number, right number, and with corrections whether it is taken back."""
        at = None if watermark is None else watermark * SECOND
        found = self.runner.batch(rows(given), watermark_us=at).to_pylist()
        self.aside += [row["_aside"] for row in found if row["_aside"] is not None]
        return sorted((_answer(row) for row in found if row["_aside"] is None), key=repr)

    @property
    def kept(self) -> int:
        """How many rows are in state."""
        return sum(len(self.runner.state(side)) for side in ("left", "right"))


def _answer(row: dict[str, Any]) -> Answer:
    sides = [row[name] and row[name]["x"] for name in (LEFT, RIGHT) if name in row]
    return (row["k"], *sides, *([row["retracted"]] if "retracted" in row else []))
