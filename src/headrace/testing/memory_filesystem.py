"""A disk in memory that does to a program what disks do: it forgets, tears, rots, fills up and fails.

It models a POSIX file system with a page cache, honestly where Linux is known, and pessimistically where file systems
differ: what was not synced may be there after a crash or not, in any combination that some disk could leave.

    filesystem = MemoryFileSystem()
    write_my_file(filesystem)
    after = filesystem.crash(Random(seed))          # the power fails
    check_what_is_left(after)

The file system that crashed is dead, and so are its open files: a thread left over cannot harm the one that `crash`
returned. One lock makes every operation atomic to other threads.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EAGAIN, EIO, EISDIR
from fnmatch import fnmatchcase
from random import Random
from typing import Literal

from headrace.clock import Clock
from headrace.storage.filesystem import FileSystem
from headrace.testing.clock import FakeClock
from headrace.testing.filesystem.disk import Disk, MemoryFile
from headrace.testing.filesystem.faults import Counts, Fault, OperationKind, SimulatedCrash
from headrace.testing.filesystem.node import DirectoryNode, FileNode
from headrace.testing.filesystem.tree import Tree, os_error, split

CrashMode = Literal["random", "lose_everything", "keep_everything"]


class MemoryFileSystem(FileSystem):
    """A `FileSystem` that a test can crash and break.

    Paths begin at the root, with or without a slash. Patterns are those of `fnmatch`, on the whole path without its
    leading slash, and `*` matches a slash too: `*.log` is every log in every folder. A file that is open is matched and
    counted by the name that it has now, or had last.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        clock: Clock | None = None,
        page_bytes: int = 4096,
        sector_bytes: int = 512,
    ) -> None:
        if sector_bytes < 1 or page_bytes % sector_bytes:
            raise ValueError(f"a page of {page_bytes} bytes is not a whole number of sectors of {sector_bytes} bytes")
        self._disk = Disk(Tree(), clock or FakeClock(), capacity_bytes, page_bytes, sector_bytes)

    # What storage asks of a disk.

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        with self._disk.use() as disk:
            disk.fail_if_ordered("open", path)
            if not create:
                return MemoryFile(disk, disk.tree.find_file(path))
            parent, name, node = disk.tree.locate(path, root_error=EISDIR)
            if isinstance(node, DirectoryNode) or path.endswith("/"):
                raise os_error(EISDIR, path)
            if node is None:
                disk.step("open", path)
                disk.need_room_for_a_name(path)
                node = FileNode(disk.page_bytes, disk.sector_bytes)
                disk.tree.add(parent, name, node, disk.clock.now_ms())
            return MemoryFile(disk, node)

    def open_to_read(self, path: str) -> MemoryFile:
        """Open for reading alone; a folder is refused at once, not at the first read."""
        with self._disk.use() as disk:
            disk.fail_if_ordered("open", path)
            return MemoryFile(disk, disk.tree.find_file(path), writable=False)

    def open_directory(self, path: str) -> None:
        """There are no descriptors, so there is nothing to give to another process."""

    def read(self, path: str) -> bytes:
        with self._disk.use() as disk:
            node = disk.tree.find_file(path)
            return disk.read(node, len(node.volatile), 0)

    def replace(self, source: str, target: str) -> None:
        """Give a file or folder a new name, in place of what was there; after a crash it is the old or the new.

        A full disk does not hinder it; `fail("replace", error=ENOSPC)` does.
        """
        with self._disk.change("replace", target, source) as disk:
            disk.unlink(disk.tree.replace(source, target, disk.clock.now_ms()))

    def remove(self, path: str) -> None:
        """Remove a file; open handles keep it, and the room it takes."""
        with self._disk.change("remove", path) as disk:
            disk.unlink(disk.tree.remove(path, disk.clock.now_ms()))

    def list(self, path: str) -> list[str]:
        with self._disk.use() as disk:
            disk.fail_if_ordered("list", path)
            return sorted(disk.tree.find_folder(path).names)

    def exists(self, path: str) -> bool:
        with self._disk.use() as disk:
            try:
                disk.tree.find(path)
            except OSError:
                return False
            return True

    def size(self, path: str) -> int:
        """A file's length in bytes; a folder has one page."""
        with self._disk.use() as disk:
            node = disk.tree.find(path)
            return len(node.volatile) if isinstance(node, FileNode) else disk.page_bytes

    def modified_ms(self, path: str) -> int:
        """When the file was last written, by the clock of this file system."""
        with self._disk.use() as disk:
            return disk.tree.find(path).modified_ms

    def make_directory(self, path: str) -> None:
        """Make a folder and those above it, each an operation of its own; one that is there already is fine."""
        with self._disk.use() as disk:
            disk.fail_if_ordered("make_directory", path)
            for folder in disk.tree.missing_folders(path):
                disk.step("make_directory", folder)
                disk.need_room_for_a_name(path)
                parent, name, _ = disk.tree.locate(folder)
                disk.tree.add(parent, name, DirectoryNode(), disk.clock.now_ms())

    def remove_directory(self, path: str) -> None:
        with self._disk.change("remove_directory", path) as disk:
            disk.tree.remove_folder(path, disk.clock.now_ms())

    def sync_directory(self, path: str) -> None:
        """Make the names in this folder durable: not what is in the files, nor the name of the folder itself."""
        with self._disk.use() as disk:
            disk.step("sync_directory", path)
            folder = disk.tree.find_folder(path)
            disk.tree.count(folder.path).syncs += 1
            disk.fail_if_ordered("sync_directory", folder.path)
            disk.tree.journal.sync(folder)

    def lock(self, path: str) -> Callable[[], None]:
        """Take the lock file `path`, made where there is none, or raise `BlockingIOError`; a crash gives it back."""
        with self._disk.use() as disk:
            name = "/".join(split(path))
            if name in disk.locked:
                raise os_error(EAGAIN, path)
            file = self.open(path, create=True)
            disk.locked.add(name)

        def unlock() -> None:
            with disk.lock:
                disk.locked.discard(name)
                file.close()

        return unlock

    # Crashes.

    def crash(self, rng: Random | None = None, *, mode: CrashMode = "random") -> "MemoryFileSystem":
        """The process dies: what is on the disk when the next one starts.

        - `random`, with a seeded `rng`: power fails, and of what was not synced a random part survives: any of the
          pages, whole or torn between two sectors, any length on the way from the old to the new, with zeros or old
          content where pages are missing, and any of the changes of names that do not need one that is lost;
        - `lose_everything`: power fails, and only what was synced is there;
        - `keep_everything`: the process is killed, but the machine lives: the page cache is as it was, still not on
          the disk.

        This file system is dead from now on, and can only be asked again how else the crash might have ended. Ordered
        faults and counters end with it; the capacity and the clock go on.
        """
        if mode == "random" and rng is None:
            raise ValueError("a random crash takes its choices from a seeded Random: crash(Random(seed))")
        disk = self._disk
        with disk.lock:
            disk.dead = True
            tree = disk.tree.copy()
        if mode == "random" and rng is not None:
            tree.write_back(rng)
        if mode != "keep_everything":
            tree.forget_volatile()
        after = MemoryFileSystem()
        after._disk = Disk(tree, disk.clock, disk.capacity_bytes, disk.page_bytes, disk.sector_bytes)
        return after

    def write_back(self, rng: Random) -> None:
        """Let a random part of what is not synced reach the disk already now, as the kernel may at any time.

        Nobody sees a difference until the crash: then older versions of a page can be there too.
        """
        with self._disk.use() as disk:
            disk.tree.write_back(rng)

    def crash_after(self, operations: int, *, halfway: bool = False) -> None:
        """Stop the process at one of the next operations that change something; 1 is the very next.

        It raises `SimulatedCrash` before that operation is made, or with `halfway`, if it is a write, after half of
        the bytes; from then on everything raises it. Each write, truncate, sync, creation, replace, remove, folder
        made or removed, and sync of a folder is an operation.
        """
        if operations < 1:
            raise ValueError(f"the process can stop at the next operation at the earliest, not at number {operations}")
        with self._disk.use() as disk:
            disk.crash_at = disk.operations + operations
            disk.halfway = halfway

    @property
    def stopped_at(self) -> str | None:
        """The operation at which `crash_after` stopped the process, with its path; None if it did not."""
        return self._disk.stopped_at

    @property
    def operations(self) -> int:
        """How many operations that change something were tried so far."""
        return self._disk.operations

    # Room.

    @property
    def capacity_bytes(self) -> int | None:
        """How much the files may hold together; None is without limit. Setting it makes or takes room."""
        return self._disk.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int | None) -> None:
        with self._disk.lock:
            self._disk.capacity_bytes = capacity_bytes

    @property
    def used_bytes(self) -> int:
        """What the files hold together, with those that are removed but still open."""
        with self._disk.lock:
            self._disk.release_dropped()
            return self._disk.used_bytes

    # Faults.

    def fail(
        self, operation: OperationKind, path: str = "*", *, times: int | None = 1, skip: int = 0, error: int = EIO
    ) -> Fault:
        """Let an operation on matching paths fail, `times` times (None: until healed), after `skip` that pass.

        A replace matches by its old name or its new one.
        """
        with self._disk.lock:
            return self._disk.faults.add(Fault(operation, path, times, skip, error))

    def fail_sync(self, path: str = "*", *, times: int | None = 1, skip: int = 0, error: int = EIO) -> Fault:
        """Let `File.sync` fail, and what was to be synced never become durable unless it is written again.

        As on Linux, the pages count as clean after the failure: they are readable, a later sync succeeds without
        them, and a power failure takes them. A folder's sync fails with `fail("sync_directory")`; its names stay
        unsynced, and a later sync of the folder makes them durable.
        """
        return self.fail("sync", path, times=times, skip=skip, error=error)

    def fail_write(
        self, path: str = "*", *, times: int | None = 1, skip: int = 0, error: int = EIO, written_bytes: int = 0
    ) -> Fault:
        """Let `File.write_at` raise, after it has written the first `written_bytes`."""
        with self._disk.lock:
            return self._disk.faults.add(Fault("write", path, times, skip, error, at_most_bytes=written_bytes))

    def short_write(
        self, path: str = "*", *, times: int | None = 1, skip: int = 0, at_most_bytes: int | None = None
    ) -> Fault:
        """Let `File.write_at` write only so many bytes, or half if no number is given, and say so.

        Only a write of more bytes than that is hit.
        """
        if at_most_bytes is not None and at_most_bytes < 1:
            raise ValueError(f"a short write writes at least a byte, not {at_most_bytes}")
        with self._disk.lock:
            return self._disk.faults.add(Fault("write", path, times, skip, at_most_bytes=at_most_bytes, is_error=False))

    def fail_read(
        self,
        path: str = "*",
        *,
        start: int = 0,
        end: int | None = None,
        times: int | None = None,
        skip: int = 0,
        error: int = EIO,
    ) -> Fault:
        """Let reads that touch the bytes from `start` to before `end` fail: a bad sector, until it is healed."""
        with self._disk.lock:
            return self._disk.faults.add(Fault("read", path, times, skip, error, start=start, end=end))

    def heal(self, fault: Fault | None = None) -> None:
        """Take back one ordered fault, or all of them."""
        with self._disk.lock:
            self._disk.faults.heal(fault)

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Let bytes rot: the file holds `data` at `position` from now on, on the disk too, and nobody is told."""
        with self._disk.use() as disk:
            node = disk.tree.find_file(path)
            if position < 0 or position + len(data) > len(node.volatile):
                raise ValueError(
                    f"{path} has {len(node.volatile)} bytes: bytes {position} to {position + len(data)} cannot rot"
                )
            node.corrupt(data, position)

    def counts(self, path: str = "*") -> Counts:
        """How often matching files were read, written and synced, and matching folders synced."""
        pattern = path.strip("/")
        total = Counts()
        with self._disk.lock:
            for counted, counts in self._disk.tree.counts.items():
                if fnmatchcase(counted, pattern):
                    total.reads += counts.reads
                    total.writes += counts.writes
                    total.syncs += counts.syncs
        return total


def crash_points(
    run: Callable[[MemoryFileSystem], object],
    *,
    prepare: Callable[[MemoryFileSystem], object] | None = None,
    make: Callable[[], MemoryFileSystem] = MemoryFileSystem,
) -> Iterator[MemoryFileSystem]:
    """Run the code on a new file system for each of its changing operations, and stop it there.

    What comes out are the stopped file systems: before the first operation, before the second and so on, for each
    write also half-way through it, and at last one on which the code came to its end. What a crash leaves of each is
    asked of `MemoryFileSystem.crash`, as often as one likes; `stopped_at` names the operation. `prepare` runs before
    the countdown begins.
    """
    operation = 0
    while True:
        operation += 1
        halfway = False
        while True:
            filesystem = make()
            if prepare is not None:
                prepare(filesystem)
            filesystem.crash_after(operation, halfway=halfway)
            with suppress(SimulatedCrash):
                run(filesystem)
            stopped_at = filesystem.stopped_at
            yield filesystem
            if stopped_at is None:
                return
            if halfway or not stopped_at.startswith("write "):
                break
            halfway = True
