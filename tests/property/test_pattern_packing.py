"""What is kept of keys is the same after it was packed into one row a key, whatever tables and values there are."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators.patterns.packing import Layout, Packed
from tests.property.storage_model import examples

TABLES = {
    "runs": pa.schema([("at", pa.int64()), ("small", pa.int16())]),
    "nodes": pa.schema(
        [("at", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("text", pa.string()), ("flag", pa.bool_())]
    ),
    "values": pa.schema(
        [("real", pa.float32()), ("sum", pa.decimal128(20, 3)), ("day", pa.date32()), ("bytes", pa.binary())]
    ),
}
# More columns than one whole number has bits.
TABLES["wide"] = pa.schema([(f"c{number}", pa.int64()) for number in range(130)])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OF_TYPE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.timestamp("us", "UTC"): st.integers(-(10**15), 10**15).map(lambda n: EPOCH + timedelta(microseconds=n)),
    pa.string(): st.text(max_size=3),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.decimal128(20, 3): st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-3)),
    pa.date32(): st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    pa.binary(): st.binary(max_size=3),
}


@st.composite
def kept(draw: st.DrawFn) -> tuple[int, dict[str, tuple[Any, pa.RecordBatch]]]:
    count = draw(st.integers(1, 4))
    found = {}
    for name, schema in TABLES.items():
        keys = sorted(draw(st.lists(st.integers(0, count - 1), max_size=6)))
        if name == "wide":
            nulls = st.sets(st.integers(0, len(schema) - 1), max_size=3)
            absent = [draw(nulls) for _ in keys]
            rows = [{f"c{n}": None if n in gone else n for n in range(len(schema))} for gone in absent]
        else:
            rows = [{field.name: draw(st.none() | OF_TYPE[field.type]) for field in schema} for _ in keys]
        found[name] = np.array(keys, np.int64), pa.RecordBatch.from_pylist(rows, schema=schema)
    return count, found


@examples(200)
@given(kept(), st.data())
def test_the_way_back(given_tables: tuple[int, dict[str, tuple[Any, pa.RecordBatch]]], data: st.DataObject) -> None:
    count, tables = given_tables
    layout = Layout(TABLES)
    packed = layout.pack(tables, count)
    some = sorted(data.draw(st.sets(st.sampled_from(range(len(packed.keys)))))) if len(packed.keys) else []
    chosen = pa.array(some, pa.int64())
    found = layout.unpack(Packed(packed.keys[some], packed.longs.take(chosen), packed.texts.take(chosen)))
    mine = set(packed.keys[some].tolist())
    for name, (key, rows) in tables.items():
        is_mine = [number in mine for number in key.tolist()]
        assert found[name][0].tolist() == [number for number in key.tolist() if number in mine]
        assert found[name][1].to_pylist() == rows.filter(pa.array(is_mine, pa.bool_())).to_pylist()
