"""What the reference daemon of StatsD adds the shared packets up to: asked anew, or as it did when it was last asked.

python -m tests.conformance.statsd_answers     asks it, and writes `statsd_answers.json`
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers.statsd.daemon import StatsdDaemon
from tests.conformance.statsd_cases import BUCKETS, CASES, PERCENTILES

_FROZEN = Path(__file__).with_suffix(".json")
_INTERVAL_MS = 500
_OWN = "statsd."
Interval = dict[str, Any]


def ask(folder: Path) -> dict[str, list[Interval]]:
    """By the name of the case what each of its intervals adds up to; rates are a second."""
    return {name: _ask(folder, name, intervals) for name, intervals in CASES.items()}


def _ask(folder: Path, name: str, intervals: list[list[bytes]]) -> list[Interval]:
    own = folder / name.replace(" ", "-")
    own.mkdir()
    settings = {
        "percentThreshold": list(PERCENTILES), "deleteIdleStats": True, "deleteGauges": False,
        "histogram": [{"metric": "", "bins": list(BUCKETS)}],
    }  # fmt: skip
    found: list[Interval] = []
    with StatsdDaemon(own, _INTERVAL_MS, settings) as daemon, socket.socket(type=socket.SOCK_DGRAM) as there:
        for packets in intervals:
            before = _wait_for_next(daemon)
            for packet in packets:
                there.sendto(packet, ("127.0.0.1", daemon.port))
            while len(found_now := daemon.intervals()) == before:
                time.sleep(0.01)
            found.append(_own_left_out(found_now[before]))
    return found


def _wait_for_next(daemon: StatsdDaemon) -> int:
    """Begin right after an interval has ended; how many have."""
    count = len(daemon.intervals())
    while len(daemon.intervals()) == count:
        time.sleep(0.005)
    return count + 1


def _own_left_out(interval: Interval) -> Interval:
    interval["bad_lines"] = interval["counters"][f"{_OWN}bad_lines_seen"]
    return {
        part: {key: value for key, value in values.items() if not key.startswith(_OWN)}
        if isinstance(values, dict)
        else values
        for part, values in interval.items()
    }


def frozen() -> dict[str, Any]:
    """What it answered, and the packets that it was asked with."""
    answers: dict[str, Any] = json.loads(_FROZEN.read_text())
    if answers["asked"] != _asked():
        raise AssertionError("the cases were changed since: run python -m tests.conformance.statsd_answers")
    return answers


def _asked() -> str:
    return hashlib.sha256(repr([CASES, PERCENTILES, BUCKETS]).encode()).hexdigest()[:12]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        answers = ask(Path(folder))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    _FROZEN.write_text(f'{{"interval_ms": {_INTERVAL_MS}, "asked": "{_asked()}", "answers": {{\n{lines}\n}}}}\n')
    print(f"{len(answers)} cases are in {_FROZEN.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
