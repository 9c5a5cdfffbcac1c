"""Decimals as the binary log holds them: groups of nine digits, the sign in the highest bit. Pure."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

_SIZES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # bytes for so many digits


def decimal_size(precision: int, scale: int) -> int:
    """How many bytes a decimal takes."""
    whole = precision - scale
    return whole // 9 * 4 + _SIZES[whole % 9] + scale // 9 * 4 + _SIZES[scale % 9]


@lru_cache(maxsize=256)
def decimal_reader(precision: int, scale: int) -> Callable[[bytes], str]:
    """A function from such bytes to text with all digits of the scale."""
    whole = precision - scale
    size = decimal_size(precision, scale)
    left = _groups([whole % 9] + [9] * (whole // 9), 8 * size)
    right = _groups([9] * (scale // 9) + [scale % 9], 8 * (size - decimal_size(whole, 0)))
    sign, ones = 1 << 8 * size - 1, (1 << 8 * size) - 1
    form = f"%d.%0{scale}d" if scale else "%d"

    def read(data: bytes) -> str:
        number = int.from_bytes(data) ^ sign
        is_negative = number & sign
        if is_negative:
            number ^= ones
        units = 0
        for shift, mask, factor in left:
            units = units * factor + (number >> shift & mask)
        if not scale:
            return f"-{units}" if is_negative else str(units)
        parts = 0
        for shift, mask, factor in right:
            parts = parts * factor + (number >> shift & mask)
        shown = form % (units, parts)
        return f"-{shown}" if is_negative else shown

    return read


def _groups(digits: list[int], bits: int) -> list[tuple[int, int, int]]:
    """Where each group of digits is: shift, mask, and what the groups before it count for."""
    found = []
    for count in filter(None, digits):
        width = 8 * _SIZES[count]
        bits -= width
        found.append((bits, (1 << width) - 1, 10**count))
    return found
