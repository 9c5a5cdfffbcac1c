"""Files in memory, for logs of which nothing is to be on the disk: a `FileSystem` as any other, that forgets.

Only what a log asks of its files is here, without a fault to be had; the disk that fails on demand is
`headrace.testing.MemoryFileSystem`. A file that has been removed is freed with its last reader.
"""

import errno
from collections.abc import Callable, Sequence
from threading import RLock

from headrace.clock import Clock
from headrace.storage.filesystem import Buffer, FileSystem


class MemoryFile:
    """The bytes of a file. One thread writes at a time; readers copy, so that it can grow while they are at it."""

    __slots__ = ("_clock", "_data", "modified_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._data = bytearray()
        self.modified_ms = clock.now_ms()

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        data = self._data
        try:
            if position > len(data):
                data.extend(bytes(position - len(data)))
            end = position
            for buffer in buffers:
                data[end : end + len(buffer)] = buffer
                end += len(buffer)
        except MemoryError as error:
            raise OSError(errno.ENOMEM, "no memory is left") from error
        self.modified_ms = self._clock.now_ms()
        return end - position

    def read_at(self, size: int, position: int) -> bytes:
        return bytes(self._data[position : position + size])

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def sync(self) -> None:
        """There is no disk."""

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """It is there for as long as it has a name, or a reader."""


class MemoryFiles(FileSystem):
    """Files by their paths; folders are those that have files, or were made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._folders: dict[str, dict[str, MemoryFile]] = {}
        self._lock = RLock()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        folder, _, name = path.rpartition("/")
        with self._lock:
            files = self._folders.setdefault(folder, {}) if create else self._folders.get(folder, {})
            if name not in files:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
                files[name] = MemoryFile(self._clock)
            return files[name]

    def open_to_read(self, path: str) -> MemoryFile:
        return self.open(path)

    def open_directory(self, path: str) -> None:
        """There is none that another process could be given."""

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.read_at(file.size(), 0)

    def replace(self, source: str, target: str) -> None:
        with self._lock:
            if source in self._folders:
                self._folders[target] = self._folders.pop(source)
                return
            file = self.open(source)
            self.remove(source)
            folder, _, name = target.rpartition("/")
            self._folders.setdefault(folder, {})[name] = file

    def remove(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with self._lock:
            self.open(path)
            del self._folders[folder][name]

    def list(self, path: str) -> list[str]:
        with self._lock:
            if path not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "there is no such folder", path)
            return sorted(self._folders[path])

    def exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return path in self._folders or name in self._folders.get(folder, {})

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        return self.open(path).modified_ms

    def make_directory(self, path: str) -> None:
        with self._lock:
            self._folders.setdefault(path, {})

    def remove_directory(self, path: str) -> None:
        with self._lock:
            self._folders.pop(path, None)

    def sync_directory(self, path: str) -> None:
        """There is no disk."""

    def lock(self, path: str) -> Callable[[], None]:
        raise OSError(errno.ENOTSUP, "nobody else has files in memory", path)
