"""Appends to two streams at once until it is killed, and prints each append that was acknowledged.

Usage: events_worker.py sqlite|postgres WHERE NAME
"""

import sys
from itertools import count

from headrace.eventsourcing.model import NewEvent, StreamAppend
from headrace.eventsourcing.postgres_store import postgres
from headrace.eventsourcing.sqlite_store import sqlite

kind, where, name = sys.argv[1:]
store = sqlite(where) if kind == "sqlite" else postgres(where, "killed")
start = max((each.version for each in store.read_stream(f"a-{name}", backward=True, limit=1)), default=0)
for number in count(start):
    events = [NewEvent("counted", str(number).encode(), (f"writer:{name}",))]
    both = [StreamAppend(f"a-{name}", events, number), StreamAppend(f"b-{name}", events, number)]
    store.append(both, command_id=f"{name}-{number}")
    print(number, flush=True)
