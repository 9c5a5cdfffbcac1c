"""Failures that a test orders, counters, and the crash that stops a program.

A fault waits for operations of one kind on paths that match a pattern, lets the first few pass if it is told so, hits
a number of times, and is over. Where several match, the one ordered first hits.
"""

from dataclasses import dataclass, field
from errno import EIO
from fnmatch import fnmatchcase
from typing import Literal

OperationKind = Literal[
    "open",
    "read",
    "write",
    "truncate",
    "sync",
    "replace",
    "remove",
    "list",
    "make_directory",
    "remove_directory",
    "sync_directory",
]


class SimulatedCrash(BaseException):
    """The process was stopped here by a test; no `except Exception` gets hold of it."""


@dataclass(slots=True)
class Counts:
    """How many operations were tried on a path, failed ones among them."""

    reads: int = 0
    writes: int = 0
    syncs: int = 0


@dataclass(slots=True, eq=False)
class Fault:
    """One ordered failure; `hits` says how often it has struck."""

    kind: OperationKind
    pattern: str
    times: int | None = 1
    skip: int = 0
    error: int = EIO
    # For reads: the bytes that cannot be read.
    start: int = 0
    end: int | None = None
    # For writes: how many bytes are written nevertheless, and whether that is reported as an error.
    at_most_bytes: int | None = 0
    is_error: bool = True
    hits: int = 0

    def __post_init__(self) -> None:
        self.pattern = self.pattern.strip("/")
        if self.times is not None and self.times < 1:
            raise ValueError(f"a fault strikes at least once, not {self.times} times; None means until it is healed")
        if self.skip < 0:
            raise ValueError(f"a fault cannot skip {self.skip} operations")

    def bytes_let_through(self, wanted: int) -> int:
        """How much of a write is written before this fault stops it."""
        limit = wanted // 2 if self.at_most_bytes is None else self.at_most_bytes
        return min(wanted, limit)


@dataclass(slots=True)
class FaultPlan:
    """The faults that have not struck as often as they are meant to."""

    pending: list[Fault] = field(default_factory=list)

    def add(self, fault: Fault) -> Fault:
        self.pending.append(fault)
        return fault

    def heal(self, fault: Fault | None) -> None:
        self.pending = [] if fault is None else [other for other in self.pending if other is not fault]

    def strike(self, kind: OperationKind, *paths: str, start: int = 0, size: int = 0) -> Fault | None:
        """The fault that hits this operation, counted as a hit; `start` and `size` are the bytes to read or write."""
        for fault in self.pending:
            if fault.kind != kind or not any(fnmatchcase(path, fault.pattern) for path in paths):
                continue
            if kind == "read" and (start + size <= fault.start or (fault.end is not None and start >= fault.end)):
                continue
            if kind == "write" and not fault.is_error and not 0 < fault.bytes_let_through(size) < size:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.hits += 1
            if fault.hits == fault.times:
                self.heal(fault)
            return fault
        return None
