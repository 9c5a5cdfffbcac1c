"""A publisher or a subscriber as a process of its own; what it is told and what it saw are JSON."""

import hashlib
import json
import sys
import time
from random import Random
from typing import Any

from headrace.gateways.multicast import (
    Began,
    Ended,
    Lost,
    Message,
    Publisher,
    ReceivingSettings,
    SendingSettings,
    Subscriber,
)


def value_of(label: str, index: int, size: int) -> bytes:
    return f"{label}:{index}:".encode() + Random(index).randbytes(size)


def publish(told: dict[str, Any]) -> None:
    key = told["key"].encode() if "key" in told else None
    settings = SendingSettings(**told.get("settings", {}))
    publisher = Publisher(told["group"], name=told["name"], interface=told["interface"], key=key, settings=settings)
    print(json.dumps(str(publisher.session)), flush=True)
    sizes = told["sizes"]
    for index in range(told["messages"]):
        publisher.publish(value_of(told["name"], index, sizes[index % len(sizes)]))
        time.sleep(told.get("pause_s", 0))
    if told.get("lingers"):
        publisher.flush()
        print(json.dumps("flushed"), flush=True)
        sys.stdin.readline()
    publisher.close(10.0)
    counts = publisher.counts
    print(json.dumps({"repairs": counts.repairs, "naks": counts.naks, "datagrams": counts.datagrams}), flush=True)


def subscribe(told: dict[str, Any]) -> None:
    key = told["key"].encode() if "key" in told else None
    settings = ReceivingSettings(**told.get("settings", {}))
    seen: list[dict[str, Any]] = []
    ended = 0
    with Subscriber(told["group"], interface=told["interface"], key=key, settings=settings) as subscriber:
        print(json.dumps("ready"), flush=True)
        until = time.monotonic() + told.get("seconds", 60)
        while ended < told["sessions"] and (left := until - time.monotonic()) > 0:
            event = subscriber.get(left)
            match event:
                case Message():
                    digest = hashlib.sha256(event.value or b"").hexdigest()
                    seen.append({"session": str(event.session), "number": event.number, "value": digest})
                case Lost():
                    seen.append({"session": str(event.session), "lost": [event.first, event.last, event.count]})
                case Began():
                    previous = str(event.previous) if event.previous else None
                    seen.append({"session": str(event.session), "began": previous})
                case Ended():
                    ended += 1
                    seen.append({"session": str(event.session), "ended": event.is_clean})
        counts = subscriber.counts
    told_counts = {"invalid": counts.invalid, "repaired": counts.repaired, "duplicates": counts.duplicates}
    print(json.dumps({"seen": seen, "counts": told_counts, "problem": counts.problem}), flush=True)


if __name__ == "__main__":
    (publish if sys.argv[1] == "publish" else subscribe)(json.loads(sys.argv[2]))
