"""Values as the binary log holds them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.mysql.types import float_json
from headrace.connect.mysql.values import (
    date_text,
    datetime_text,
    decimal_reader,
    decimal_size,
    old_datetime_text,
    old_time_text,
    time_text,
    timestamp_text,
)

_SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def _packed(text: str, precision: int, scale: int) -> bytes:
    """A decimal as the server writes it, by its documentation: groups of nine digits from the point outwards."""
    digits = text.removeprefix("-")
    is_negative = text.startswith("-")
    whole, _, fraction = digits.partition(".")
    whole, fraction = whole.zfill(precision - scale), fraction.ljust(scale, "0")
    first = len(whole) % 9
    groups = [whole[:first], *(whole[at : at + 9] for at in range(first, len(whole), 9))]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    data = b"".join(int(group).to_bytes(_SIZES[len(group)]) for group in groups if group)
    if is_negative:
        data = bytes(byte ^ 0xFF for byte in data)
    return bytes([data[0] ^ 0x80]) + data[1:]


@given(st.data())
def test_decimals(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(precision, 30)))
    number = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    digits = str(abs(number)).zfill(scale + 1)
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    text = f"-{text}" if number < 0 else text
    if precision == scale:
        packed = _packed(text.replace("0.", ".", 1), precision, scale)
    else:
        packed = _packed(text, precision, scale)
    assert len(packed) == decimal_size(precision, scale)
    found = decimal_reader(precision, scale)(packed)
    assert Decimal(found) == Decimal(text)
    assert found == text


def test_the_example_of_the_documentation() -> None:
    """1234567890.1234 as DECIMAL(14,4), from the comment of MySQL's decimal2bin, and its negative."""
    read = decimal_reader(14, 4)
    assert read(bytes.fromhex("810dfb38d204d2")) == "1234567890.1234"
    assert read(bytes.fromhex("7ef204c72dfb2d")) == "-1234567890.1234"


def test_moments() -> None:
    assert date_text((2024 << 9 | 2 << 5 | 29).to_bytes(3, "little")) == "2024-02-29"
    assert date_text(bytes(3)) == "0000-00-00"
    packed = (2024 * 13 + 2) << 22 | 29 << 17 | 23 << 12 | 59 << 6 | 58
    assert datetime_text((packed + (1 << 39)).to_bytes(5), 0) == "2024-02-29 23:59:58"
    assert datetime_text((packed + (1 << 39)).to_bytes(5) + (7890).to_bytes(2), 3) == "2024-02-29 23:59:58.789"
    assert timestamp_text((1).to_bytes(4) + (5).to_bytes(1), 1) == "1970-01-01 00:00:01.0"
    assert timestamp_text(bytes(7), 6) == "0000-00-00 00:00:00.000000"
    assert timestamp_text(b"\xff" * 4, 0) == "2106-02-07 06:28:15"
    assert old_datetime_text((20240229235958).to_bytes(8, "little")) == "2024-02-29 23:59:58"
    assert old_time_text((-8385959).to_bytes(3, "little", signed=True)) == "-838:59:59"


@pytest.mark.parametrize(
    ("hexadecimal", "precision", "text"),
    [  # as in the comment of MySQL's TIME_from_longlong_time_packed
        ("8000000000 00", 6, "00:00:00.000000"),
        ("7fffff ffffff", 6, "-00:00:00.000001"),
        ("7ffffe 00", 1, "-00:00:02.0"),
        ("7fffff ff", 2, "-00:00:00.01"),
        ("7ffffe f6", 2, "-00:00:01.10"),
        ("7fffff", 0, "-00:00:01"),
        ("b4 6efb", 0, "838:59:59"),
    ],
)
def test_times_may_be_negative(hexadecimal: str, precision: int, text: str) -> None:
    assert time_text(bytes.fromhex(hexadecimal), precision) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_the_shortest_that_mean_the_same(value: float) -> None:
    import struct

    assert struct.unpack("<f", struct.pack("<f", float(float_json(value))))[0] == value
    assert len(float_json(0.10000000149011612)) == 3
