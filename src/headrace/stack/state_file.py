"""What a supervisor writes down for others to read: who runs, as which process, and how it fares; and its lock.

One supervisor a folder holds a file locked, with its process in it. The lock is the kernel's: it goes with its process,
however that ends, so what a killed one leaves behind stops nobody.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.stack.errors import AlreadyRunning, StackError
from headrace.stack.machine import FINE, Phase
from headrace.stack.usage import process_of

_FORMAT: Final = 1
DOWN: Final = "down"


@dataclass(frozen=True, slots=True)
class MemberState:
    name: str
    kind: str
    phase: str
    pid: int | None = None
    since_ms: int = 0
    restarts: int = 0
    note: str = ""  # what it waits for, or what is wrong
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_fine(self) -> bool:
        """Whether it does its work, or has done it."""
        return self.phase in FINE


@dataclass(frozen=True, slots=True)
class StackState:
    """A stack as its supervisor last wrote it down."""

    pid: int
    began_ticks: int  # when the kernel started that process: another one may have its number by now
    since_ms: int
    file: str
    bootstrap: str
    members: tuple[MemberState, ...]
    format: int = _FORMAT

    @property
    def is_fine(self) -> bool:
        return all(member.is_fine for member in self.members)


def path_in(folder: Path) -> Path:
    return folder / STATE_FOLDER / "state.json"


def write(folder: Path, state: StackState) -> None:
    """Write it whole, so that nobody reads a half."""
    path = path_in(folder)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(state), ensure_ascii=False), encoding="utf-8")
    os.replace(partial, path)


def read(folder: Path) -> StackState | None:
    """How the stack of a folder stands; None if it never ran. Whose supervisor is gone is down, all of it."""
    try:
        found = json.loads(path_in(folder).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StackError(f"{path_in(folder)} cannot be read ({error}): start the stack anew with headrace up") from None
    if found.get("format") != _FORMAT:
        raise StackError(f"{path_in(folder)} was written by another version: start the stack anew with headrace up")
    found["members"] = tuple(MemberState(**member) for member in found["members"])
    state = StackState(**found)
    process = process_of(state.pid)
    if process is not None and process.began_ticks == state.began_ticks:
        return state
    return StackState(**(found | {"members": tuple(map(_down, state.members))}))


def running_bootstrap(folder: Path) -> str:
    """Where the broker of a folder's stack is while the stack runs; empty otherwise."""
    try:
        state = read(folder)
    except (OSError, StackError):
        return ""  # `headrace status` says what is wrong with it
    ended = (DOWN, Phase.DONE, Phase.FAILED)
    if state is None or all(member.phase in ended for member in state.members):
        return ""
    return state.bootstrap


def _down(member: MemberState) -> MemberState:
    if member.phase in (Phase.DONE, Phase.FAILED):
        return member
    return MemberState(member.name, member.kind, DOWN, None, member.since_ms, member.restarts, member.note, {})


STATE_FOLDER = Path(".headrace") / "stack"


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a stack's folder; raises `AlreadyRunning` if somebody else does."""
    file = folder / STATE_FOLDER / "lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AlreadyRunning(str(folder), int(lock.read().strip() or 0)) from None
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
