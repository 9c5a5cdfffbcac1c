"""Arrow as COPY text."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.stores.postgres.batch import copy_text

NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)


def text(column: pa.Array, prefix: str = "") -> str:
    return bytes(copy_text(pa.RecordBatch.from_arrays([column], ["c"]), prefix)).decode()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, -3]), "1\n\\N\n-3\n"),
        (pa.array([True, False, None]), "true\nfalse\n\\N\n"),
        (pa.array(["", None, "a\tb", "\\N", "x\r\ny", "ä"]), "\n\\N\na\\tb\n\\\\N\nx\\r\\ny\nä\n"),
        (pa.array([b"\x00\xff", b"", None]), "\\\\x00ff\n\\\\x\n\\N\n"),
        (pa.array([float("nan"), float("-inf"), 0.1]), "nan\n-inf\n0.1\n"),
        (pa.array([Decimal("-0.10"), None], pa.decimal128(10, 2)), "-0.10\n\\N\n"),
        (pa.array([date(1, 1, 1)]), "0001-01-01\n"),
        (pa.array([NOON], pa.timestamp("us", "Europe/Paris")), "2024-07-01 12:00:00.000000+00\n"),
        (pa.array([[1, None], [], None], pa.list_(pa.int64())), '{"1",NULL}\n{}\n\\N\n'),
        (pa.array([['a"b', "c\\d", "NULL"]]), '{"a\\\\"b","c\\\\\\\\d","NULL"}\n'),
    ],
)  # fmt: skip
def test_values(column: pa.Array, expected: str) -> None:
    assert text(column) == expected
    # A slice begins in the middle of the buffers.
    padded = pa.concat_arrays([column.slice(0, 1), column, column.slice(0, 1)]).slice(1, len(column))
    assert text(padded) == expected


def test_columns_and_prefix() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, None], "b": ["x", None]})
    assert bytes(copy_text(batch, "7\t")) == b"7\t1\tx\n7\t\\N\t\\N\n"
    assert copy_text(batch.slice(0, 0)) == b""
