"""Many records to the last change of each key."""

import json
import random
from typing import Any

from headrace.connect.sync.decoding import RecordFormat
from headrace.connect.sync.reduction import LogRecord, each_change, reduce_records
from headrace.connect.table import UNAVAILABLE_TEXT
from headrace.records import Record

FORM = RecordFormat()


def record(offset: int, key: int, value: Any, partition: int = 0) -> LogRecord:
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return LogRecord(partition, Record(offset, 1000 + offset, json.dumps({"id": key}).encode(), data))


def put(offset: int, key: int, row: dict[str, Any], before: dict[str, Any] | None = None) -> LogRecord:
    return record(offset, key, {"op": "u", "before": before, "after": {"id": key, **row}})


def test_the_last_change_of_each_key_is_left() -> None:
    random_ = random.Random(5)
    records, expected = [], {}
    for offset in range(500):
        key = random_.randrange(20)
        if random_.random() < 0.3:
            records.append(record(offset, key, None))
            expected[key] = (offset, None)
        else:
            records.append(put(offset, key, {"n": offset}))
            expected[key] = (offset, {"id": key, "n": offset})
    reduced = reduce_records(records, FORM)
    assert not reduced.broken
    assert {change.key["id"]: (change.offset, change.row) for change in reduced.changes} == expected


def test_a_broken_record_leaves_the_one_before_it() -> None:
    reduced = reduce_records([put(0, 1, {"n": 1}), record(1, 1, b"broken"), record(2, 2, b"broken")], FORM)
    assert [(change.offset, change.row) for change in reduced.changes] == [(0, {"id": 1, "n": 1})]
    assert sorted(found.record.offset for found in reduced.broken) == [1, 2]


def test_a_broken_record_that_was_replaced_is_not_looked_at() -> None:
    reduced = reduce_records([record(0, 1, b"broken"), put(1, 1, {"n": 1})], FORM)
    assert not reduced.broken
    assert len(reduced.changes) == 1


def test_values_that_were_not_sent_again_come_from_the_records_before() -> None:
    reduced = reduce_records([put(0, 1, {"n": 1, "t": "long"}), put(1, 1, {"n": 2, "t": UNAVAILABLE_TEXT})], FORM)
    (change,) = reduced.changes
    assert (change.row, change.partial) == ({"id": 1, "n": 2, "t": "long"}, False)


def test_or_from_the_row_before_the_change() -> None:
    before = {"id": 1, "n": 1, "t": "long"}
    (change,) = reduce_records([put(1, 1, {"n": 2, "t": UNAVAILABLE_TEXT}, before)], FORM).changes
    assert (change.row, change.partial) == ({"id": 1, "n": 2, "t": "long"}, False)


def test_or_else_the_row_is_partial() -> None:
    (change,) = reduce_records([put(1, 1, {"n": 2, "t": UNAVAILABLE_TEXT})], FORM).changes
    assert (change.row, change.partial) == ({"id": 1, "n": 2}, True)


def test_a_row_that_was_deleted_in_between_tells_nothing() -> None:
    records = [put(0, 1, {"t": "old"}), record(1, 1, None), put(2, 1, {"t": UNAVAILABLE_TEXT})]
    (change,) = reduce_records(records, FORM).changes
    assert (change.row, change.partial) == ({"id": 1}, True)


def test_a_key_that_went_on_in_another_partition() -> None:
    """Records come in the order of the source, so the last one counts wherever it stands."""
    reduced = reduce_records([put(0, 1, {"n": 1}), record(0, 1, None, partition=1)], FORM)
    (change,) = reduced.changes
    assert (change.partition, change.row) == (1, None)


def test_every_change_but_the_tombstone_behind_a_delete() -> None:
    gone = {"op": "d", "before": {"id": 1}, "after": None}
    records = [put(0, 1, {"n": 1}), put(1, 1, {"n": 2}), record(2, 1, gone), record(3, 1, None), put(4, 1, {"n": 3})]
    changes = each_change(records, FORM).changes
    assert [(change.offset, change.row and change.row["n"]) for change in changes] == [
        (0, 1),
        (1, 2),
        (2, None),
        (4, 3),
    ]


def test_a_plain_row_gets_the_columns_of_its_key() -> None:
    found = LogRecord(0, Record(0, 0, b'{"id":5}', b'{"n":1}'))
    (change,) = reduce_records([found], RecordFormat(value="plain")).changes
    assert change.row == {"id": 5, "n": 1}
