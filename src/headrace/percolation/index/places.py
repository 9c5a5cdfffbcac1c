"""Places of values: numbers and points as keys, so that a range or an area is filed as words are.

A number's rank is an integer that rises with it. The ranks from low to high are cut into blocks, each 2^level long and
beginning at a multiple of its length, so that a value lies in exactly one block of a range that contains it. A range
has a dozen blocks or so: ends are rounded outwards until it has. An area on the globe is covered by a few cells of one
size. To look a value up, one asks for its block at each level that is in use.
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.percolation.tree import GeoBox, GeoDistance

Longs = NDArray[np.int64]

LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1
_MOST_BLOCKS: Final = 18
_MOST_CELLS: Final = 12
CELL_LEVELS: Final = 24
"""A cell of level n is 180/2^n degrees high and wide."""
EARTH_METRES: Final = 6_371_008.7714
_LARGEST_EXACT: Final = 2**53


def rank(value: float) -> int:
    """An integer that rises with the number; equal for -0.0 and 0.0."""
    bits = int(np.float64(value + 0.0).view(np.int64))
    return bits if bits >= 0 else LOWEST - bits


def ranks(values: NDArray[np.float64]) -> Longs:
    """The same for an array."""
    bits = (values + 0.0).view(np.int64)
    return np.where(bits >= 0, bits, np.int64(LOWEST) - bits)


def as_float(value: float) -> tuple[float, bool]:
    """The nearest float, and whether it is the number itself."""
    if not isinstance(value, int):
        return value, True
    if -_LARGEST_EXACT <= value <= _LARGEST_EXACT:
        return float(value), True
    try:
        nearest = float(value)
    except OverflowError:
        return (math.inf if value > 0 else -math.inf), False
    return nearest, int(nearest) == value


def blocks(low: int, high: int) -> list[tuple[int, int]]:
    """Blocks (level, number) that contain all ranks from `low` to `high`."""
    # An open end is an end of every block; the finer the first try, the more blocks there are.
    is_open = low == LOWEST or high == HIGHEST
    level = 46 if is_open else max(0, (high - low).bit_length() - 9)
    while True:
        found = list(_blocks_from(low >> level, high >> level, level))
        if len(found) <= _MOST_BLOCKS:
            return found
        level += 1


def _blocks_from(low: int, high: int, level: int) -> Iterator[tuple[int, int]]:
    """The fewest blocks for whole blocks `low` to `high` of a level."""
    while low <= high:
        if low & 1:
            yield level, low
            low += 1
        if not high & 1 and low <= high:
            yield level, high
            high -= 1
        low >>= 1
        high >>= 1
        level += 1


@compiled
def place_key(field: int, level: int, number: int | np.int64, other: int | np.int64) -> int:
    """The key of a block (`other` is 0) or a cell: negative, and nearly always different for different places."""
    mixed = (np.int64(number) * np.int64(-7046029254386353131)) ^ (np.int64(other) * np.int64(-4417276706812531889))
    mixed = (mixed ^ (mixed >> 31)) * np.int64(-4658895280553007687)
    mixed = (mixed ^ (np.int64(field) << 8) ^ np.int64(level)) * np.int64(-7723592293110705685)
    return (mixed ^ (mixed >> 32)) | np.int64(-9223372036854775807 - 1)


def box_cells(box: GeoBox) -> tuple[int, list[tuple[int, int]]]:
    """The level and the cells (across, up) that cover a box."""
    if box.left > box.right:
        west, east = (
            GeoBox("", box.top, box.left, box.bottom, 180.0),
            GeoBox("", box.top, -180.0, box.bottom, box.right),
        )
        for level in range(CELL_LEVELS - 1, -1, -1):
            cells = list({*_cells(west, level), *_cells(east, level)})
            if len(cells) <= _MOST_CELLS:
                return level, cells
    for level in range(CELL_LEVELS - 1, -1, -1):
        if _cell_count(box, level) <= _MOST_CELLS:
            return level, list(_cells(box, level))
    return 0, list(_cells(box, 0))


def distance_cells(circle: GeoDistance) -> tuple[int, list[tuple[int, int]]]:
    """The same for a circle: those of the box around it."""
    return box_cells(around(circle))


def around(circle: GeoDistance) -> GeoBox:
    """A box that contains a circle, a little larger than it has to be."""
    angle = circle.metres / EARTH_METRES * (1 + 1e-9) + 1e-9
    high = math.degrees(angle)
    top, bottom = circle.latitude + high, circle.latitude - high
    if top >= 90 or bottom <= -90:
        return GeoBox("", min(top, 90.0), -180.0, max(bottom, -90.0), 180.0)
    wide = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(circle.latitude))))) + 1e-9
    if wide >= 180:
        return GeoBox("", top, -180.0, bottom, 180.0)
    left, right = circle.longitude - wide, circle.longitude + wide
    return GeoBox("", top, left + 360 if left < -180 else left, bottom, right - 360 if right > 180 else right)


def _span(low: float, high: float, start: float, level: int) -> tuple[int, int]:
    width = 180.0 / (1 << level)
    return math.floor((low - start) / width), math.floor((high - start) / width)


def _cell_count(box: GeoBox, level: int) -> int:
    left, right = _span(box.left, box.right, -180.0, level)
    bottom, top = _span(box.bottom, box.top, -90.0, level)
    return max(0, right - left + 1) * max(0, top - bottom + 1)


def _cells(box: GeoBox, level: int) -> Iterator[tuple[int, int]]:
    if _cell_count(box, level) > 4 * _MOST_CELLS:
        # More than anybody takes: enough of them to be seen as too many.
        yield from ((-2, each) for each in range(_MOST_CELLS + 1))
        return
    left, right = _span(box.left, box.right, -180.0, level)
    bottom, top = _span(box.bottom, box.top, -90.0, level)
    for across in range(left, right + 1):
        for up in range(bottom, top + 1):
            yield across, up
