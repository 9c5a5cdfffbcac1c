"""What holds around the levels: alarms, the cache, packing, and an operator's mistakes told at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.pipelines.errors import BadOption
from headrace.pipelines.keyed.apply import keyed
from headrace.pipelines.keyed.bucket import RunCache
from headrace.pipelines.keyed.checking import check_changes
from headrace.pipelines.keyed.keys import encode
from headrace.pipelines.keyed.operator import (
    NEVER,
    BadKey,
    BadOperator,
    Changes,
    Clock,
    Keyed,
    Plan,
    Rows,
    Timers,
    Times,
    Values,
)
from headrace.pipelines.keyed.packing import HASH, bucket_numbers, emit_cells, open_cells, pack, spark_hash, unpack
from headrace.pipelines.keyed.processor import alarm_ms
from headrace.pipelines.keyed.run import Run

CELL = pa.schema([("n", pa.int64())])
LATER = Times(5_000_000, 9_000_000)


@pytest.mark.parametrize(
    ("clock", "event_us", "wall_us", "expiring", "expected"),
    [
        (Clock.NONE, NEVER, NEVER, None, None),
        (Clock.EVENT, NEVER, NEVER, 7, None),
        (Clock.EVENT, 6_000_000, NEVER, None, 6000),
        (Clock.EVENT, 6_000_001, NEVER, None, 6001),
        (Clock.EVENT, 5_000_001, NEVER, 5000, 5001),
        (Clock.EVENT, 5_000_000, NEVER, None, 5000),
        (Clock.EVENT, 4_000_000, NEVER, 5000, 4999),
        (Clock.EVENT, -7, NEVER, None, 5000),
        (Clock.WALL, NEVER, NEVER, None, None),
        (Clock.WALL, NEVER, 9_500_000, None, 9500),
        (Clock.WALL, 99_000_000, 9_500_000, None, 9000),
        (Clock.WALL, 99_000_000, NEVER, 9000, 9001),
        (Clock.WALL, NEVER, 9_000_000, 8999, 9001),
        (Clock.WALL, NEVER, 9_500_000, 8999, 9500),
    ],
)
def test_one_alarm_stands_for_all_timers(
    clock: Clock, event_us: int, wall_us: int, expiring: int | None, expected: int | None
) -> None:
    assert alarm_ms(clock, event_us, wall_us, LATER, expiring) == expected


@pytest.mark.parametrize("at_us", [-7_000_000, -1, 0, 1])
@pytest.mark.parametrize("expiring", [None, 0])
def test_an_alarm_for_1970_or_before_does_not_go_off_before_there_is_a_watermark(
    at_us: int, expiring: int | None
) -> None:
    assert alarm_ms(Clock.EVENT, at_us, NEVER, Times(), expiring) == 1


def a_run(rows: int) -> Run:
    column = pa.RecordBatch.from_arrays([pa.array(np.arange(rows))], schema=CELL)
    keys = encode(column, np.arange(rows))
    return Run(keys, np.ones(rows, np.bool_), np.arange(1, rows + 1), column)


def test_the_cache_holds_what_was_used_last_and_no_more_than_it_may() -> None:
    size = a_run(100).size_bytes
    cache = RunCache(2 * size + 1)
    loaded: list[str] = []

    def load(identity: str) -> Run:
        loaded.append(identity)
        return a_run(100)

    for identity in ("a", "b", "a", "c", "a", "b"):
        cache.get(identity, load)
        assert cache.size_bytes <= cache.limit_bytes
    assert loaded == ["a", "b", "c", "b"]
    cache.put("large", a_run(10_000))
    assert cache.size_bytes == 0


@pytest.mark.parametrize("buckets", [1, 3, 400])
def test_rows_find_their_bucket_and_their_order(buckets: int) -> None:
    numbers = np.arange(1000)
    hashes = (numbers * 7919 - 3000) % 501 - 250
    rows = pa.RecordBatch.from_pydict({"n": numbers, "text": [None, "a", ""] * 333 + ["z"], HASH: hashes})
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    packed = list(pack(buckets, schema)(iter([rows.slice(0, 300), rows.slice(0, 0), rows.slice(300)])))
    found = []
    for cell in (row for batch in packed for row in batch.to_pylist()):
        for its, part in open_cells([cell["packed"]], 10**6):
            assert {bucket_numbers(buckets)[home] for home in (its % buckets).tolist()} == {cell["bucket"]}
            assert part.schema.names == ["n", "text"]
            assert (np.diff(part["n"].to_numpy()) > 0).all()
            found += part.to_pylist()
    assert sorted(found, key=lambda row: row["n"]) == rows.select(["n", "text"]).to_pylist()


def test_a_time_zone_of_the_session_does_not_come_along() -> None:
    there, here = pa.timestamp("us", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC")
    rows = pa.RecordBatch.from_arrays([pa.array([7], there), pa.array([3])], names=["at", HASH])
    [packed] = pack(1, pa.schema([("at", here)]))(iter([rows]))
    [(_, part)] = open_cells([packed["packed"][0].as_py()], 10)
    assert part["at"].type == here
    assert part["at"].cast(pa.int64()).to_pylist() == [7]


def test_spark_deals_buckets_out_evenly() -> None:
    # As `select hash(0), hash(1)` says in Spark.
    assert spark_hash(np.array([0, 1], np.uint32)).tolist() == [933211791, -559580957]
    for partitions in (1, 2, 3, 4, 6, 8):
        homes = spark_hash(np.array(bucket_numbers(8), np.uint32)).astype(np.int64) % partitions
        counts = np.bincount(homes, minlength=partitions)
        assert counts.max() - counts.min() <= 1
    assert len(set(bucket_numbers(840))) == 840
    assert bucket_numbers(841) == tuple(range(841))


def test_what_is_emitted_is_cut_into_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipelines.keyed.packing._BYTES", 800)
    rows = pa.RecordBatch.from_pydict({"n": np.arange(1000)})
    cells = list(emit_cells(rows))
    assert len(cells) == 10
    back = list(unpack(iter([pa.RecordBatch.from_arrays([pa.array(cells, pa.binary())], names=["packed"])])))
    assert pa.Table.from_batches(back)["n"].to_pylist() == list(range(1000))


def test_a_call_gets_no_more_rows_than_it_should() -> None:
    rows = pa.RecordBatch.from_pydict({"n": np.arange(10), HASH: np.arange(10)})
    cells = list(emit_cells(rows)) * 5
    assert [part.num_rows for _, part in open_cells(cells, 20)] == [20, 20, 10]


PLAN = Plan(CELL, (Values("v", CELL), Rows("r", CELL, "n"), Values("t", CELL, "n")), Clock.EVENT)
ONE = np.zeros(1, np.int64)
TWO = np.zeros(2, np.int64)


def rows_of(*numbers: int | None, key: int = 0, name: str = "n") -> Keyed:
    batch = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=[name])
    return Keyed(np.full(len(numbers), key, np.int64), batch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda: Changes(emit=rows_of(1, name="m")), "emit has columns m int64, and the plan says n int64"),
        (lambda: Changes(emit=rows_of(1, key=3)), "emit has a key number outside 0…2"),
        (lambda: Changes(emit=Keyed(TWO, rows_of(1).rows)), "emit has 1 rows and 2 key numbers"),
        (lambda: Changes(put={"x": rows_of(1)}), "put names a table 'x' that the plan does not have"),
        (lambda: Changes(put={"r": rows_of(1)}), "put is not for table 'r', which is declared as Rows"),
        (lambda: Changes(append={"v": rows_of(1)}), "append is not for table 'v', which is declared as Values"),
        (lambda: Changes(append={"r": rows_of(None)}), "append 'r' has a null in 'n', the column that orders"),
        (lambda: Changes(delete={"v": ONE}, put={"v": rows_of(1)}), "both in put and delete of table 'v'"),
        (lambda: Changes(delete={"v": TWO}), "name a key twice"),
        (lambda: Changes(expire={"v": 1}), "table 'v' has no time to expire by"),
        (lambda: Changes(wall_timers=Timers(ONE, ONE)), "wall timers are set, and the plan's clock does not wake"),
        (lambda: Changes(event_timers=Timers(TWO, TWO)), "name a key twice"),
        (lambda: Changes(event_timers=Timers(ONE, TWO)), "event timers have 1 keys and 2 times"),
    ],
)
def test_a_mistake_of_an_operator_is_told(changes: Callable[[], Changes], message: str) -> None:
    with pytest.raises(BadOperator, match=message):
        check_changes(changes(), PLAN, 3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"by": "name"}, BadKey, r"by='name' is text: write by=\['name'\]"),
        ({"by": []}, BadKey, "by names no column"),
        ({"by": ["a"], "buckets": 0}, BadOption, "buckets=0: write a number from 1 to 32768"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        keyed(None, **options)  # type: ignore[arg-type]
