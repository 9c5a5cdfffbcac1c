"""What a producer's batch is refused for: the class that says what the client is told, and a sentence that helps."""

import pytest

from headrace.records import (
    COPY_SEQUENCE,
    BatchTooLarge,
    Codec,
    ControlType,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    Record,
    Rules,
    UnsupportedFormat,
    build_batch,
    build_marker,
    header_at,
    validate,
)
from headrace.records.batch import assemble

NOW = 1_700_000_000_000
HOUR = 3_600_000


def _batch(**options):
    return build_batch([Record(n, NOW, b"k", b"v") for n in range(3)], **options)


def _altered(**fields):
    batch = _batch()
    return assemble(header_at(batch)._replace(**fields), batch[61:])


def test_good_batches_are_returned_with_their_places():
    one, two = _batch(), _batch(codec=Codec.ZSTD, producer_id=1, producer_epoch=0, base_sequence=0)
    assert validate(one + two, Rules(), NOW) == [(0, header_at(one)), (len(one), header_at(two))]
    for kind in (bytearray, memoryview):
        assert validate(kind(one), Rules(), NOW) == [(0, header_at(one))]


def test_nothing_is_no_batch():
    with pytest.raises(CorruptBatch, match="no record batch in the request"):
        validate(b"", Rules(), NOW)


def test_every_cut_is_noticed():
    batch = _batch()
    for size in range(1, len(batch)):
        with pytest.raises(CorruptBatch, match=r"too few for a header|are announced"):
            validate(batch[:size], Rules(), NOW)
        with pytest.raises(CorruptBatch, match=f"at byte {len(batch)}:"):
            validate(batch + batch[:size], Rules(), NOW)


def test_every_altered_byte_behind_the_prefix_is_noticed():
    batch = _batch()
    for at in range(16, len(batch)):
        wrong = bytearray(batch)
        wrong[at] ^= 0x40
        with pytest.raises((CorruptBatch, UnsupportedFormat)):
            validate(wrong, Rules(), NOW)
    wrong[at] ^= 0x40
    validate(wrong, Rules(), NOW)


def test_a_wrong_checksum_says_what_happened():
    wrong = bytearray(_batch())
    wrong[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum does not match: the batch was altered on its way"):
        validate(wrong, Rules(), NOW)


def test_old_formats_name_the_way_out():
    old = bytearray(_batch())
    old[16] = 1
    with pytest.raises(UnsupportedFormat, match="send with a client made since 2017"):
        validate(old, Rules(), NOW)


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_that_cannot_be(length):
    wrong = bytearray(_batch())
    wrong[8:12] = (length & 0xFFFFFFFF).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="shorter than a header"):
        validate(wrong, Rules(), NOW)


def test_too_large_names_the_setting():
    batch = _batch()
    assert validate(batch, Rules(max_batch_bytes=len(batch)), NOW)
    with pytest.raises(
        BatchTooLarge, match=r"over max.message.bytes=\d+: send smaller batches or raise the limit"
    ) as e:
        validate(batch, Rules(max_batch_bytes=len(batch) - 1), NOW)
    assert (e.value.size, e.value.limit) == (len(batch), len(batch) - 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 4},
        {"last_offset_delta": 1},
        {"record_count": 0, "last_offset_delta": -1},
    ],
)
def test_counts_that_do_not_agree(fields):
    with pytest.raises(InvalidRecord, match=r"counts -?\d records but its last offset delta is"):
        validate(_altered(**fields), Rules(), NOW)


def test_markers_are_the_coordinators_alone():
    marker = build_marker(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW)
    with pytest.raises(InvalidRecord, match="clients may not write control records: only the transaction coordinator"):
        validate(marker, Rules(), NOW)
    assert validate(marker, Rules(), NOW, from_client=False)


def test_copies_are_the_brokers_alone():
    copy = build_batch([Record(0, NOW, None, b"v")], base_sequence=COPY_SEQUENCE)
    with pytest.raises(InvalidRecord, match="the batch has the sequence -2, which only the broker writes: send -1"):
        validate(copy, Rules(), NOW)
    [(_, header)] = validate(copy, Rules(), NOW, from_client=False)
    assert header.is_copy


def test_log_append_time_is_the_brokers_alone():
    with pytest.raises(InvalidTimestamp, match="only the broker sets: send create time"):
        validate(_batch(log_append_time=True), Rules(), NOW)
    assert validate(_batch(log_append_time=True), Rules(), NOW, from_client=False)


@pytest.mark.parametrize("fields", [{"base_sequence": -1}, {"producer_epoch": -1}])
def test_a_producer_with_an_id_must_number_its_batches(fields):
    """Otherwise a batch that is sent twice would be appended twice; Kafka refuses it as well."""
    numbered = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    assert validate(_altered(**numbered), Rules(), NOW)
    with pytest.raises(InvalidRecord, match=r"producer 5 sent .*: an idempotent producer numbers its batches from 0"):
        validate(_altered(**{**numbered, **fields}), Rules(), NOW)
    assert validate(_altered(**{**numbered, **fields}), Rules(), NOW, from_client=False)


def test_the_future_ends_after_an_hour():
    batch = build_batch([Record(0, NOW, b"k", b"v"), Record(1, NOW + HOUR, b"k", b"v")])
    assert validate(batch, Rules(), NOW)
    with pytest.raises(
        InvalidTimestamp,
        match=r"3600001 ms ahead .* message.timestamp.after.max.ms=3600000: check the producer's clock",
    ):
        validate(batch, Rules(), NOW - 1)


def test_the_past_ends_where_the_topic_says():
    batch = build_batch([Record(0, NOW - HOUR, b"k", b"v"), Record(1, NOW, b"k", b"v")])
    assert validate(batch, Rules(timestamp_before_max_ms=HOUR), NOW)
    with pytest.raises(
        InvalidTimestamp,
        match=r"3600001 ms behind .* message.timestamp.before.max.ms=3600000: check the producer's clock",
    ):
        validate(batch, Rules(timestamp_before_max_ms=HOUR), NOW + 1)


def test_a_record_without_a_timestamp_is_not_old():
    assert validate(build_batch([Record(0, -1, b"k", b"v")]), Rules(timestamp_before_max_ms=HOUR), NOW)


def test_with_log_append_time_the_producers_clock_does_not_matter():
    far = build_batch([Record(0, NOW + 10 * HOUR, b"k", b"v")])
    assert validate(far, Rules(create_time=False), NOW)
    with pytest.raises(InvalidTimestamp):
        validate(far, Rules(), NOW)


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_wants_keys(codec):
    keyed = build_batch([Record(0, NOW, b"", None), Record(1, NOW, b"k", b"v")], codec=codec)
    keyless = build_batch([Record(0, NOW, b"k", b"v"), Record(1, NOW, None, b"v")], codec=codec)
    rules = Rules(keys_required=True)
    assert validate(keyed, rules, NOW)
    assert validate(keyless, Rules(), NOW)
    with pytest.raises(
        InvalidRecord, match=r"record 1 of the batch has no key.*: give each record a key, or set cleanup"
    ):
        validate(keyless, rules, NOW)
    assert validate(keyless, rules, NOW, from_client=False)


def test_one_bad_batch_refuses_the_whole_request():
    with pytest.raises(InvalidRecord):
        validate(_batch() + _altered(record_count=9), Rules(), NOW)
