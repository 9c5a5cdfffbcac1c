"""Keys of every type are told apart exactly, whatever their hashes, and come back as they were."""

import math
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.pipelines.keyed.keys import check_types, decode, distinct, encode
from headrace.pipelines.keyed.operator import BadKey

DAY = date(2026, 1, 2)
UTC = pa.timestamp("us", tz="UTC")
PAIR = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))])
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-1, 0, None]),
    "int16": (pa.int16(), [-300, 300, None]),
    "int32": (pa.int32(), [-(2**31), 0, None]),
    "int64": (pa.int64(), [-(2**63), 0, 1, None]),
    "float": (pa.float32(), [0.0, 1.5, math.nan, None]),
    "double": (pa.float64(), [0.0, 1.5, math.nan, math.inf, None]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.20"), Decimal("-1.20"), None]),
    "string": (pa.string(), ["", "a", "a\0", "a\0b", "é", None]),
    "large string": (pa.large_string(), ["", "a", None]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", None]),
    "date": (pa.date32(), [DAY, date(1960, 1, 1), None]),
    "timestamp": (UTC, [0, 1, -1, None]),
    "timestamp_ntz": (pa.timestamp("us"), [0, 1, None]),
    "interval": (pa.duration("us"), [timedelta(0), timedelta(microseconds=1), None]),
    "void": (pa.null(), [None]),
    "list": (pa.list_(pa.string()), [[], [None], ["a"], ["a", "b"], ["ab"], None]),
    "list of dates": (pa.list_(pa.date32()), [[DAY], [], None]),
    "struct": (PAIR, [{"a": 1, "b": [1.0]}, {"a": 1, "b": None}, {"a": None, "b": []}, None]),
    "struct of decimals": (pa.struct([("d", pa.decimal128(5, 1))]), [{"d": Decimal("1.5")}, {"d": None}, None]),
}


@pytest.mark.parametrize("hashes", ["apart", "all one"])
@pytest.mark.parametrize("name", COLUMNS)
def test_each_type_is_exact_and_comes_back(name: str, hashes: str) -> None:
    kind, values = COLUMNS[name]
    order = [*range(len(values)), *reversed(range(len(values))), *range(len(values))]
    rows = pa.RecordBatch.from_arrays([pa.array([values[place] for place in order], kind)], names=["key"])
    begin = len(values) - 1  # an offset into Arrow's buffers
    rows = rows.slice(begin)
    check_types(rows.schema)
    made = np.array(order[begin:]) if hashes == "apart" else np.zeros(rows.num_rows)
    keys, numbers = distinct(encode(rows, made.astype(np.int64)))
    assert len(keys) == len(values)
    back = decode(keys, rows.schema)
    assert back.schema == rows.schema
    again = back.take(pa.array(numbers))["key"]
    assert repr(again.to_pylist()) == repr(rows["key"].to_pylist())


def test_zero_has_no_sign_and_every_nan_is_one() -> None:
    odd_nan = np.array([0x7FF8000000000123], np.uint64).view(np.float64)[0]
    column = pa.array(np.array([0.0, -0.0, math.nan, odd_nan, -math.nan]))
    keys, numbers = distinct(encode(pa.RecordBatch.from_arrays([column], names=["key"]), np.zeros(5, np.int64)))
    assert len(keys) == 2
    assert numbers[0] == numbers[1]
    assert len({*numbers[2:].tolist()}) == 1


def test_columns_are_not_run_together() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["ab", "a", "a", None], "b": ["c", "bc", None, "a"]})
    keys, _ = distinct(encode(rows, np.zeros(4, np.int64)))
    assert len(keys) == 4


def test_keys_are_in_the_order_of_hashes() -> None:
    hashes = np.array([5, -7, 5, 2**62, -(2**62)])
    keys, numbers = distinct(encode(pa.RecordBatch.from_pydict({"a": [1, 2, 3, 4, 5]}), hashes))
    assert (np.diff(keys.hashes) >= 0).all()
    assert decode(keys, pa.schema([("a", pa.int64())]))["a"].take(pa.array(numbers)).to_pylist() == [1, 2, 3, 4, 5]


def test_a_map_is_no_key() -> None:
    with pytest.raises(BadKey, match="'tags' is map<string, string>, which cannot be compared: take a field of it"):
        check_types(pa.schema([("tags", pa.map_(pa.string(), pa.string()))]))
