"""Arrays that grow, and rows that are moved within them."""

import numpy as np

from headrace.cep.loops.layout import Longs
from headrace.jit import compiled


@compiled
def grow(array: Longs, count: int, wanted: int) -> Longs:
    """The array, or a larger one with its first `count` rows, in which `wanted` fit."""
    if wanted <= len(array):
        return array
    larger = np.empty((max(wanted, 2 * len(array)), array.shape[1]), np.int64)
    larger[:count] = array[:count]
    return larger


@compiled
def copy_row(target: Longs, at: int, source: Longs, number: int) -> None:
    """By hand: a slice of an array counts references, and these are the innermost loops."""
    for column in range(target.shape[1]):
        target[at, column] = source[number, column]


@compiled
def shift(array: Longs, by: int, count: int) -> None:
    """Take the first rows out of an array of `count`."""
    for number in range(by, count):
        copy_row(array, number - by, array, number)
