"""The public test kit: what a test of Headrace, or of a program built on it, holds still and breaks on purpose.

- `FakeClock` is a clock that moves only by hand.
- `MemoryFileSystem` is a disk in memory that crashes, tears, rots, fills up and fails on demand.
- `crash_points` runs a piece of code again and again, and stops it at every step it takes on the disk.
- `given` begins a test of a decision: `given(account, Opened("ann")).when(Withdraw(3)).then(Refused("…"))`.
- `check_event_schemas` fails if event classes could not read what was recorded of them.
"""

from headrace.testing.clock import FakeClock
from headrace.testing.events import check_event_schemas, given
from headrace.testing.filesystem.faults import Counts, Fault, SimulatedCrash
from headrace.testing.memory_filesystem import CrashMode, MemoryFileSystem, crash_points

__all__ = [
    "Counts",
    "CrashMode",
    "FakeClock",
    "Fault",
    "MemoryFileSystem",
    "SimulatedCrash",
    "check_event_schemas",
    "crash_points",
    "given",
]
