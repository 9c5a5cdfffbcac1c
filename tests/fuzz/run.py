"""`make fuzz`: a million requests and ten thousand damaged data directories, and a table of what came of them.

Lives of a broker under requests (`life.py`), damaged directories (`directories.py`) and a broker on real sockets
(`sockets.py`) are spread over processes. Each has a number, and with the seed the number makes it again: the same seed
is the same run. What fails is written down as small as it can be made, and `--replay FILE` runs it again.
"""

import argparse
import io
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from headrace.broker.registry import SERVED
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from tests.fuzz import sockets
from tests.fuzz.directories import open_damaged
from tests.fuzz.frames import API_VERSIONS
from tests.fuzz.life import FRAMES_A_LIFE, Event, live

SOCKET_SHARE = 20  # every so many frames one goes over a real socket
DIRECTORIES_A_TASK = 25
MAX_GROWTH_MIB = 300  # of a process that has lived so many lives
_SHRINKING_RUNS = 60
_PROGRESS_S = 10


class Task(NamedTuple):
    kind: str
    seed: int
    first: int
    count: int


class Done(NamedTuple):
    """What came of a task; failures as they are written down."""

    counts: Counter[str]
    failures: list[dict[str, Any]]
    slowest: tuple[float, int, int]
    pid: int
    rss_mib: float


def work(task: Task) -> Done:
    with redirect_stdout(io.StringIO()):
        counts, failures, slowest = _WORK[task.kind](task)
    return Done(counts, failures, slowest, os.getpid(), sockets.resident_mib(os.getpid()))


def _live(task: Task) -> tuple[Counter[str], list[dict[str, Any]], tuple[float, int, int]]:
    seed = task.seed + task.first
    outcome = live(seed, task.count)
    failures = []
    if outcome.failure:
        events = shrink(seed, outcome.events, _summary(outcome.failure))
        failures.append(
            {"kind": "life", "seed": seed, "failure": outcome.failure, "events": list(map(_written, events))}
        )
    return outcome.counts, failures, outcome.slowest


def _open(task: Task) -> tuple[Counter[str], list[dict[str, Any]], tuple[float, int, int]]:
    counts: Counter[str] = Counter()
    failures = []
    for index in range(task.first, task.first + task.count):
        result = open_damaged(task.seed, index)
        counts += result.counts
        if result.failure:
            facts = {"kind": "directory", "seed": task.seed, "index": index}
            failures.append({**facts, "damage": result.notes, "failure": result.failure})
    return counts, failures, (0.0, -1, -1)


def _attack(task: Task) -> tuple[Counter[str], list[dict[str, Any]], tuple[float, int, int]]:
    report = sockets.attack(task.seed, task.count)
    counts = Counter({f"socket {name}": count for name, count in report.counts.items()})
    counts["socket rss before"], counts["socket rss after"] = round(report.rss_before_mib), round(report.rss_after_mib)
    facts = {"kind": "sockets", "seed": task.seed, "frames": task.count}
    return counts, [{**facts, "failure": report.failure}] if report.failure else [], (0.0, -1, -1)


_WORK = {"life": _live, "directories": _open, "sockets": _attack}


# --- reproducers


def _summary(failure: str) -> str:
    """What two failures have in common that are one: the last line, without numbers."""
    return "".join(letter for letter in failure.strip().splitlines()[-1] if not letter.isdigit())


def shrink(seed: int, events: list[Event], summary: str) -> list[Event]:
    """Fewer events that end in the same failure; halves, quarters and so on are left out as long as it does."""
    runs = 0
    size = len(events) // 2
    while size and runs < _SHRINKING_RUNS:
        start = 0
        while start < len(events) and runs < _SHRINKING_RUNS:
            fewer = events[:start] + events[start + size :]
            runs += 1
            failure = live(seed, replayed=fewer).failure
            if failure and _summary(failure) == summary:
                events = fewer
            else:
                start += size
        size //= 2
    return events


def _written(event: Event) -> dict[str, Any]:
    return {"what": event.what, "client": event.client, "data": event.data.hex(), "number": event.number}


def replay(path: Path) -> str | None:
    """Run what was written down once more; the failure, if it still fails."""
    facts = json.loads(path.read_text())
    if facts["kind"] == "life":
        events = [Event(**{**each, "data": bytes.fromhex(each["data"])}) for each in facts["events"]]
        return live(facts["seed"], replayed=events).failure
    if facts["kind"] == "directory":
        return open_damaged(facts["seed"], facts["index"]).failure
    return sockets.attack(facts["seed"], facts["frames"]).failure


# --- a whole run


class Totals:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []
        self.slowest = (0.0, -1, -1)
        self._rss: dict[int, tuple[float, float]] = {}

    def add(self, done: Done) -> None:
        self.counts += done.counts
        self.failures += done.failures
        self.slowest = max(self.slowest, done.slowest)
        self._rss[done.pid] = (self._rss.get(done.pid, (done.rss_mib, 0.0))[0], done.rss_mib)

    def check_memory(self) -> None:
        for pid, (before, after) in self._rss.items():
            if after - before > MAX_GROWTH_MIB:
                self.failures.append(
                    {"kind": "memory", "failure": f"process {pid} grew {before:.0f} → {after:.0f} MiB"}
                )

    def facts(self) -> dict[str, Any]:
        counts = self.counts
        covered = [pair for pair in API_VERSIONS if counts[f"answered {int(pair[0])} {pair[1]}"]]
        errors = {_error_name(name): n for name, n in counts.most_common() if name.startswith("error ")}
        took_s, key, version = self.slowest
        return {
            "frames": counts["frames"] + counts["socket frames"],
            "frames on sockets": counts["socket frames"],
            "APIs × versions answered": f"{len(covered)} of {len(API_VERSIONS)} ({len(SERVED)} APIs)",
            "answers": counts["answers"],
            "answers by error": errors,
            "connections closed": counts["closed"] + counts["socket closed"],
            "log lines": {name[4:]: n for name, n in counts.most_common() if name.startswith("log ")},
            "slowest frame": f"{took_s * 1000:.1f} ms ({_api_name(key)} v{version})",
            "neighbour on a socket, slowest": f"{counts['socket neighbour slowest ms']} ms",
            "RSS of the broker on sockets": f"{counts['socket rss before']} → {counts['socket rss after']} MiB",
            "RSS of the processes": {str(pid): f"{a:.0f} → {b:.0f} MiB" for pid, (a, b) in self._rss.items()},
            "directories": counts["directories"],
            "directories opened": counts["opened"],
            "directories refused in a sentence": counts["refused"],
            "batches served damaged, as their checksum tells": counts["served, and the checksum tells"],
            "batches moved by their unprotected offset": counts["moved"],
            "failures": len(self.failures),
        }


def _error_name(name: str) -> str:
    try:
        return ErrorCode(int(name[6:])).name
    except ValueError:
        return name[6:]


def _api_name(key: int) -> str:
    try:
        return ApiKey(key).name
    except ValueError:
        return str(key)


def tasks(seed: int, frames: int, directories: int) -> Iterator[Task]:
    on_sockets = frames // SOCKET_SHARE
    if on_sockets:
        yield Task("sockets", seed, 0, on_sockets)
    for number, first in enumerate(range(0, frames - on_sockets, FRAMES_A_LIFE)):
        yield Task("life", seed * 1_000_000, number, min(FRAMES_A_LIFE, frames - on_sockets - first))
    for first in range(0, directories, DIRECTORIES_A_TASK):
        yield Task("directories", seed, first, min(DIRECTORIES_A_TASK, directories - first))


def run(seed: int, frames: int, directories: int, processes: int, folder: Path, *, quiet: bool) -> Totals:
    totals = Totals()
    began_s = told_s = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done in pool.imap_unordered(work, tasks(seed, frames, directories)):
            totals.add(done)
            for failure in done.failures:
                path = write_down(folder, failure)
                print(f"FAILED {path}: {_summary(failure['failure'])}", file=sys.stderr, flush=True)
            if not quiet and time.monotonic() - told_s > _PROGRESS_S:
                told_s = time.monotonic()
                counts = totals.counts
                print(
                    f"{told_s - began_s:6.0f} s  {counts['frames'] + counts['socket frames']:,} frames  "
                    f"{counts['directories']:,} directories  {len(totals.failures)} failures",
                    file=sys.stderr,
                    flush=True,
                )
    totals.check_memory()
    return totals


def write_down(folder: Path, failure: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{failure['kind']}-{failure.get('seed', 0)}-{failure.get('index', 0)}.json"
    path.write_text(json.dumps(failure, indent=1))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="Send a broker requests of any kind, and damage its data.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--directories", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path(".cache/fuzz"), help="where failures are written down")
    parser.add_argument("--replay", type=Path, help="run a failure again that was written down")
    parser.add_argument("--json", action="store_true", help="the summary as JSON, without progress")
    given = parser.parse_args()
    if given.replay:
        with redirect_stdout(io.StringIO()):
            failure = replay(given.replay)
        print(failure or "it does not fail any more")
        return int(failure is not None)
    began_s = time.monotonic()
    totals = run(given.seed, given.frames, given.directories, given.processes, given.out, quiet=given.json)
    facts = {"seed": given.seed, "seconds": round(time.monotonic() - began_s), **totals.facts()}
    if given.json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        for name, value in facts.items():
            shown = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
            print(f"{name:<48} {shown}")
    return int(bool(totals.failures))


if __name__ == "__main__":
    sys.exit(main())
