"""A run as bytes. The first byte is the layout's version; a program reads the versions before its own as well.

Version 2: a head in JSON says how long each part is, then come the hashes, the ends of the keys (left out if all keys
have one length), the keys, the ends of the entries' rows (left out if each entry has one), which entries replace (left
out if all do or none does), and the rows as one Arrow stream. Each part begins at a multiple of eight;
numbers are little-endian.

Version 1 wrote every part always, without a head: the number of entries and the size of the keys in eight bytes each,
then the parts one behind the other.
"""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.keyed.keys import Keys
from headrace.pipelines.keyed.operator import BadState
from headrace.pipelines.keyed.run import Run

VERSION: Final = 2
_ALIGNED: Final = 8
_LARGE: Final = 1 << 16
# What a run weighs is handed to Spark, logged and written to disk; and any Arrow reads rows that are compressed.
_KEPT: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_HEAD = struct.Struct("<BI")
_HEAD_1 = struct.Struct("<Bqq")


def encode_run(run: Run) -> bytes:
    """The bytes of a run, in the newest layout."""
    count = len(run.keys)
    ends = run.keys.ends
    width = int(ends[0]) if count else 0
    has_width = bool((ends == np.arange(1, count + 1) * width).all())
    one_row = bool((run.row_ends == np.arange(1, count + 1)).all())
    uniform = bool(run.replaces.all()) or not run.replaces.any()
    rows = write_rows([run.rows], _KEPT)[1]
    head = {
        "entries": count,
        "width": width if has_width else None,
        "arena": len(run.keys.arena),
        "one_row": one_row,
        "replaces": bool(run.replaces.all()) if uniform else None,
    }
    text = json.dumps(head).encode()
    parts = [_HEAD.pack(VERSION, len(text)) + text, run.keys.hashes.tobytes()]
    parts += [] if has_width else [ends.astype(np.int64).tobytes()]
    parts += [run.keys.arena.tobytes()]
    parts += [] if one_row else [run.row_ends.astype(np.int64).tobytes()]
    parts += [] if uniform else [run.replaces.astype(np.bool_).tobytes()]
    return b"".join([*(part + bytes(-len(part) % _ALIGNED) for part in parts), rows])


def decode_run(data: bytes) -> Run:
    """The run that these bytes hold."""
    version = data[0] if data else 0
    if version not in DECODERS:
        raise BadState(
            f"stored state has layout {version}, and this version of headrace reads {min(DECODERS)} to {VERSION}: "
            "run it with the version that wrote it, or rebuild the job from its topics"
        )
    return DECODERS[version](data)


def rows_to_bytes(rows: pa.RecordBatch) -> pa.Buffer:
    """Rows with their schema."""
    return write_rows([rows])[1]


def write_rows(
    parts: Sequence[pa.RecordBatch], options: pa.ipc.IpcWriteOptions | None = None
) -> tuple[list[int], pa.Buffer]:
    """Parts with their schemas one behind the other: where each begins and the last ends, and the bytes."""
    if options is not None or sum(rows.nbytes for rows in parts) < _LARGE:
        sink = pa.BufferOutputStream()
        return _write(parts, sink, options), sink.getvalue()
    # A buffer that grows is copied again and again, and what is measured first need not grow.
    data = pa.allocate_buffer(_write(parts, pa.MockOutputStream(), None)[-1])
    return _write(parts, pa.FixedSizeBufferWriter(data), None), data


def _write(parts: Sequence[pa.RecordBatch], sink: pa.NativeFile, options: pa.ipc.IpcWriteOptions | None) -> list[int]:
    bounds = [0]
    for rows in parts:
        with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
            stream.write_batch(rows)
        bounds.append(int(sink.tell()))
    return bounds


def rows_from_bytes(data: "bytes | memoryview | pa.Buffer") -> pa.RecordBatch:
    """The way back; the rows lie in the given bytes and are not copied."""
    return pa.ipc.open_stream(data).read_next_batch()


T = TypeVar("T", bound=np.generic)


class _Parts:
    """Takes arrays off the front of some bytes, each of which begins at a multiple of `step`.

    The bytes are copied once, whole: arrays that may be written to are of one type for the compiled loops, and those
    that may not would be of another, compiled again.
    """

    def __init__(self, data: bytes, at: int, step: int) -> None:
        self.data = np.frombuffer(data, np.uint8).copy()
        self.step = step
        self.at = at
        self._skip()

    def take(self, kind: type[T], count: int) -> NDArray[T]:
        size = np.dtype(kind).itemsize * count
        array = self.data[self.at : self.at + size].view(kind)
        self.at += size
        self._skip()
        return array if self.step == _ALIGNED else array.copy()

    def rest(self) -> pa.Buffer:
        return pa.py_buffer(self.data[self.at :])

    def _skip(self) -> None:
        self.at += -self.at % self.step


def _version_2(data: bytes) -> Run:
    _, size = _HEAD.unpack_from(data)
    head = json.loads(data[_HEAD.size : _HEAD.size + size])
    parts = _Parts(data, _HEAD.size + size, _ALIGNED)
    count = head["entries"]
    hashes = parts.take(np.int64, count)
    steps = np.arange(1, count + 1)
    ends = parts.take(np.int64, count) if head["width"] is None else steps * head["width"]
    arena = parts.take(np.uint8, head["arena"])
    row_ends = steps if head["one_row"] else parts.take(np.int64, count)
    uniform = head["replaces"] is not None
    replaces = np.full(count, head["replaces"], np.bool_) if uniform else parts.take(np.bool_, count)
    return Run(Keys(hashes, ends, arena), replaces, row_ends, rows_from_bytes(parts.rest()))


def _version_1(data: bytes) -> Run:
    _, count, arena_size = _HEAD_1.unpack_from(data)
    parts = _Parts(data, _HEAD_1.size, 1)
    hashes, ends = parts.take(np.int64, count), parts.take(np.int64, count)
    arena = parts.take(np.uint8, arena_size)
    row_ends, replaces = parts.take(np.int64, count), parts.take(np.bool_, count)
    return Run(Keys(hashes, ends, arena), replaces, row_ends, rows_from_bytes(parts.rest()))


DECODERS: Final[dict[int, Callable[[bytes], Run]]] = {1: _version_1, 2: _version_2}
