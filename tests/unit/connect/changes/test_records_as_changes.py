"""No record of a topic harms its reader, and what it says can be written as JSON."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.avro.reading import AvroReader
from headrace.connect.changes.row_change import OPERATIONS
from headrace.connect.changes.topic import RecordReader
from headrace.connect.sync.decoding import RecordFormat
from headrace.records import Record
from tests.unit.connect.avro.avro_records import Schemas, change, write

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


def test_half_a_letter_in_json_can_be_written() -> None:
    half = b'{"\\ud800": ["a\\udfff", "\\ud83d\\ude00"]}'
    envelope = b'{"op": "c", "after": %b, "source": {"table": "\\ud800", "txId": "\\ud800"}}' % half
    for value in (half, envelope):
        shown = RecordReader("t").change_in(Record(0, 0, half, value)).as_json()
        assert shown["key"] == shown["after"] == {"\ufffd": ["a\ufffd", "\U0001f600"]}
        json.dumps(shown, ensure_ascii=False).encode()


def test_a_value_that_is_no_envelope_is_a_row_even_if_it_looks_like_one() -> None:
    reader = RecordReader("t")
    for row in ({"op": "d"}, {"op": "c", "after": 1}, {"op": ["c"], "after": {}, "ts_ms": 1}, {"op": {}, "source": {}}):
        change = reader.change_in(Record(0, 0, b"k", json.dumps(row).encode()))
        assert (change.op, change.after) == ("c", row)


def test_an_envelope_is_the_same_change_in_avro_as_in_json() -> None:
    schemas = Schemas()
    old, new = ("1", "ann", None), ("1", "anne", None)
    written = write(schemas, change("c", None, old), change("u", old, new), change("d", new))
    reader = RecordReader("t", is_compacted=True, form=RecordFormat(format="avro", reader=AvroReader(schemas.text)))
    found = [reader.change_in(Record(0, 5, each.key, each.value)) for each in written]
    before, after = ({"id": 1, "name": name, "secret": None} for name in ("ann", "anne"))
    assert [(one.op, one.table, one.key, one.before, one.after) for one in found] == [
        ("c", "public.people", {"id": 1}, None, before),
        ("u", "public.people", {"id": 1}, before, after),
        ("d", "public.people", {"id": 1}, after, None),
        ("d", "t", {"id": 1}, None, None),
    ]
    assert found[0].ts_us == 1_600_000_000_000_001
