"""Clocks of devices that are wrong, and networks that are slow now and then."""

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.operators.correct_clock import ClockOffsets
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner

SECOND = 1_000_000
HOUR = 3600 * SECOND
SCHEMA = pa.schema([("device", pa.string()), ("event", TIMESTAMP), ("sent", TIMESTAMP), ("received", TIMESTAMP)])


def runner(window: int = HOUR, least_delay: int = 0, buckets: int = 2) -> MemoryRunner:
    carried = ("event", "sent", "received")
    operator = ClockOffsets("event", "sent", "received", window, least_delay, carried, SCHEMA)
    return MemoryRunner(operator, by=["device"], schema=SCHEMA, buckets=buckets)


def row(device: str, received: int | None, offset: int, delay: int, age: int = 0) -> dict[str, Any]:
    """A row of a device whose clock is behind by `offset`, so long on its way, sent so long after the event."""
    sent = None if received is None else received - delay - offset
    return {"device": device, "event": None if sent is None else sent - age, "sent": sent, "received": received}


def micros(value: Any) -> int:
    return int(pa.scalar(value, TIMESTAMP).value)


def test_the_fastest_row_tells_the_offset() -> None:
    stream = runner()
    given = [row("a", 10 * SECOND, -HOUR, 900), row("a", 20 * SECOND, -HOUR, 50), row("a", 30 * SECOND, -HOUR, 70_000)]
    out = stream.batch(given).to_pylist()
    assert [found["clock_offset_us"] for found in out] == [-HOUR + 900, -HOUR + 50, -HOUR + 50]
    assert out[0]["clock_error_us"] is None
    assert [micros(found["corrected_time"]) - micros(found["event"]) for found in out] == [-HOUR + 900] + [
        -HOUR + 50
    ] * 2


def test_devices_are_apart_and_old_rows_are_forgotten() -> None:
    stream = runner(window=10 * SECOND)
    stream.batch([row("a", 0, 5 * SECOND, 10), row("b", 0, -5 * SECOND, 20)])
    out = stream.batch([row("a", 9 * SECOND, 5 * SECOND, 500), row("b", 30 * SECOND, -5 * SECOND, 700)]).to_pylist()
    assert {found["device"]: found["clock_offset_us"] for found in out} == {
        "a": 5 * SECOND + 10,
        "b": -5 * SECOND + 700,
    }


def test_missing_times() -> None:
    stream = runner()
    out = stream.batch([row("a", None, 0, 0), row("a", 5 * SECOND, 100, 10) | {"event": None}]).to_pylist()
    assert [found["corrected_time"] for found in out] == [None, None]
    assert sorted(found["clock_offset_us"] or 0 for found in out) == [0, 110]


def test_the_known_part_of_the_way_is_taken_off() -> None:
    out = runner(least_delay=40).batch([row("a", SECOND, 1000, 40)]).to_pylist()
    assert out[0]["clock_offset_us"] == 1000


def test_the_error_is_about_as_large_as_it_says() -> None:
    random = np.random.default_rng(7)
    errors, told = [], []
    for trial in range(60):
        stream = runner()
        delays = random.exponential(20_000, 30).astype(int)
        given = [row("a", (trial + at) * SECOND, 123_456, int(delay)) for at, delay in enumerate(delays)]
        last = stream.batch(given).to_pylist()[-1]
        errors.append(last["clock_offset_us"] - 123_456)
        told.append(last["clock_error_us"])
    assert min(errors) >= 0
    assert 0.6 < np.mean(errors) / np.mean(told) < 1.6


def test_in_order_results_do_not_depend_on_batches() -> None:
    random = np.random.default_rng(3)
    given = [row(str(random.choice(["a", "b"])), at * SECOND, 777, int(random.exponential(9_000))) for at in range(200)]
    whole = runner(60 * SECOND).batch(given).to_pylist()
    stream, pieces = runner(60 * SECOND, buckets=3), []
    for at in range(0, 200, 7):
        pieces += stream.batch(given[at : at + 7]).to_pylist()
    # Stretches of time are remembered as one, so what leaves the window leaves it a little later or sooner.
    apart = {(one["device"], one["received"]): one["clock_offset_us"] for one in whole}
    close = [abs(apart[one["device"], one["received"]] - one["clock_offset_us"]) for one in pieces]
    assert len(pieces) == 200
    assert np.median(close) == 0
    assert max(close) < 9_000
