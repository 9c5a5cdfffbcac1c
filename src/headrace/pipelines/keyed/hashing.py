"""Spark's `xxhash64` of columns, for rows that come to their bucket without passing through Spark.

State is stored under these hashes, so they are the same to the last bit (`tests/integration/test_straight_changes.py`).
Types whose hash is not written here have none: see `can_hash`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import Longs

_SEED: Final = 42
_1, _2, _3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_4, _5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
Words = NDArray[np.uint64]


def can_hash(kind: pa.DataType) -> bool:
    """Whether columns of this type are hashed here."""
    types = pa.types
    return bool(types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_string(kind))


def hash_rows(columns: Sequence[pa.Array]) -> Longs:
    """What Spark's `xxhash64` says of each row; a null leaves the hash of the columns before it."""
    found = np.full(len(columns[0]), _SEED, np.uint64)
    for column in columns:
        valid = np.asarray(column.is_valid())
        if pa.types.is_string(column.type):
            bounds, data = _text(column)
            _hash_texts(bounds, data, valid, found)
        elif column.type == pa.int64():
            _hash_longs(np.asarray(column.fill_null(0)).view(np.uint64), valid, found)
        else:
            _hash_ints(np.asarray(column.cast(pa.int32()).fill_null(0)).view(np.uint32), valid, found)
    return found.view(np.int64)


def _text(column: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    _, bounds, data = column.buffers()
    places = np.frombuffer(bounds, np.int32)[column.offset : column.offset + len(column) + 1]
    return places.copy(), np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()


@compiled
def _turned(word: np.uint64, by: int) -> np.uint64:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@compiled
def _mixed(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> np.uint64(33))) * _2
    word = (word ^ (word >> np.uint64(29))) * _3
    return word ^ (word >> np.uint64(32))


@compiled
def _with_long(found: np.uint64, value: np.uint64) -> np.uint64:
    return _turned(found ^ (_turned(value * _2, 31) * _1), 27) * _1 + _4


@compiled
def _with_int(found: np.uint64, value: np.uint64) -> np.uint64:
    return _turned(found ^ (value * _1), 23) * _2 + _3


@compiled
def _hash_longs(values: Words, valid: NDArray[np.bool_], found: Words) -> None:
    for row in range(len(found)):
        if valid[row]:
            found[row] = _mixed(_with_long(found[row] + _5 + np.uint64(8), values[row]))


@compiled
def _hash_ints(values: NDArray[np.uint32], valid: NDArray[np.bool_], found: Words) -> None:
    for row in range(len(found)):
        if valid[row]:
            found[row] = _mixed(_with_int(found[row] + _5 + np.uint64(4), np.uint64(values[row])))


@compiled
def _long_at(data: NDArray[np.uint8], at: int, size: int) -> np.uint64:
    value = np.uint64(0)
    for step in range(size):
        value |= np.uint64(data[at + step]) << np.uint64(8 * step)
    return value


@compiled
def _hash_texts(bounds: NDArray[np.int32], data: NDArray[np.uint8], valid: NDArray[np.bool_], found: Words) -> None:
    for row in range(len(found)):
        if not valid[row]:
            continue
        at, end = bounds[row], bounds[row + 1]
        size = end - at
        seed = found[row]
        if size >= 32:
            one, two, three, four = seed + _1 + _2, seed + _2, seed, seed - _1
            while at <= end - 32:
                one = _turned(one + _long_at(data, at, 8) * _2, 31) * _1
                two = _turned(two + _long_at(data, at + 8, 8) * _2, 31) * _1
                three = _turned(three + _long_at(data, at + 16, 8) * _2, 31) * _1
                four = _turned(four + _long_at(data, at + 24, 8) * _2, 31) * _1
                at += 32
            word = _turned(one, 1) + _turned(two, 7) + _turned(three, 12) + _turned(four, 18)
            for part in (one, two, three, four):
                word = (word ^ (_turned(part * _2, 31) * _1)) * _1 + _4
        else:
            word = seed + _5
        word += np.uint64(size)
        while at <= end - 8:
            word = _with_long(word, _long_at(data, at, 8))
            at += 8
        if at + 4 <= end:
            word = _with_int(word, _long_at(data, at, 4))
            at += 4
        while at < end:
            word = _turned(word ^ (np.uint64(data[at]) * _5), 11) * _1
            at += 1
        found[row] = _mixed(word)
