"""Batches written out by hand, byte by byte from the format's definition, against ours."""

import struct

from headrace.records import ControlType, Header, Record, build_batch, build_marker, records_of


def _crc32c(data: bytes) -> int:
    """CRC-32C from its definition: the polynomial 0x1EDC6F41, reflected, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _by_hand(base_offset: int, leader_epoch: int, checksummed: bytes) -> bytes:
    signed = b"\x02" + struct.pack(">I", _crc32c(checksummed)) + checksummed
    return struct.pack(">qii", base_offset, len(signed) + 4, leader_epoch) + signed


def test_the_checksum_used_here_is_crc_32c():
    assert _crc32c(b"123456789") == 0xE3069283


# length, attributes, timestamp delta, offset delta, key, value, headers; a number n is written as 2n, -n as 2n - 1
RECORDS = b"".join(
    [
        bytes.fromhex("22 00 00 00 06 6b6579 0a 76616c7565 02 02 68 01"),  # 17 bytes; one header: h, null
        bytes.fromhex("0c 00 05 02 01 01 00"),  # 6 bytes; timestamp - 3; null key and value
        bytes.fromhex("0e 00 c801 04 00 00 00"),  # 7 bytes; timestamp + 100; empty key and value
    ]
)


def test_a_batch_of_three_records():
    checksummed = (
        bytes.fromhex(
            "0010"  # attributes: transactional
            "00000002"  # last offset delta
            "0000018bcfe56800"  # base timestamp 1700000000000
            "0000018bcfe56864"  # max timestamp, 100 later
            "0000000000000fa1"  # producer id 4001
            "0003"  # producer epoch
            "0000002a"  # base sequence 42
            "00000003"  # record count
        )
        + RECORDS
    )
    records = [
        Record(7, 1_700_000_000_000, b"key", b"value", (Header("h", None),)),
        Record(8, 1_699_999_999_997, None, None),
        Record(9, 1_700_000_000_100, b"", b""),
    ]
    ours = build_batch(
        records, leader_epoch=5, producer_id=4001, producer_epoch=3, base_sequence=42, transactional=True
    )
    assert ours.hex() == _by_hand(7, 5, checksummed).hex()
    assert records_of(_by_hand(7, 5, checksummed)) == records


def test_an_abort_marker():
    checksummed = bytes.fromhex(
        "0030"  # attributes: transactional, control
        "00000000"
        "00000000000003e8" * 1 + "00000000000003e8"
        "0000000000000009"  # producer id 9
        "0001"  # producer epoch
        "ffffffff"  # no sequence
        "00000001"
        # key: version 0, abort; value: version 0, coordinator epoch 13
        "20 00 00 00 08 0000 0000 0c 0000 0000000d 00"
    )
    ours = build_marker(ControlType.ABORT, producer_id=9, producer_epoch=1, coordinator_epoch=13, timestamp=1000)
    assert ours.hex() == _by_hand(0, -1, checksummed).hex()


def test_a_plain_batch_has_no_producer_and_no_epoch():
    checksummed = bytes.fromhex(
        "000000000000ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00000001"
        "0e 00 00 00 01 02 78 00"
    )  # fmt: skip
    ours = build_batch([Record(0, -1, None, b"x")])
    assert ours.hex() == _by_hand(0, -1, checksummed).hex()
