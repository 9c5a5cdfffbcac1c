"""No record of a topic harms its reader, and what it says can be written as JSON."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.changes.row_change import OPERATIONS
from headrace.connect.changes.topic import RecordReader
from headrace.records import Record

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENVELOPES = st.fixed_dictionaries(
    {"op": st.sampled_from([*OPERATIONS, "x", None, 7]), "source": VALUES, "ts_ms": VALUES},
    optional={"before": VALUES, "after": VALUES, "transaction": VALUES},
)
BYTES = st.none() | st.binary(max_size=30) | st.one_of(VALUES, ENVELOPES).map(lambda value: json.dumps(value).encode())
WRAPPED = ENVELOPES.map(lambda value: json.dumps({"schema": {"type": "struct"}, "payload": value}).encode())


@given(BYTES, BYTES | WRAPPED, st.booleans(), st.booleans(), st.sampled_from(["auto", "plain"]))
def test_any_record_is_one_change(
    key: bytes | None, value: bytes | None, is_compacted: bool, is_read: bool, form: str
) -> None:
    reader = RecordReader("t", is_compacted, form)
    record = Record(7, 1_700_000_000_000, key, value)
    change = reader.change_in(record, is_read=is_read)
    assert change.op in OPERATIONS
    assert isinstance(change.ts_us, int)
    shown: dict[str, Any] = json.loads(json.dumps(change.as_json()))
    assert shown["op"] == change.op
    if value is None:
        assert change.op == "d"
    assert isinstance(reader.is_delete(record), bool)


def test_a_value_that_is_no_envelope_is_a_row_even_if_it_looks_like_one() -> None:
    reader = RecordReader("t")
    for row in ({"op": "d"}, {"op": "c", "after": 1}, {"op": ["c"], "after": {}, "ts_ms": 1}, {"op": {}, "source": {}}):
        change = reader.change_in(Record(0, 0, b"k", json.dumps(row).encode()))
        assert (change.op, change.after) == ("c", row)
