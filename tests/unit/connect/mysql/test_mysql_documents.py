"""MySQL's binary JSON. The bytes follow the grammar in the comment of MySQL's json_binary.h."""

import struct

import pytest

from headrace.connect.mysql.values import BrokenDocument, document_text


def _small(kind: int, entries: list[tuple[int, bytes]], keys: list[bytes] | None = None) -> bytes:
    """A small object or array; a value of two bytes stands in its place, a longer one behind."""
    head = 4 + 4 * len(keys or []) + 3 * len(entries)
    body = b"".join(keys or [])
    key_entries, at = b"", head
    for key in keys or []:
        key_entries += struct.pack("<HH", at, len(key))
        at += len(key)
    value_entries = b""
    for value_kind, data in entries:
        if value_kind in (4, 5, 6):
            value_entries += bytes([value_kind]) + data.ljust(2, b"\0")
        else:
            value_entries += bytes([value_kind]) + struct.pack("<H", head + len(body))
            body += data
    size = head + len(body)
    return bytes([kind]) + struct.pack("<HH", len(entries), size) + key_entries + value_entries + body


def test_scalars() -> None:
    assert document_text(b"\x04\x00") == "null"
    assert document_text(b"\x04\x01") == "true"
    assert document_text(b"\x05" + struct.pack("<h", -5)) == "-5"
    assert document_text(b"\x0a" + struct.pack("<Q", 2**64 - 1)) == str(2**64 - 1)
    assert document_text(b"\x0b" + struct.pack("<d", 0.1)) == "0.1"
    assert document_text(b"\x0c\x03" + b'a"b') == '"a\\"b"'
    assert document_text(b"") == "null"


def test_a_long_string_has_a_long_length() -> None:
    text = "x" * 300
    assert document_text(b"\x0c\xac\x02" + text.encode()) == f'"{text}"'


def test_objects_and_arrays_nest() -> None:
    array = _small(2, [(5, struct.pack("<h", 1)), (4, b"\x02"), (12, b"\x02" + "ü".encode())])
    document = _small(0, [(2, array[1:]), (11, struct.pack("<d", 2.5))], [b"a", b"bb"])
    assert document_text(document) == '{"a": [1, false, "ü"], "bb": 2.5}'
    assert document_text(_small(2, [])) == "[]"
    assert document_text(_small(0, [], [])) == "{}"


def test_a_large_array_has_four_bytes_where_the_small_has_two() -> None:
    head = 8 + 5 * 2
    data = b"\x03" + struct.pack("<II", 2, head) + b"\x07" + struct.pack("<i", -70000) + b"\x04\x01\0\0\0"
    assert document_text(data) == "[-70000, true]"


def test_values_of_column_types() -> None:
    """An opaque value is a column type, a length, and its bytes: a decimal, a datetime, a date, a time."""
    decimal = bytes([5, 2]) + bytes([0x80 | 0, 0x7B, 0x2D])  # 123.45 as DECIMAL(5,2)
    assert document_text(b"\x0f\xf6" + bytes([len(decimal)]) + decimal) == "123.45"
    packed = ((((2024 * 13 + 2) << 5 | 29) << 17) | (12 << 12 | 34 << 6 | 56)) << 24 | 789012
    assert document_text(b"\x0f\x0c\x08" + struct.pack("<q", packed)) == '"2024-02-29 12:34:56.789012"'
    assert document_text(b"\x0f\x0a\x08" + struct.pack("<q", (2024 * 13 + 2) << 46 | 29 << 41)) == '"2024-02-29"'
    time = (1 << 12 | 2 << 6 | 3) << 24 | 500000
    assert document_text(b"\x0f\x0b\x08" + struct.pack("<q", time)) == '"01:02:03.500000"'
    assert document_text(b"\x0f\x0b\x08" + struct.pack("<q", -time)) == '"-01:02:03.500000"'


@pytest.mark.parametrize("data", [b"\x0d\x00", b"\x04\x07", b"\x0b\x00", b"\x02\x01\x00", b"\x0c"])
def test_broken_bytes_are_told(data: bytes) -> None:
    with pytest.raises(BrokenDocument, match="cannot be read"):
        document_text(data)
