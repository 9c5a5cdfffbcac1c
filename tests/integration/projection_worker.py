"""Keeps a view of counted events until it is killed, and prints each position that it has come to.

Usage: projection_worker.py EVENTS_URL VIEWS_URL BATCH

With `inline` as BATCH it appends such events itself, and prints each number that was acknowledged.
"""

import sys
from dataclasses import dataclass
from itertools import count
from typing import Any

from headrace.eventsourcing.event_types import EventTypes
from headrace.eventsourcing.model import StoredEvent, StreamAppend
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.projection import Projection, View
from headrace.eventsourcing.projection_runner import ProjectionRunner, project_inline

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


def append_inline(events: str) -> None:
    store = open_store(events)
    project_inline(store, sums)
    print("ready", flush=True)
    for number in count(1):
        new = [types.encode(Counted(number)), types.encode(Counted(-1))]
        store.append([StreamAppend(f"s-{number % 3}", new)])
        print(number, flush=True)


def main(events: str, views: str, batch: str) -> None:
    if batch == "inline":
        append_inline(events)
    runner: Any = open_runner(events, views, int(batch))
    print("ready", flush=True)
    while True:
        runner._step(0.05)  # what `run` does
        print(runner.position, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
