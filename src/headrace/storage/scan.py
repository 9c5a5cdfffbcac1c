"""Walking a segment's file batch by batch, in large reads.

Two walks: `scan` reads everything and checks each checksum, for recovery, compaction and whoever decodes; `headers`
reads little more than the headers, to find a place. Neither knows what a log is.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.records import HEADER_SIZE, BatchHeader, CorruptBatch, RecordsError, crc_of, header_at
from headrace.records.batch import check_shape, place_at
from headrace.storage.filesystem import File, FileSystem

CHUNK = 1024 * 1024
_PEEK = 4096 + HEADER_SIZE
_MAGIC_AT = 16


class Scanned(NamedTuple):
    position: int
    header: BatchHeader
    batch: memoryview


def scan(file: File, start: int, end: int) -> Iterator[Scanned]:
    """Each batch from `start` on, checked; `CorruptBatch` with the position where the bytes up to `end` are none."""
    chunk_at = start
    chunk = memoryview(b"")
    position = start
    while position < end:
        offset = position - chunk_at
        if len(chunk) - offset < HEADER_SIZE:
            chunk, chunk_at, offset = _read(file, position, end, CHUNK), position, 0
        if len(chunk) < HEADER_SIZE:
            raise CorruptBatch(f"{end - position} bytes are too few for a batch", position)
        header = header_at(chunk, offset)
        _check(header, position, end)
        size = header.size
        if len(chunk) - offset < size:
            chunk, chunk_at, offset = _read(file, position, end, max(CHUNK, size)), position, 0
        batch = chunk[offset : offset + size]
        if len(batch) < size or crc_of(batch) != header.crc:
            raise CorruptBatch("the checksum does not match", position)
        yield Scanned(position, header, batch)
        position += size


def scan_file(filesystem: FileSystem, path: str, size: int | None = None) -> Iterator[Scanned]:
    """Each batch of a file, opened for reading alone; `CorruptBatch` names the file where the bytes are none."""
    file = filesystem.open_to_read(path)
    try:
        yield from scan(file, 0, file.size() if size is None else size)
    except CorruptBatch as error:
        raise CorruptBatch(f"{error.reason} in {path}", error.position) from error
    finally:
        file.close()


def headers(file: File, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch's position and header from `start` on, without reading the records."""
    chunk_at = start
    chunk = b""
    position = start
    while position < end:
        offset = position - chunk_at
        if len(chunk) - offset < HEADER_SIZE:
            chunk, chunk_at, offset = file.read_at(min(_PEEK, end - position), position), position, 0
        if len(chunk) < HEADER_SIZE:
            raise CorruptBatch(f"{end - position} bytes are too few for a batch", position)
        header = header_at(chunk, offset)
        _check(header, position, end)
        yield position, header
        position += header.size


def locate(file: File, start: int, end: int, offset: int) -> tuple[int, int] | None:
    """Position and size of the first batch from `start` on that ends at or behind `offset`.

    What `headers` does, at a third of its cost, because every fetch begins here. The batches were checked when they
    were appended or recovered.
    """
    position = chunk_at = start
    chunk = b""
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_SIZE:
            chunk, chunk_at, at = file.read_at(min(_PEEK, end - position), position), position, 0
        if len(chunk) < HEADER_SIZE:
            raise CorruptBatch(f"{end - position} bytes are too few for a batch", position)
        last_offset, size = place_at(chunk, at)
        if size < HEADER_SIZE or position + size > end:
            raise CorruptBatch(f"{size} bytes are announced, {end - position} are there", position)
        if last_offset >= offset:
            return position, size
        position += size
    return None


def find_batch(file: File, start: int, end: int, min_offset: int, max_offset: int) -> Scanned | None:
    """The first whole batch at or behind `start` with a base offset in that range, wherever it begins.

    For reading on behind damage: every byte may be the beginning, but few have the format's number at the right place.
    """
    position = start
    while position + HEADER_SIZE <= end:
        chunk = _read(file, position, end, CHUNK)
        data = bytes(chunk)
        at = data.find(2, _MAGIC_AT)
        while at >= 0 and at - _MAGIC_AT + HEADER_SIZE <= len(data):
            found = batch_at(file, position + at - _MAGIC_AT, end, min_offset, max_offset)
            if found:
                return found
            at = data.find(2, at + 1)
        position += max(len(data) - HEADER_SIZE, 1)
    return None


def batch_at(file: File, position: int, end: int, min_offset: int, max_offset: int) -> Scanned | None:
    """The batch that begins at `position`, if a whole one does, with a base offset in that range."""
    try:
        found = next(scan(file, position, end), None)
    except RecordsError:
        return None
    return found if found and min_offset <= found.header.base_offset <= max_offset else None


def _check(header: BatchHeader, position: int, end: int) -> None:
    try:
        check_shape(header, position)
    except RecordsError as error:
        raise CorruptBatch(str(error), position) from None
    if position + header.size > end:
        raise CorruptBatch(f"{header.size} bytes are announced, {end - position} are there", position)


def _read(file: File, position: int, end: int, size: int) -> memoryview:
    return memoryview(file.read_at(min(size, end - position), position))
