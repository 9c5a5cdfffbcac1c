"""A log's way to its files, open as long as the log is there and shut for good once it was deleted.

Files are named by path, and the path of a deleted log is its successor's as soon as the topic is made again. Whoever
still works for the old log (compaction, retention, a flush, a lagging reader) would work on the new one's files. So a
log reaches the file system through a fence of its own, and what always holds is:
- the folder is moved away and the fence shut in one step; nothing changes a name between the two;
- from then on everything is refused with `LogDeleted`, and what was read before the fence was shut is the log's own;
- files that are open stay open: they have no name that anybody could mistake.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from headrace.storage.errors import LogDeleted
from headrace.storage.filesystem import File, FileSystem


class Fence(FileSystem):
    def __init__(self, filesystem: FileSystem, log: str) -> None:
        self._filesystem = filesystem
        self._log = log
        self._lock = Lock()
        self.is_shut = False

    def shut(self, folder: str, move_to: str) -> None:
        """Give the log's folder another name, and let nobody pass any more; if that fails all stays as it is."""
        with self._lock:
            self.check()
            self._filesystem.replace(folder, move_to)
            self.is_shut = True

    def check(self) -> None:
        if self.is_shut:
            raise LogDeleted(self._log)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """For what changes names: not while the folder is moved, nor afterwards."""
        with self._lock:
            self.check()
            yield

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """For what takes its time and changes no name: what was seen counts only if the fence is still open."""
        try:
            yield
        finally:
            self.check()

    # --- what changes names

    def open(self, path: str, *, create: bool = False) -> File:
        with self._changing():
            return self._filesystem.open(path, create=create)

    def replace(self, source: str, target: str) -> None:
        with self._changing():
            self._filesystem.replace(source, target)

    def remove(self, path: str) -> None:
        with self._changing():
            self._filesystem.remove(path)

    def make_directory(self, path: str) -> None:
        with self._changing():
            self._filesystem.make_directory(path)

    def remove_directory(self, path: str) -> None:
        with self._changing():
            self._filesystem.remove_directory(path)

    def open_directory(self, path: str) -> File | None:
        with self._changing():
            return self._filesystem.open_directory(path)

    # --- what only looks

    def open_to_read(self, path: str) -> File:
        with self._looking():
            return self._filesystem.open_to_read(path)

    def read(self, path: str) -> bytes:
        with self._looking():
            return self._filesystem.read(path)

    def list(self, path: str) -> list[str]:
        with self._looking():
            return self._filesystem.list(path)

    def exists(self, path: str) -> bool:
        with self._looking():
            return self._filesystem.exists(path)

    def size(self, path: str) -> int:
        with self._looking():
            return self._filesystem.size(path)

    def modified_ms(self, path: str) -> int:
        with self._looking():
            return self._filesystem.modified_ms(path)

    def sync_directory(self, path: str) -> None:
        self.check()
        with self._looking():
            self._filesystem.sync_directory(path)

    def lock(self, path: str) -> Callable[[], None]:
        with self._changing():
            return self._filesystem.lock(path)
