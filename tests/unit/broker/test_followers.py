"""What followers of a partition have in memory of it."""

import pytest

from headrace.broker.queues import followers
from headrace.broker.queues.followers import Reader
from headrace.broker.turns import run_through
from headrace.records import Codec, Record, build_batch, header_at
from headrace.records.batch import assemble
from headrace.records.record import encode
from headrace.testing import MemoryFileSystem
from tests.small_logs import EPOCH_MS, append, new_log


def test_a_reader_uncompresses_one_batch_at_a_time_and_hands_out_a_portion(monkeypatch: pytest.MonkeyPatch):
    """Batches of a few bytes may be megabytes when they are uncompressed, and there may be hundreds of them."""
    log = new_log(MemoryFileSystem())
    value = bytes(followers.PORTION_BYTES // 2)
    for _ in range(6):
        append(log, [Record(place, EPOCH_MS, None, value) for place in range(3)], codec=Codec.ZSTD)
    opened = []
    uncompress = followers.bounded_body_of
    monkeypatch.setattr(
        followers, "bounded_body_of", lambda data, header: opened.append(header.base_offset) or uncompress(data, header)
    )
    reader = Reader(log, 0)
    offsets = []
    while records := run_through(reader.read(100, log.end_offset)):
        assert len(records) == 2
        assert reader.offset - 3 <= opened[-1] <= reader.offset
        assert reader.whole_offset <= opened[-1] + 3
        offsets += [record.offset for record in records]
    assert offsets == list(range(18))
    assert reader.whole_offset == reader.offset == 18


def test_a_batch_that_ends_with_a_portion_was_handed_out_as_a_whole():
    """Otherwise groups have nothing of a batch with exactly as many records until something is appended behind it."""
    log = new_log(MemoryFileSystem())
    append(log, [Record(place, EPOCH_MS, None, b"v") for place in range(4)])
    reader = Reader(log, 0)
    assert len(run_through(reader.read(2, log.end_offset))) == 2
    assert (reader.offset, reader.whole_offset) == (2, 0)
    assert len(run_through(reader.read(2, log.end_offset))) == 2
    assert (reader.offset, reader.whole_offset) == (4, 4)


@pytest.mark.parametrize("claimed", [-5, 0, 2, 2**40, 2**63 - 1])
def test_a_record_that_claims_anothers_offset_has_none_passed_by_that_follow(claimed: int):
    log = new_log(MemoryFileSystem())
    header = header_at(build_batch([Record(place, EPOCH_MS, None, b"v") for place in range(2)]))
    body = b"".join(encode(Record(offset, 0, None, b"v"), 0, 0) for offset in (0, claimed))
    log.append(assemble(header, body), now_ms=EPOCH_MS)
    append(log, [Record(place, EPOCH_MS, None, b"v") for place in range(3)])
    reader = Reader(log, 0)
    assert [record.offset for record in run_through(reader.read(100, log.end_offset))] == [0, 2, 3, 4]
    assert reader.whole_offset == reader.offset == 5


@pytest.mark.parametrize("claimed", [-(2**63), -(2**62) - EPOCH_MS - 1, 2**62, 2**63 - 1])
def test_a_record_with_a_time_that_no_other_batch_could_hold_is_passed_by(claimed: int):
    log = new_log(MemoryFileSystem())
    header = header_at(build_batch([Record(0, EPOCH_MS, None, b"v")]))
    log.append(assemble(header, encode(Record(0, claimed, None, b"v"), 0, 0)), now_ms=EPOCH_MS)
    append(log, [Record(place, EPOCH_MS, None, b"v") for place in range(3)])
    records = run_through(Reader(log, 0).read(100, log.end_offset))
    assert [record.offset for record in records] == [1, 2, 3]
