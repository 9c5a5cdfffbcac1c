"""Time that goes on at an idle source."""

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, DataType, LongType, StructField, StructType, TimestampType

from headrace.pipelines.errors import BadOption
from headrace.pipelines.source.idle import Silence, check_idle, idle_row, stamp_of, without_stamp
from headrace.pipelines.source.options import read_options

PLACE = {"orders": {"0": 5}}
GIVEN = {"bootstrap": "here:1", "subscribe": "orders", "format": "json"}


def test_a_silent_source_is_stamped_after_a_while_and_again_after_another() -> None:
    silence = Silence(10)
    assert silence.stamped(PLACE, PLACE, now_s=0, wall_ms=1000) == PLACE
    assert silence.stamped(PLACE, PLACE, now_s=9.9, wall_ms=10_900) == PLACE
    first = silence.stamped(PLACE, PLACE, now_s=10, wall_ms=11_000)
    assert stamp_of(first) == 11_000
    assert without_stamp(first) == PLACE
    assert silence.stamped(first, PLACE, now_s=19, wall_ms=20_000) == first
    assert stamp_of(silence.stamped(first, PLACE, now_s=20, wall_ms=21_000)) == 21_000


def test_records_begin_the_wait_anew_and_keep_the_stamp() -> None:
    silence, more = Silence(10), {"orders": {"0": 6}}
    silence.stamped(PLACE, PLACE, now_s=0, wall_ms=0)
    stamped = silence.stamped(PLACE, PLACE, now_s=10, wall_ms=10_000)
    moved = silence.stamped(stamped, more, now_s=19, wall_ms=19_000)
    assert (without_stamp(moved), stamp_of(moved)) == (more, 10_000)
    assert silence.stamped(moved, more, now_s=28, wall_ms=28_000) == moved
    assert stamp_of(silence.stamped(moved, more, now_s=29, wall_ms=29_000)) == 29_000


def test_a_clock_that_was_put_back_does_not_put_time_back() -> None:
    silence = Silence(1)
    start = PLACE | {"(idle)": {"ms": 50_000}}
    silence.stamped(start, PLACE, now_s=0, wall_ms=10_000)
    assert stamp_of(silence.stamped(start, PLACE, now_s=1, wall_ms=11_000)) == 50_000


def test_the_row_has_the_time_and_nothing_else() -> None:
    arrow = pa.schema([("shop", pa.string()), ("at", pa.timestamp("us", "UTC")), ("_idle", pa.bool_())])
    (batch,) = idle_row(1_500, arrow, "at")
    (row,) = batch.to_pylist()
    assert (row["shop"], row["_idle"], row["at"].timestamp()) == (None, True, 1.5)


@pytest.mark.parametrize(
    ("columns", "given", "said"),
    [
        ({"at": TimestampType(), "_idle": BooleanType()}, {"idleTimeout": "5"}, "eventTimeColumn has to name"),
        (
            {"at": TimestampType(), "_idle": BooleanType()},
            {"idleTimeout": "5", "eventTimeColumn": "on"},
            "no column 'on'",
        ),
        ({"at": TimestampType()}, {"idleTimeout": "5", "eventTimeColumn": "at"}, "add '_idle boolean'"),
        (
            {"at": LongType(), "_idle": BooleanType()},
            {"idleTimeout": "5", "eventTimeColumn": "at"},
            "declare it as timestamp",
        ),
    ],
)
def test_mistakes_are_told(columns: dict[str, DataType], given: dict[str, str], said: str) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    with pytest.raises(BadOption, match=said):
        check_idle(schema, read_options(GIVEN | given))
