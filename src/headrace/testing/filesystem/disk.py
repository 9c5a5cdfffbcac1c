"""The state that a file system and its open files share: one lock, the tree, the room, the faults.

Every operation passes here under the lock: first whether the process is still alive, then the countdown to a crash,
then the ordered faults, then the room, then the deed.
"""

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EBADF, EINVAL, ENOSPC

from headrace.clock import Clock
from headrace.storage.filesystem import Buffer
from headrace.testing.filesystem.faults import FaultPlan, OperationKind, SimulatedCrash
from headrace.testing.filesystem.node import FileNode, Node
from headrace.testing.filesystem.tree import Tree, os_error, split

# The most buffers that one `pwritev` of Linux takes.
IOV_MAX = 1024


class Disk:
    """A tree of files with a size, that a test can break."""

    def __init__(
        self, tree: Tree, clock: Clock, capacity_bytes: int | None, page_bytes: int, sector_bytes: int
    ) -> None:
        self.lock = threading.RLock()
        self.tree = tree
        self.clock = clock
        self.capacity_bytes = capacity_bytes
        self.page_bytes = page_bytes
        self.sector_bytes = sector_bytes
        self.faults = FaultPlan()
        self.locked: set[str] = set()
        self.used_bytes = sum(len(node.volatile) for node in tree.files())
        self.operations = 0
        self.crash_at = 0
        self.halfway = False
        self.dead = False
        self.stopped_at: str | None = None
        # Handles that nobody holds any more. The garbage collector may find one in the midst of any operation, so
        # they are only noted, and released at the start of the next.
        self.dropped: deque[FileNode] = deque()

    @contextmanager
    def use(self) -> Iterator["Disk"]:
        """Under the lock, by a process that is alive."""
        with self.lock:
            self.enter()
            yield self

    @contextmanager
    def change(self, kind: OperationKind, path: str, old_path: str | None = None) -> Iterator["Disk"]:
        """The same for an operation that changes a name: it may be the one to die at, or to fail."""
        with self.use():
            self.step(kind, path)
            self.fail_if_ordered(kind, path if old_path is None else old_path, None if old_path is None else path)
            yield self

    def enter(self) -> None:
        """At the start of every operation: a dead process makes none."""
        if self.dead:
            raise SimulatedCrash("the process that used this file system is dead: go on with what crash() returned")
        if self.dropped:
            self.release_dropped()

    def step(self, kind: OperationKind, path: str) -> None:
        """Before every operation that changes something: maybe it is the one to die at."""
        self.operations += 1
        if self.operations == self.crash_at:
            self.die(f"{kind} {path}")

    def die(self, where: str) -> None:
        self.dead = True
        self.stopped_at = where
        raise SimulatedCrash(f"stopped at operation {self.operations}: {where}")

    def fail_if_ordered(self, kind: OperationKind, path: str, other: str | None = None) -> None:
        if self.faults.pending:
            paths = [path] if other is None else [path, other]
            fault = self.faults.strike(kind, *("/".join(split(each)) for each in paths))
            if fault is not None:
                raise os_error(fault.error, path, other)

    def write(self, node: FileNode, buffers: Sequence[Buffer], position: int) -> int:
        with self.use():
            if position < 0 or len(buffers) > IOV_MAX:
                raise os_error(EINVAL, node.path)
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            if type(data) is not bytes:
                data = bytes(data)
            node.counts.writes += 1
            self.operations += 1
            size = len(data)
            if self.operations == self.crash_at:
                if self.halfway:
                    with suppress(OSError):
                        self._put(node, data[: size // 2], position)
                self.die(f"write {node.path}")
            if self.faults.pending:
                fault = self.faults.strike("write", node.path, start=position, size=size)
                if fault is not None:
                    written = self._put(node, data[: fault.bytes_let_through(size)], position)
                    if fault.is_error:
                        raise os_error(fault.error, node.path)
                    return written
            return self._put(node, data, position)

    def read(self, node: FileNode, size: int, position: int) -> bytes:
        with self.use():
            if size < 0 or position < 0:
                raise os_error(EINVAL, node.path)
            node.counts.reads += 1
            if self.faults.pending:
                readable = max(0, min(size, len(node.volatile) - position))
                fault = self.faults.strike("read", node.path, start=position, size=readable)
                if fault is not None:
                    raise os_error(fault.error, node.path)
            return node.read(size, position)

    def truncate(self, node: FileNode, size: int) -> None:
        """Cut, or grow with zeros, which take room here as if they were written."""
        with self.use():
            if size < 0:
                raise os_error(EINVAL, node.path)
            self.step("truncate", node.path)
            self.fail_if_ordered("truncate", node.path)
            growth = size - len(node.volatile)
            if growth > 0 and self.capacity_bytes is not None and growth > self.capacity_bytes - self.used_bytes:
                raise os_error(ENOSPC, node.path)
            node.truncate(size)
            node.modified_ms = self.clock.now_ms()
            self.used_bytes += growth

    def sync(self, node: FileNode) -> None:
        """Make a file durable, or fail and never make these pages durable."""
        with self.use():
            self.step("sync", node.path)
            node.counts.syncs += 1
            if self.faults.pending:
                fault = self.faults.strike("sync", node.path)
                if fault is not None:
                    node.fail_sync()
                    raise os_error(fault.error, node.path)
            node.sync()

    def size(self, node: FileNode) -> int:
        with self.use():
            return len(node.volatile)

    def unlink(self, node: Node | None) -> None:
        """Note that something lost its name; a file that nobody holds gives its room back."""
        if isinstance(node, FileNode):
            node.linked = False
            self._free(node)

    def release_dropped(self) -> None:
        """Let go of the handles that were closed or forgotten; the last one of a file without a name frees it."""
        while self.dropped:
            node = self.dropped.popleft()
            node.handles -= 1
            self._free(node)

    def need_room_for_a_name(self, path: str) -> None:
        """A new file or folder needs at least a byte of a full disk."""
        if self.capacity_bytes is not None and self.used_bytes >= self.capacity_bytes:
            raise os_error(ENOSPC, path)

    def _put(self, node: FileNode, data: bytes, position: int) -> int:
        size = len(data)
        if not size:
            return 0
        length = len(node.volatile)
        if self.capacity_bytes is not None:
            room = length + max(0, self.capacity_bytes - self.used_bytes) - position
            if room < size:
                if room <= 0:
                    raise os_error(ENOSPC, node.path)
                data, size = data[:room], room
        node.write(data, position)
        node.modified_ms = self.clock.now_ms()
        self.used_bytes += len(node.volatile) - length
        return size

    def _free(self, node: FileNode) -> None:
        if not node.linked and node.handles == 0:
            self.used_bytes -= len(node.volatile)


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
        node = self._open_node()
        if not self._writable:
            raise os_error(EBADF, node.path)
        return self._disk.write(node, buffers, position)

    def read_at(self, size: int, position: int) -> bytes:
        return self._disk.read(self._open_node(), size, position)

    def size(self) -> int:
        return self._disk.size(self._open_node())

    def truncate(self, size: int) -> None:
        node = self._open_node()
        if not self._writable:
            raise os_error(EINVAL, node.path)
        self._disk.truncate(node, size)

    def sync(self) -> None:
        self._disk.sync(self._open_node())

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
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
