"""Markers: made, read, and told from control records that are none."""

import pytest

from headrace.records import (
    ControlType,
    CorruptBatch,
    Record,
    build_batch,
    build_marker,
    control_type_of,
    header_at,
    marker_in,
    records_of,
)
from headrace.records.batch import assemble


@pytest.mark.parametrize("kind", ControlType)
def test_a_marker_says_who_ends_what(kind):
    batch = build_marker(kind, producer_id=2**40, producer_epoch=5, coordinator_epoch=2**31 - 1, timestamp=123)
    header = header_at(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 5, -1)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (123, 123, 1)
    assert control_type_of(batch) == (kind, 2**31 - 1)
    assert marker_in(records_of(batch)[0]) == (kind, 2**31 - 1)


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 100])
def test_other_control_records_end_no_transaction(kind):
    """A KRaft log has leader-change and snapshot records."""
    batch = build_batch([Record(0, 1, b"\0\0" + kind.to_bytes(2, "big"), b"anything")])
    assert control_type_of(batch) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"\0\0\0\0\0\0"), (b"\0\0\0", b"\0" * 6), (b"\0\0\0\1", None), (b"\0\0\0\0", b"\0\0\0")]
)
def test_a_control_record_that_is_cut_short_is_corrupt(key, value):
    with pytest.raises(CorruptBatch, match="control record does not decode"):
        marker_in(Record(0, 0, key, value))


def test_a_marker_whose_record_compaction_took_ends_nothing():
    """The batch stays for its producer's epoch; reading it back must not fail, or the log cannot be opened again."""
    header = header_at(
        build_marker(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    )
    assert control_type_of(assemble(header._replace(record_count=0), b"")) is None
