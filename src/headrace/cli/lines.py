"""Lines from standard input, in the groups in which they arrive.

Whoever writes them may be fast or slow: `cat` gives a gigabyte, `tail -f` a line a minute. So a group is whatever can
be read without waiting; at its end there is nothing more for now, and what was read should be dealt with.
"""

import io
import select
from collections.abc import Iterator
from typing import BinaryIO

_CHUNK_BYTES = 256 * 1024


def lines_as_they_come(stream: BinaryIO) -> Iterator[bytes | None]:
    """Each line without its end; None whenever the next one is not there yet."""
    rest = bytearray()
    while chunk := _read(stream):
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest += line
            yield bytes(rest).removesuffix(b"\r")
            rest.clear()
        rest += last
        if not _has_more(stream):
            yield None
    if rest:
        yield bytes(rest).removesuffix(b"\r")
    yield None


def _read(stream: BinaryIO) -> bytes:
    # One read of the system's: it waits for something, but not for all that was asked for.
    read_some = getattr(stream, "read1", stream.read)
    data: bytes = read_some(_CHUNK_BYTES)
    return data


def _has_more(stream: BinaryIO) -> bool:
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (io.UnsupportedOperation, ValueError, OSError):
        return False
