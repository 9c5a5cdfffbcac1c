"""What processes use, with all that they have started: processor and memory, as the kernel counts them."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """One process, as `/proc/PID/stat` has it."""

    pid: int
    parent: int
    cpu_s: float
    memory_bytes: int
    began_ticks: int


class Usage(NamedTuple):
    cpu_s: float
    memory_bytes: int
    processes: int


def parse_stat(line: str) -> Process:
    """A line of `/proc/PID/stat`; the name in it may hold anything, parentheses too."""
    pid, _, rest = line.partition(" ")
    fields = rest.rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return Process(int(pid), int(fields[1]), ticks / _TICKS_PER_S, int(fields[21]) * _PAGE_BYTES, int(fields[19]))


def process_of(pid: int) -> Process | None:
    """One process; None if it is gone, or only waits for its parent to hear of its end."""
    try:
        line = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return None if line.rpartition(")")[2].split()[0] == "Z" else parse_stat(line)


def processes() -> list[Process]:
    found = (process_of(int(folder.name)) for folder in _PROC.iterdir() if folder.name.isdecimal())
    return [process for process in found if process]


def usage_of(pids: Iterable[int], all_processes: Iterable[Process]) -> dict[int, Usage]:
    """What each of these uses with its descendants; who is gone is left out."""
    by_pid: dict[int, Process] = {}
    children: dict[int, list[int]] = {}
    for process in all_processes:
        by_pid[process.pid] = process
        children.setdefault(process.parent, []).append(process.pid)
    return {pid: _sum(pid, by_pid, children) for pid in pids if pid in by_pid}


def _sum(pid: int, by_pid: Mapping[int, Process], children: Mapping[int, list[int]]) -> Usage:
    family, at = [pid], 0
    while at < len(family):
        family += children.get(family[at], [])
        at += 1
    return Usage(sum(by_pid[one].cpu_s for one in family), sum(by_pid[one].memory_bytes for one in family), len(family))
