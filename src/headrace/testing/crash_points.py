"""Stop a piece of code at every step that it takes on the disk."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from headrace.testing.filesystem.faults import SimulatedCrash
from headrace.testing.memory_filesystem import MemoryFileSystem


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
