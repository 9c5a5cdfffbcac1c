"""A sink that is killed in the middle of a write: the same batches each time, and a process that dies at its n-th call.

The profiler tells of every call into C just before it is made, so the process dies between any two steps that a sink
or its driver takes: inside a transaction, between the parts of a batch, before and behind a commit.
"""

import os
import random
import signal
import sys
from typing import Any

from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.settings import SyncSettings
from headrace.stores.derived import ChangeBatch, Place, RowChange

TOPIC, KEYS, PER_BATCH, BATCHES = "shop.public.orders", 400, 1200, 8
Table = dict[int, dict[str, Any]]


def settings(sink: str, options: dict[str, Any]) -> SyncSettings:
    return SyncSettings("copy", TOPIC, sink, options)


def work() -> tuple[list[ChangeBatch], list[Table]]:
    """Batches, one change of a key in each; and the table before the first and behind every one."""
    chance = random.Random(5)
    batches: list[ChangeBatch] = []
    tables: list[Table] = [{}]
    for number in range(1, BATCHES + 1):
        table = {} if (clears := number == 5) else dict(tables[-1])
        changes = []
        for key in range(KEYS * 3):
            row = None if chance.random() < 0.3 else {"id": key, "n": number, "t": f"text {chance.random()}"}
            changes.append(RowChange({"id": key}, row, 0, (number - 1) * PER_BATCH + key, 1))
            if row is None:
                table.pop(key, None)
            else:
                table[key] = row
        batches.append(ChangeBatch([] if clears else changes, Place(TOPIC, {0: number}), clears))
        tables.append({} if clears else table)
    return batches, tables


def write(sink_name: str, options: dict[str, Any], calls: int) -> None:
    """Go on where the target is; die before call number `calls` into C, if writing takes so many."""
    batches, _ = work()
    sink = make_sink(settings(sink_name, options), "")
    place = sink.open()
    left = calls

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal left
        if event == "c_call":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    done = 0 if place is None else place.offsets[0]
    sys.setprofile(count)
    for batch in batches[done:]:
        sink.apply(batch)
    sys.setprofile(None)
    sink.close()
