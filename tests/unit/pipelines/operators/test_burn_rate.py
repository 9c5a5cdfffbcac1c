"""Error budgets over several windows, against sums over lists."""

from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.operators.burn_rate import Burning, Pair, burn_rate
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner

MINUTE = 60_000_000
SCHEMA = pa.schema([("k", pa.string()), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP),
                    ("good", pa.int64()), ("total", pa.int64())])  # fmt: skip
PAIRS = (Pair(2 * MINUTE, 5 * MINUTE, Fraction(10)), Pair(5 * MINUTE, 10 * MINUTE, Fraction(2)))


def runner() -> MemoryRunner:
    operator = Burning("good", "total", Fraction(1, 100), PAIRS, tuple(SCHEMA.names[1:]), SCHEMA)
    return MemoryRunner(operator, by=["k"], schema=SCHEMA, buckets=2)


def row(minute: int, bad: int, total: int, key: str = "a") -> dict[str, Any]:
    edges = {"window_start": minute * MINUTE, "window_end": (minute + 1) * MINUTE}
    return {"k": key, **edges, "good": total - bad, "total": total}


def emitted(stream: MemoryRunner, *rows: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    found = stream.batch(list(rows), watermark_us=MINUTE).to_pylist()
    return {(each["k"], round(each["window_start"].timestamp()) // 60): each for each in found}


def test_a_window_ends_where_its_result_does_and_begins_a_length_before() -> None:
    out = emitted(runner(), row(0, 50, 100), *(row(minute, 0, 100) for minute in range(1, 6)), row(1, 7, 7, "b"))
    assert [out["a", minute]["burn_2m"] for minute in range(4)] == [50.0, 25.0, 0.0, 0.0]
    assert out["a", 4]["burn_5m"] == 10.0
    assert out["a", 5]["burn_5m"] == 0.0, "the first minute has left five minutes, to the microsecond"
    assert out["a", 5]["burn_10m"] == pytest.approx(50 / 600 * 100)
    assert (out["a", 1]["alert_2m_5m"], out["a", 2]["alert_2m_5m"]) == (True, False)
    assert (out["b", 1]["burn_2m"], out["b", 1]["alert"]) == (100.0, True)


def test_a_burn_at_the_threshold_is_no_alert() -> None:
    out = emitted(runner(), row(0, 10, 100), row(1, 10, 100), row(20, 11, 100))
    assert (out["a", 1]["burn_2m"], out["a", 1]["alert_2m_5m"]) == (10.0, False)
    assert out["a", 20]["alert_2m_5m"]


def test_without_traffic_nothing_burns() -> None:
    out = emitted(runner(), row(0, 0, 0), row(30, 0, 0))
    assert all(each["burn_2m"] == each["burn_10m"] == 0.0 and not each["alert"] for each in out.values())
    more = row(31, 0, 0) | {"good": 5, "total": 3}
    assert emitted(runner(), more)["a", 31]["burn_2m"] == 0.0, "more good ones than there are"


@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 4), st.integers(0, 6), st.sampled_from("ab")),
                unique_by=lambda one: (one[0], one[3])), st.integers(1, 5))  # fmt: skip
def test_against_sums_over_lists(windows: list[tuple[int, int, int, str]], size: int) -> None:
    windows = sorted(windows)
    stream = runner()
    out: dict[tuple[str, int], dict[str, Any]] = {}
    for at in range(0, len(windows), size):
        batch = [row(minute, min(bad, total), total, key) for minute, bad, total, key in windows[at : at + size]]
        out |= emitted(stream, *batch)
    for minute, _, _, key in windows:
        for length in (2, 5, 10):
            inside = [(min(b, t), t) for m, b, t, k in windows if k == key and minute + 1 - length <= m <= minute]
            bad, total = (sum(each) for each in zip(*inside, strict=True))
            assert out[key, minute][f"burn_{length}m"] == pytest.approx(bad / total * 100 if total else 0)
        alert = all(out[key, minute][f"burn_{length}m"] > 10 + 1e-9 for length in (2, 5))
        assert out[key, minute]["alert_2m_5m"] == alert
    assert len(out) == len(windows)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"windows": []}, "burn_rate has no windows"),
        ({"windows": [("1h", "5m", 2.0)]}, "'1h' is not shorter than '5m'"),
        ({"windows": [("5m", "2h")]}, "say above which burn '5m' and '2h' are an alert"),
        ({"objective": 99.9}, "objective is 99.9"),
        ({"by": "alert"}, "'alert' is a column of the result"),
    ],
)
def test_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(PipelineError) as error:
        burn_rate(good="good", total="total", **options)
    assert why in str(error.value)
