"""An open file of `MemoryFileSystem`."""

import os
from collections.abc import Sequence
from errno import EBADF, EINVAL

from headrace.storage.filesystem import Buffer
from headrace.testing.filesystem.disk import Disk
from headrace.testing.filesystem.node import FileNode
from headrace.testing.filesystem.tree import os_error


class MemoryFile:
    """A `headrace.storage.filesystem.File`, closed at the latest when nobody holds it any more.

    Once the process is dead every method raises `SimulatedCrash`, but for `close`, which is harmless.
    """

    __slots__ = ("_disk", "_node", "_writable")

    def __init__(self, disk: Disk, node: FileNode, *, writable: bool = True) -> None:
        self._disk = disk
        self._writable = writable
        self._node: FileNode | None = node
        node.handles += 1

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write into the page cache: less than given on a nearly full disk, or where a test has ordered it."""
        node = self._open_node()
        if not self._writable:
            raise os_error(EBADF, node.path)
        return self._disk.write(node, buffers, position)

    def read_at(self, size: int, position: int) -> bytes:
        """At most `size` bytes from `position`; fewer only at the end of the file."""
        return self._disk.read(self._open_node(), size, position)

    def size(self) -> int:
        """The file's length in bytes."""
        return self._disk.size(self._open_node())

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or grow it with zeros."""
        node = self._open_node()
        if not self._writable:
            raise os_error(EINVAL, node.path)
        self._disk.truncate(node, size)

    def sync(self) -> None:
        """Make the data and the length durable; not the name."""
        self._disk.sync(self._open_node())

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1

    def close(self) -> None:
        """Let go of the file; what was not synced stays in the page cache."""
        node, self._node = self._node, None
        if node is not None:
            self._disk.dropped.append(node)
            with self._disk.lock:
                self._disk.release_dropped()

    def __del__(self) -> None:
        if self._node is not None:
            self._disk.dropped.append(self._node)

    def _open_node(self) -> FileNode:
        if self._node is None:
            raise OSError(EBADF, os.strerror(EBADF))
        return self._node
