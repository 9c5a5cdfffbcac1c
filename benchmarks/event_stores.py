"""Our event stores beside the `eventsourcing` library, on the same SQLite and the same PostgreSQL.

    python benchmarks/event_stores.py [--rounds 3] [--stores sqlite,postgres] [--catch-up 100000,1000000] [--keep]

Appends a second with 1 and 16 writers, loads a second of an aggregate of 10, 1,000 and 100,000 events with and without
snapshots, events a second of a reader that catches up, and of a view that does. Each measurement is a process with an
empty database; the sides alternate. Both serialise to JSON, check versions and wait for the disk. Figures are kept only
with `--keep`: on a quiet machine. With `--quick` there is less of everything, and the figures mean nothing.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from harness import OURS, ROOT, Figure, alternate_all, headline, keep, scratch, verdict
from headrace.testing.postgres import Postgres

PEER, GOAL = "eventsourcing 9.5.6", 3.0
PEER_PYTHON = ROOT / ".cache" / "peers" / "eventsourcing" / "venv" / "bin" / "python"
SIDES = {
    OURS: (Path(sys.executable), ROOT / "benchmarks" / "event_stores_ours.py"),
    PEER: (PEER_PYTHON, ROOT / "benchmarks" / "event_stores_peer.py"),
}


def measurements(catch_up: list[int], *, is_quick: bool) -> dict[str, tuple[str, list[str]]]:
    """By name: the unit, and what a worker is asked for."""
    share = 20 if is_quick else 1
    found = {
        f"append, {writers} writer{'s' if writers > 1 else ''}": ("appends/s", ["append", str(writers), str(each)])
        for writers, each in ((1, 2_000 // share), (16, 400 // share))
    }
    for events, times in ((10, 2_000), (1_000, 100), (100_000 // share, 2)):
        found[f"load {events:,} events"] = ("loads/s", ["load", str(events), str(max(times // share, 1)), "no"])
        found[f"load {events:,} events, snapshot"] = ("loads/s", ["load", str(events), str(2_000 // share), "yes"])
    for events in [each // share for each in catch_up]:
        found[f"catch up {events:,} events"] = ("events/s", ["catch-up", str(events)])
    found[f"project {20_000 // share:,} events"] = ("events/s", ["project", str(20_000 // share)])
    return found


class Databases:
    """An empty database for each measurement."""

    def __init__(self, folder: Path, server: Postgres | None) -> None:
        self._folder, self._server, self._number = folder, server, 0

    def new(self) -> str:
        self._number += 1
        if self._server is None:
            return str(self._folder / f"{self._number}.db")
        with psycopg.connect(self._server.url, autocommit=True) as db:
            db.execute(f"CREATE DATABASE bench{self._number}")
        return self._server.url.rpartition("/")[0] + f"/bench{self._number}"


@contextmanager
def databases(kind: str) -> Iterator[Databases]:
    with scratch() as folder:
        if kind == "sqlite":
            yield Databases(folder, None)
        else:
            with Postgres(folder / "postgres") as server:
                yield Databases(folder, server)


def measure_anew(side: str, kind: str, made: Databases, asked: list[str]) -> float:
    python, worker = SIDES[side]
    done = subprocess.run([python, worker, kind, made.new(), *asked], check=True, text=True, stdout=subprocess.PIPE)
    return float(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--catch-up", default="100000,1000000", help="how many events, one or more numbers")
    parser.add_argument("--quick", action="store_true", help="less of everything, to see that it runs")
    parser.add_argument("--only", default="", help="measurements whose name begins so")
    parser.add_argument("--keep", action="store_true", help="keep the figures: on a quiet machine")
    asked = parser.parse_args()
    if not PEER_PYTHON.exists():
        sys.exit("the eventsourcing library is not there: run make bench-eventsourcing, which installs it")
    print(headline("event stores"))
    figures = []
    measured = measurements([int(each) for each in asked.catch_up.split(",")], is_quick=asked.quick)
    for kind in asked.stores.split(","):
        with databases(kind) as made:
            for name, (unit, what) in measured.items():
                if not name.startswith(asked.only):
                    continue
                sides = {side: partial(measure_anew, side, kind, made, what) for side in SIDES}
                figure = Figure.of(f"{kind}: {name}", unit, alternate_all(sides, asked.rounds))
                figures.append(figure)
                values = ", ".join(f"{side} {value:,.0f}" for side, value in figure.values.items())
                ratio = figure.ratios[PEER]
                print(f"{figure.name:45} {values} {unit}  {ratio:.2f}×  {verdict(ratio, GOAL)}", flush=True)
    if asked.keep:
        keep("eventsourcing", figures, asked.rounds)


if __name__ == "__main__":
    main()
