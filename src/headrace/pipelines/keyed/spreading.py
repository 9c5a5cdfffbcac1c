"""Numbers for buckets that Spark deals out to its partitions evenly.

Spark puts a row into the partition that the hash of its grouping key names. Of the keys 0 … 7 two partitions get three
and five, so one task would work nearly twice as long as the other. Hence bucket i goes by a number whose hash is i
modulo `_EVEN`: with as many partitions as divide that (1 to 8, 10, 12, …), each gets as many buckets as the next, give
or take one. What is beyond that many buckets evens out by itself.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_EVEN = 840
_SEED = 42
# Among so many numbers every remainder occurs.
_CANDIDATES = 32 * _EVEN


@lru_cache
def bucket_numbers(buckets: int) -> tuple[int, ...]:
    """The number that each bucket goes by; the same for ever, because state is stored under it."""
    if buckets > _EVEN:
        return tuple(range(buckets))
    remainders = spark_hash(np.arange(_CANDIDATES, dtype=np.uint32)).astype(np.int64) % _EVEN
    found, first = np.unique(remainders, return_index=True)
    assert len(found) == _EVEN, "every remainder occurs"
    return tuple(first[:buckets].tolist())


def spark_hash(numbers: NDArray[np.uint32]) -> NDArray[np.int32]:
    """What Spark's `hash` says to whole numbers of 32 bits: Murmur3 of one word."""
    with np.errstate(over="ignore"):
        word = _turned(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        mixed = _turned(np.uint32(_SEED) ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        mixed = mixed ^ np.uint32(4)
        mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (mixed ^ (mixed >> np.uint32(16))).view(np.int32)


def _turned(words: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
