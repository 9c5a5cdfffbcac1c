"""Keeps a view of counted events until it is killed, and prints each position that it has come to.

Usage: projection_worker.py EVENTS_URL VIEWS_URL BATCH
"""

import sys
from dataclasses import dataclass
from typing import Any

from headrace.eventsourcing.event_types import EventTypes
from headrace.eventsourcing.model import StoredEvent
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.projection import Projection, View
from headrace.eventsourcing.projection_runner import ProjectionRunner

types = EventTypes()
sums = Projection("sums", tables={"by_stream": "", "applied": "position bigint PRIMARY KEY"}, types=types)


@types.event("counted")
@dataclass(frozen=True)
class Counted:
    number: int


@sums.on
def counted(view: View, event: Counted, stored: StoredEvent) -> None:
    view.run("INSERT INTO {applied} VALUES (?)", (stored.position,))  # fails if it is there already
    rows = view.table("by_stream")
    rows.put(stored.stream, {"sum": rows.get(stored.stream, {"sum": 0})["sum"] + event.number})


def open_runner(events: str, views: str, batch: int = 7) -> ProjectionRunner:
    return ProjectionRunner(open_store(events), sums, views=views or None, batch=batch)


def main(events: str, views: str, batch: str) -> None:
    runner: Any = open_runner(events, views, int(batch))
    print("ready", flush=True)
    while True:
        runner._step(0.05)  # what `run` does
        print(runner.position, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
