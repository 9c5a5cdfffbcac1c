"""A log's way to its files, open as long as the log is there and shut for good once it was deleted.

Files are named by path, and the path of a deleted log is its successor's as soon as the topic is made again. Whoever
still works for the old log (compaction, retention, a flush, a lagging reader) would work on the new one's files. So a
log reaches the file system through a fence of its own, and what always holds is:
- the folder is moved away and the fence shut in one step; nothing changes a name between the two;
- from then on everything is refused with `LogDeleted`, and what was read before the fence was shut is the log's own;
- files that are open stay open: they have no name that anybody could mistake.
"""

from threading import Lock
from typing import Any

from headrace.storage.errors import LogDeleted
from headrace.storage.filesystem import FileSystem


def _change(name: str) -> Any:
    """A call that changes names: not while the folder is moved, nor afterwards."""

    def call(self: "Fence", *arguments: Any, **options: Any) -> Any:
        with self._lock:
            self.check()
            return getattr(self._filesystem, name)(*arguments, **options)

    return call


def _look(name: str) -> Any:
    """A call that takes its time and changes no name: what was seen counts only if the fence is still open."""

    def call(self: "Fence", *arguments: Any) -> Any:
        try:
            return getattr(self._filesystem, name)(*arguments)
        finally:
            self.check()

    return call


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

    open, open_directory, lock = _change("open"), _change("open_directory"), _change("lock")
    replace, remove = _change("replace"), _change("remove")
    make_directory, remove_directory = _change("make_directory"), _change("remove_directory")
    open_to_read, read, list = _look("open_to_read"), _look("read"), _look("list")
    exists, size, modified_ms = _look("exists"), _look("size"), _look("modified_ms")

    def sync_directory(self, path: str) -> None:
        self.check()
        try:
            self._filesystem.sync_directory(path)
        finally:
            self.check()
