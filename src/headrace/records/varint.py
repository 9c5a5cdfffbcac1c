"""Zig-zag variable-length integers, as records inside a batch use them: at most 64 bits, in at most ten bytes."""

from headrace.records.errors import InvalidRecord

_MIN = -(2**63)
_MAX = 2**63 - 1


def write_varint(out: bytearray, value: int) -> None:
    """Append `value`, zig-zag encoded, seven bits a byte, the lowest first."""
    if not _MIN <= value <= _MAX:
        raise InvalidRecord(f"{value} does not fit into 64 bits: check the record's offset and timestamp")
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The value at `position`, and the position behind it; IndexError or ValueError if there is none."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                raise ValueError("a varint of more than 64 bits")
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")
