"""Numbers and sizes in Avro's binary encoding, looked up rather than computed. Pure."""

import struct
from typing import Final

NULL: Final = b"\x00"  # the first branch of a union
PRESENT: Final = b"\x02"  # the second
_BITS: Final = 14
_COUNT: Final = 1 << _BITS
_MASK: Final = _COUNT - 1

# Fourteen bits at a time: with what follows, and as the last of a number.
_GOES_ON: Final = [bytes((low & 0x7F | 0x80, low >> 7 | 0x80)) for low in range(_COUNT)]
_LAST: Final = [bytes((low,)) if low < 0x80 else bytes((low & 0x7F | 0x80, low >> 7)) for low in range(_COUNT)]
SIZES: Final = [_LAST[size << 1] for size in range(_COUNT >> 1)]  # of texts and bytes
SIZES_PRESENT: Final = [PRESENT + size for size in SIZES]  # in the second branch of a union
TABLED: Final = len(SIZES)

double: Final = struct.Struct("<d").pack
single: Final = struct.Struct("<f").pack


def long(number: int) -> bytes:
    """A number of up to 64 bits: zigzag, then seven bits a byte."""
    left = number << 1 if number >= 0 else ~(number << 1)
    if left < _COUNT:
        return _LAST[left]
    out = b""
    while left >= _COUNT:
        out += _GOES_ON[left & _MASK]
        left >>= _BITS
    return out + _LAST[left]


def sized(data: bytes) -> bytes:
    length = len(data)
    return (SIZES[length] if length < TABLED else long(length)) + data


def sized_present(data: bytes) -> bytes:
    """The same in the second branch of a union."""
    length = len(data)
    return (SIZES_PRESENT[length] if length < TABLED else PRESENT + long(length)) + data


def frame(schema_id: int) -> bytes:
    """What stands before a value."""
    return b"\x00" + schema_id.to_bytes(4, "big")
