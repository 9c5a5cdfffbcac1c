"""Keeps transfers going until it is killed, and sends their effects into a file; prints a line for each turn.

Usage: process_worker.py EVENTS_URL OUTBOX_URL EFFECTS_FILE
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.process_effects import EffectRunner
from headrace.eventsourcing.process_runner import ProcessRunner
from tests.unit.eventsourcing.transfers import transferring

events, outbox, file = sys.argv[1:]
store = open_store(events)
runner = ProcessRunner(store, transferring, batch=3)


def write(payload: Mapping[str, Any], key: str) -> None:
    with open(file, "ab", buffering=0) as effects:
        effects.write(json.dumps({"key": key, **payload}).encode() + b"\n")
        os.fsync(effects.fileno())


effects = EffectRunner(store, transferring, write, outbox=outbox)
print("ready", flush=True)
while True:
    runner._advance(0.05)
    effects.settle()
    print("turn", flush=True)
