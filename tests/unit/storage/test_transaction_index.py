"""The aborted transactions of a segment: Kafka's bytes, and which of them a reader is given."""

from headrace.storage.indexes import AbortedTransaction, TransactionIndex

ONE = AbortedTransaction(7, 10, 20, 12)
TWO = AbortedTransaction(8, 12, 30, 31)


def _index(*entries):
    index = TransactionIndex()
    for entry in entries:
        index.append(entry)
    return index


def test_an_entry_is_a_version_and_four_numbers():
    assert _index(ONE).encode().hex() == "0000" + "".join(f"{n:016x}" for n in (7, 10, 20, 12))
    assert TransactionIndex.decode(_index(ONE, TWO).encode()).entries == [ONE, TWO]
    assert len(_index(ONE, TWO)) == 2


def test_a_torn_entry_or_an_unknown_version_ends_the_reading():
    data = _index(ONE, TWO).encode()
    assert TransactionIndex.decode(data[:-1]).entries == [ONE]
    assert TransactionIndex.decode(data[:34] + b"\0\x01" + data[36:]).entries == [ONE]
    assert TransactionIndex.decode(b"").entries == []


def test_a_reader_gets_what_overlaps_its_offsets():
    index = _index(ONE, TWO)
    assert index.find_overlapping(0, 10)[0] == []
    assert index.find_overlapping(0, 11)[0] == [ONE]
    assert index.find_overlapping(0, 13)[0] == [ONE, TWO]
    assert index.find_overlapping(20, 21)[0] == [ONE, TWO]
    assert index.find_overlapping(21, 22)[0] == [TWO]
    assert index.find_overlapping(31, 99)[0] == []


def test_it_says_when_later_segments_can_hold_no_more():
    index = _index(ONE)
    assert index.find_overlapping(0, 12) == ([ONE], True)
    assert index.find_overlapping(0, 13) == ([ONE], False), "offset 12 was undecided when the entry was written"


def test_cutting_forgets_transactions_whose_marker_is_gone():
    index = _index(ONE, TWO)
    index.truncate(30)
    assert index.entries == [ONE]
    index.truncate(20)
    assert index.entries == []
