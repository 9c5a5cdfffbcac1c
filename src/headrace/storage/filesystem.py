"""The few things storage asks of a disk, as an interface.

Two implementations exist: `OsFileSystem` here, and `headrace.testing.MemoryFileSystem`, which tears writes, forgets
what was not synced, fills up and fails to sync on demand. Nothing else in storage touches the operating system, so
whatever a disk may do to us can be done in a test.

What holds for every implementation, and no more than that:
- data written is readable at once, and survives a crash only after `File.sync`;
- a name created, replaced or removed survives a crash only after `sync_directory` of its folder;
- `File.write_at` may write less than it was given, and says how much; an `OSError` may have written a part;
- after a failed `sync` nobody knows what reached the disk: it must be written again before it counts.
"""

import errno
import fcntl
import os
import resource
from collections.abc import Callable, Sequence
from threading import Lock
from typing import ClassVar, Protocol
from weakref import WeakKeyDictionary

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file, read and written at positions; there is no cursor to share."""

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers one after the other from `position`; the number of bytes written, maybe fewer."""
        ...

    def read_at(self, size: int, position: int) -> bytes:
        """At most `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def size(self) -> int:
        """The file's length in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """Return only once all data written so far is on the disk."""
        ...

    def fileno(self) -> int:
        """The descriptor, to map the file by; -1 where there is none."""
        ...

    def close(self) -> None:
        """Let go of the file; closing twice is harmless."""
        ...


class FileSystem(Protocol):
    """A tree of files by path, with `/` between names."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file where there is none."""
        ...

    def open_to_read(self, path: str) -> File:
        """Open for reading alone: nothing about the file or its folder changes."""
        ...

    def open_directory(self, path: str) -> File | None:
        """The folder itself, which a child process can be given by its descriptor; None where there are none."""
        ...

    def read(self, path: str) -> bytes: ...

    def replace(self, source: str, target: str) -> None:
        """Give the file or folder a new name, atomically; a file takes the place of what was there."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is open elsewhere stays readable there."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """A file's length in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds since the epoch."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a folder and those above it; one that is there already is fine."""
        ...

    def remove_directory(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Return only once the names in this folder are on the disk."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take the lock file `path` for this process, or raise `BlockingIOError`; the answer gives it back."""
        ...


def max_open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def raise_open_files() -> None:
    """Let this process have as many files open as it may allow itself: for a program of ours, not for a library's host,
    which may use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class OsFile:
    """A file of the operating system, closed at the latest when nobody holds it any more.

    A reader may hold a slice of a segment that retention or compaction has removed meanwhile: the last reference,
    not the removal, closes the descriptor.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._fd, buffers, position)

    def read_at(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the file is closed")
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class OsFileSystem:
    _locked: ClassVar[set[str]] = set()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644))

    def open_to_read(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def open_directory(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)  # records, and what is kept of passwords, are nobody else's

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Callable[[], None]:
        real = os.path.realpath(path)
        if real in self._locked:  # asked before opening: closing a second descriptor would drop the first one's lock
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        fd = os.open(real, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise BlockingIOError(errno.EAGAIN, "locked", path) from error
        self._locked.add(real)

        def unlock() -> None:
            self._locked.discard(real)
            os.close(fd)

        return unlock


class _UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        """No crash leaves anybody who would read it."""


class UnsyncedFileSystem(OsFileSystem):
    """For a folder that goes with the process: to wait for the disk would be most of a short-lived broker's life."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return _UnsyncedFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644))

    def sync_directory(self, path: str) -> None:
        pass


# How many log files are open at once: no more than half of what the process may have, the rest is for connections.
#
# A data directory may hold more segments than the process may open files, so a segment's file is opened when it is
# needed and let go of when others need room. What always holds: - a file with bytes that are not synced stays open,
# because a failed write-back is reported to those who have it open; where such files alone take up too much
# (`durability = os` syncs none but full ones), they are synced one by one; - a file that has lost its name stays open
# for as long as somebody holds its segment, unless there are too many of them: whoever comes for it later gets an
# error, and finds what took its place when it asks again; - whoever reads has the file in hand: letting go of it
# closes it only when the last reader is done.
#
# Who opened first lets go first. A file that is used all the time is opened again at once, which costs less than
# noting every use would.

_TRIES = 16  # of one turn, so that no opening waits until all the others were asked


class Holder(Protocol):
    """Somebody with a file that may be opened again later."""

    def release_file(self, *, urgent: bool = False) -> bool:
        """Let go of the file if that does no harm, or if it is `urgent` and loses nothing; whether it did."""
        ...


class OpenFiles:
    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit  # None: by what the process may have
        self._holders: WeakKeyDictionary[Holder, None] = WeakKeyDictionary()
        self._lock = Lock()

    def open(self, filesystem: FileSystem, path: str, holder: Holder, *, create: bool = False) -> File:
        """Open a file that `holder` may be asked to let go of."""
        limit = self.limit or max_open_files() // 2
        self._make_room(limit)
        self._make_room(limit + limit // 4, urgent=True)
        try:
            file = filesystem.open(path, create=create)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            self._make_room(0, tries=len(self._holders))
            self._make_room(len(self._holders), urgent=True)
            file = filesystem.open(path, create=create)
        with self._lock:
            self._holders[holder] = None
        return file

    def forget(self, holder: Holder) -> None:
        """Ask this one no more: its file is closed for good."""
        with self._lock:
            self._holders.pop(holder, None)

    def _make_room(self, limit: int, tries: int = _TRIES, *, urgent: bool = False) -> None:
        with self._lock:
            for _ in range(tries):
                if len(self._holders) < limit:
                    return
                holder = next(iter(self._holders.keys()), None)
                if holder is None:
                    return
                del self._holders[holder]
                if not holder.release_file(urgent=urgent):
                    self._holders[holder] = None  # it has its next turn when all others had theirs


OPEN_FILES = OpenFiles()
