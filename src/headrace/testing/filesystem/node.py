"""A file and a folder, each once as the processes see it and once as it is on the disk.

A file is a page cache over a disk. `volatile` is what reads see, `durable` what a power failure leaves, and what holds
between the two, as long as no sync has failed: cutting `durable` to the shortest length since the last sync, growing it
with zeros to the length of `volatile`, and copying the dirty pages makes them equal.
"""

from random import Random
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.testing.filesystem.faults import Counts


def choose_chance(rng: Random) -> float:
    """How likely it is that one unsynced change survives: often none or all of them, else anything between."""
    return rng.choice((0.0, 0.5, 1.0, rng.random()))


class FileNode:
    """The content of a file, whatever its name is, and whether it still has one."""

    __slots__ = (
        "counts",
        "dirty",
        "durable",
        "grown",
        "handles",
        "linked",
        "modified_ms",
        "page_bytes",
        "path",
        "sector_bytes",
        "truncations",
        "volatile",
    )

    def __init__(self, page_bytes: int, sector_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.sector_bytes = sector_bytes
        self.volatile = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()
        self.grown = False
        # Lengths below that of `durable` to which the file was cut since the last sync, each below the one before.
        self.truncations: list[int] = []
        self.modified_ms = 0
        self.handles = 0
        self.linked = True
        self.path = ""
        self.counts: Counts

    def write(self, data: bytes, position: int) -> None:
        end = position + len(data)
        length = len(self.volatile)
        if end > length:
            self.grown = True
            if position > length:
                self.volatile.extend(bytes(position - length))
        self.volatile[position:end] = data
        first = position // self.page_bytes
        last = (end - 1) // self.page_bytes
        if first == last:
            self.dirty.add(first)
        else:
            self.dirty.update(range(first, last + 1))

    def read(self, size: int, position: int) -> bytes:
        return bytes(self.volatile[position : position + size])

    def truncate(self, size: int) -> None:
        length = len(self.volatile)
        if size > length:
            self.volatile.extend(bytes(size - length))
            self.grown = True
            return
        del self.volatile[size:]
        pages = -(-size // self.page_bytes)
        if self.dirty and size < length:
            self.dirty = {page for page in self.dirty if page < pages}
        if size < (self.truncations[-1] if self.truncations else len(self.durable)):
            self.truncations.append(size)

    def sync(self) -> None:
        """Make the dirty pages and the length durable."""
        if self.truncations:
            del self.durable[self.truncations[-1] :]
            self.truncations.clear()
        self._grow_durable(self._length_to_write())
        for page in self.dirty:
            start = page * self.page_bytes
            end = start + self.page_bytes
            self.durable[start:end] = self.volatile[start:end]
        self.dirty.clear()
        self.grown = False

    def fail_sync(self) -> None:
        """Take the dirty pages for clean although they are not on the disk, as Linux does after a failed write-back.

        They stay readable, and a later sync does not write them: see "fsyncgate", and Rebello and others, "Can
        Applications Recover from fsync Failures?" (USENIX ATC 2020). A cut is no page but metadata: it stays pending.
        """
        self.dirty.clear()
        self.grown = False

    def write_back(self, rng: Random) -> None:
        """Let a random part of what is not synced reach the disk, as the kernel's flusher may at any time.

        Any earlier cut may be on the disk or not, the length may be anything up to the new one, and each dirty page
        may be there, missing (old content, or zeros where the file grew), or torn between two sectors. All of it
        still counts as not synced.
        """
        if self.truncations:
            survived = rng.randint(0, len(self.truncations))
            if survived:
                del self.durable[self.truncations[survived - 1] :]
        length, longest = len(self.durable), self._length_to_write()
        if longest > length:
            self._grow_durable(rng.choice((length, longest, longest, rng.randint(length, longest))))
        chance = choose_chance(rng)
        for page in sorted(self.dirty):
            if rng.random() >= chance:
                continue
            start = page * self.page_bytes
            end = start + self.page_bytes
            if rng.random() < 0.75:
                self._copy_to_disk(start, end)
                continue
            for sector in range(start, end, self.sector_bytes):
                if rng.random() < 0.5:
                    self._copy_to_disk(sector, sector + self.sector_bytes)

    def forget_volatile(self) -> None:
        self.volatile = bytearray(self.durable)
        self.dirty.clear()
        self.truncations.clear()
        self.grown = False

    def corrupt(self, data: bytes, position: int) -> None:
        """Change bytes behind everybody's back, in the page cache and, as far as they are there, on the disk."""
        self.volatile[position : position + len(data)] = data
        on_disk = max(0, min(len(data), len(self.durable) - position))
        self.durable[position : position + on_disk] = data[:on_disk]

    def copy(self) -> "FileNode":
        """The same content, as seen and as on the disk, with no handle on it."""
        twin = FileNode(self.page_bytes, self.sector_bytes)
        twin.volatile = bytearray(self.volatile)
        twin.durable = bytearray(self.durable)
        twin.dirty = set(self.dirty)
        twin.grown = self.grown
        twin.truncations = list(self.truncations)
        twin.modified_ms = self.modified_ms
        return twin

    def _length_to_write(self) -> int:
        """The length that the next sync makes durable; after a failed one, no more than what is written again."""
        if self.grown:
            return len(self.volatile)
        if self.dirty:
            return min(len(self.volatile), (max(self.dirty) + 1) * self.page_bytes)
        return 0

    def _grow_durable(self, length: int) -> None:
        if length > len(self.durable):
            self.durable.extend(bytes(length - len(self.durable)))

    def _copy_to_disk(self, start: int, end: int) -> None:
        end = min(end, len(self.durable))
        if start < end:
            # Behind the end of the file a page holds zeros, and they are written with it.
            self.durable[start:end] = self.volatile[start:end].ljust(end - start, b"\0")


class DirectoryNode:
    """A folder: the names in it as they are seen, and as they are on the disk."""

    __slots__ = ("durable", "modified_ms", "names", "path")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = 0
        self.path = ""


Node: TypeAlias = FileNode | DirectoryNode
