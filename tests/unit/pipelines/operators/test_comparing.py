"""Results compared with earlier ones."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines.operators.compare import Comparing, Comparison
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner

HOUR = 3_600_000_000
SCHEMA = pa.schema([("k", pa.string()), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP), ("n", pa.int64())])


def runner(rolling: int | None = None, history: int = 100) -> MemoryRunner:
    comparisons = (Comparison("previous", None), Comparison("yesterday", 24 * HOUR))
    operator = Comparing("n", comparisons, history * HOUR, rolling and rolling * HOUR, SCHEMA.names[1:], SCHEMA)
    return MemoryRunner(operator, by=["k"], schema=SCHEMA, buckets=2)


def row(hour: int, n: int | None, key: str = "a") -> dict[str, Any]:
    return {"k": key, "window_start": hour * HOUR, "window_end": (hour + 1) * HOUR, "n": n}


def answered(stream: MemoryRunner, *rows: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    found = stream.batch(list(rows), watermark_us=HOUR).to_pylist()
    return {(each["k"], round(each["window_start"].timestamp()) // 3600): each for each in found}


def test_previous_and_yesterday() -> None:
    stream = runner()
    out = answered(stream, row(2, 30), row(0, 10), row(1, 20), row(0, 7, "b"))
    assert [out["a", hour]["previous_value"] for hour in range(3)] == [None, 10.0, 20.0]
    assert out["a", 2]["previous_difference"] == 10.0
    assert out["a", 2]["previous_ratio"] == 1.5
    assert out["b", 0]["previous_value"] is None
    out = answered(stream, row(24, 5), row(26, 60), row(25, 0))
    assert [out["a", hour]["yesterday_value"] for hour in (24, 25, 26)] == [10.0, 20.0, 30.0]
    assert out["a", 24]["yesterday_ratio"] == 0.5
    assert out["a", 26]["previous_ratio"] is None, "a ratio to nothing"
    assert out["a", 26]["previous_difference"] == 60.0


def test_a_missing_window_is_missing() -> None:
    stream = runner()
    answered(stream, row(0, 10), row(5, 50))
    out = answered(stream, row(24, 1), row(25, 1), row(27, None))
    assert out["a", 24]["previous_value"] == 50.0
    assert out["a", 25]["yesterday_value"] is None
    assert out["a", 27]["previous_value"] == 1.0
    assert out["a", 27]["previous_difference"] is None


def test_z_score_rate_and_rolling_average() -> None:
    stream = runner(rolling=3)
    out = answered(stream, *(row(hour, n) for hour, n in enumerate([10, 12, 14, 12, 30])))
    assert out["a", 1]["z_score"] is None
    assert out["a", 4]["z_score"] == pytest.approx((30 - 12) / (8 / 3) ** 0.5)
    assert out["a", 4]["rolling_average"] == pytest.approx((14 + 12 + 30) / 3)
    assert out["a", 4]["rate_per_second"] == pytest.approx(30 / 3600)


def test_history_is_bounded() -> None:
    stream = runner(history=2)
    answered(stream, *(row(hour, 1) for hour in range(100)))
    assert len(stream.state("history")) == 25
    assert stream.state("pending") == []
