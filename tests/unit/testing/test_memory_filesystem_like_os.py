"""Without faults the file system in memory is the operating system's, over any sequence of operations.

And over any such sequence with syncs, a crash keeps what was synced and invents nothing.
"""

import errno
import tempfile
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.filesystem import File, FileSystem, OsFileSystem
from headrace.testing import MemoryFileSystem
from tests.property.storage_model import examples

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
SIZES = st.integers(0, 40) | st.sampled_from([0, 511, 512, 4095, 4096, 4097, 9000])
DATA = st.binary(max_size=30) | st.builds(lambda byte, size: bytes([byte]) * size, st.integers(1, 255), SIZES)
SLOTS = st.integers(0, 2)

OPERATIONS = st.one_of(
    st.tuples(st.just("open"), SLOTS, PATHS, st.booleans()),
    st.tuples(st.just("open_to_read"), SLOTS, PATHS),
    st.tuples(st.just("write_at"), SLOTS, st.lists(DATA, max_size=3), SIZES),
    st.tuples(st.just("read_at"), SLOTS, SIZES, SIZES),
    st.tuples(st.just("truncate"), SLOTS, SIZES),
    st.tuples(st.sampled_from(["file_size", "file_sync", "close"]), SLOTS),
    st.tuples(st.just("replace"), PATHS, PATHS),
    st.tuples(
        st.sampled_from(
            ["make_directory", "read", "remove", "list", "exists", "size", "remove_directory", "sync_directory"]
        ),
        PATHS,
    ),
)


@dataclass
class Program:
    """Operations by name on one file system, with three slots for open files."""

    filesystem: FileSystem
    root: str
    slots: dict[int, File] = field(default_factory=dict)

    def run(self, operation: tuple) -> object:
        try:
            return self._run(*operation)
        except OSError as error:
            return type(error).__name__, error.errno
        except ValueError:
            # Python refuses to `fdatasync` a closed file's -1 before the operating system can.
            assert operation[0] == "file_sync"
            return "OSError", errno.EBADF

    def _run(self, name: str, *arguments) -> object:
        if name == "open":
            slot, path, create = arguments
            self.slots[slot] = self.filesystem.open(self._path(path), create=create)
            return None
        if name == "open_to_read":
            slot, path = arguments
            if not self._is_folder(path):
                self.slots[slot] = self.filesystem.open_to_read(self._path(path))
            return None
        if name in ("write_at", "read_at", "truncate", "file_size", "file_sync", "close"):
            slot, *rest = arguments
            if slot not in self.slots:
                return None
            return getattr(self.slots[slot], name.removeprefix("file_"))(*rest)
        if name == "size" and self._is_folder(arguments[0]):
            return "a folder's size is the file system's own affair"
        return getattr(self.filesystem, name)(*map(self._path, arguments))

    def _is_folder(self, path: str) -> bool:
        try:
            self.filesystem.list(self._path(path))
        except OSError:
            return False
        return True

    def _path(self, path: str) -> str:
        return f"{self.root}/{path}"

    def close(self) -> None:
        for file in self.slots.values():
            file.close()


def snapshot(filesystem: FileSystem, root: str) -> dict[str, bytes | None]:
    """Every path below the root, with the content of files."""
    found: dict[str, bytes | None] = {}

    def visit(path: str) -> None:
        for name in filesystem.list(path):
            child = f"{path}/{name}"
            try:
                found[child.removeprefix(root)] = filesystem.read(child)
            except IsADirectoryError:
                found[child.removeprefix(root)] = None
                visit(child)

    visit(root)
    return found


def sync_everything(filesystem: FileSystem, root: str) -> None:
    for path, content in snapshot(filesystem, root).items():
        if content is None:
            filesystem.sync_directory(root + path)
        else:
            filesystem.open(root + path).sync()
    filesystem.sync_directory(root)
    filesystem.sync_directory("/")


@examples(400)
@given(st.lists(OPERATIONS, max_size=40))
def test_behaves_as_the_operating_system(operations: list[tuple]) -> None:
    memory = MemoryFileSystem()
    memory.make_directory("root")
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Program(memory, "root"), Program(OsFileSystem(), folder)
        for operation in operations:
            assert ours.run(operation) == theirs.run(operation), operation
        expected = snapshot(theirs.filesystem, folder)
        theirs.close()
    assert snapshot(memory, "root") == expected
    ours.close()
    assert memory.used_bytes == sum(len(content) for content in expected.values() if content is not None)
    assert snapshot(memory.crash(mode="keep_everything"), "root") == expected


@examples(300)
@given(st.lists(OPERATIONS | st.tuples(st.just("write_back"), st.integers(0, 99)), max_size=40), st.integers(0, 999))
def test_what_is_synced_survives_whatever_the_kernel_wrote_before(operations: list[tuple], seed: int) -> None:
    memory = MemoryFileSystem()
    memory.make_directory("root")
    program = Program(memory, "root")
    for operation in operations:
        if operation[0] == "write_back":
            memory.write_back(Random(operation[1]))
        else:
            program.run(operation)
    sync_everything(memory, "root")
    expected = snapshot(memory, "root")
    assert snapshot(memory.crash(mode="lose_everything"), "root") == expected
    assert snapshot(memory.crash(Random(seed)), "root") == expected


@examples(300)
@given(st.lists(OPERATIONS, max_size=20), st.lists(OPERATIONS, max_size=30), st.integers(0, 999))
def test_a_crash_leaves_alone_what_was_not_touched_and_invents_nothing(
    before: list[tuple], after: list[tuple], seed: int
) -> None:
    memory = MemoryFileSystem()
    for folder in ("kept", "root"):
        memory.make_directory(folder)
    kept = Program(memory, "kept")
    for operation in before:
        kept.run(operation)
    sync_everything(memory, "kept")
    expected = snapshot(memory, "kept")
    touched = Program(memory, "root")
    for operation in after:
        touched.run(operation)
    crashed = memory.crash(Random(seed))
    assert snapshot(crashed, "kept") == expected
    written = {0}.union(*(buffer for name, *rest in after if name == "write_at" for buffer in rest[1]))
    left = snapshot(crashed, "root")
    assert all(written.issuperset(content) for content in left.values() if content is not None)
    assert snapshot(memory.crash(Random(seed)), "root") == left
    assert crashed.used_bytes == sum(
        len(content)
        for content in (left | {f"kept{path}": each for path, each in expected.items()}).values()
        if content
    )
