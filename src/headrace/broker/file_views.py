"""Bytes of log files as what a socket sends.

The bytes of a slice of a log file are handed to the kernel and never looked at. A small slice is read; a large one is
mapped, so that sending it copies once, from the page cache to the socket, in one call with the rest of the answer
(`docs/decisions/0004-raw-sockets.md` has the figures). A mapping is dropped as soon as a call has sent what it
could of it: kept ones would count as memory of ours, and take descriptors.

A file that is cut while a slice of it waits to be sent cannot give what the slice promised: that is an error, never
fewer bytes, which whoever sends would ask for again and again. And nothing here may touch what is mapped: if the file
is cut meanwhile, the kernel answers a send with an error, but a read of ours with a signal.
"""

import errno
import mmap

from headrace.storage.segment import FileSlice

READ_UP_TO = 128 * 1024
WINDOW = 1024 * 1024
READ_FOR_THREAD_UP_TO = 16 * 1024
LENT_WINDOW = 8 * 1024 * 1024
_PAGE = mmap.ALLOCATIONGRANULARITY
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def view_of(part: FileSlice) -> memoryview:
    """The first bytes of a slice: all of a small one, at most `WINDOW` of a large one; an `OSError` if it was cut."""
    return _view(part, WINDOW, READ_UP_TO)


def view_for_thread(part: FileSlice) -> memoryview:
    """As `view_of`, but much more."""
    return _view(part, LENT_WINDOW, READ_FOR_THREAD_UP_TO)


def _view(part: FileSlice, most: int, read_up_to: int) -> memoryview:
    size = min(part.size, most)
    descriptor = part.file.fileno()
    if size <= read_up_to or descriptor < 0:
        return read_slice(part, min(size, WINDOW))
    before = part.position % _PAGE
    try:
        mapped = mmap.mmap(
            descriptor,
            before + size,
            flags=mmap.MAP_SHARED,  # pages are looked up when they are sent: all of them before costs twice as much
            prot=mmap.PROT_READ,
            offset=part.position - before,
        )
    except ValueError:  # longer than the file
        raise _cut(part) from None
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        # Python takes a descriptor for each mapping, and there may be none left.
        return read_slice(part, min(size, WINDOW))
    return memoryview(mapped)[before:]


def read_slice(part: FileSlice, size: int) -> memoryview:
    """The first bytes of a slice, copied; an `OSError` if the file was cut."""
    data = part.file.read_at(size, part.position)
    if len(data) < size:
        raise _cut(part)
    return memoryview(data)


def _cut(part: FileSlice) -> OSError:
    return OSError(errno.EIO, f"the file was cut before byte {part.position + part.size}, which was to be sent")
