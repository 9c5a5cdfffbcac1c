"""Sends the records of a topic to one endpoint until it is killed, or kills itself at a step.

Usage: webhook_sender_worker.py BOOTSTRAP URL [TOPIC STEP]
"""

import os
import signal
import sys
import threading
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.client.transactions import Transactions
from headrace.connect import delivery
from headrace.gateways.webhook_sender.courier import Courier
from headrace.gateways.webhook_sender.kind import KIND
from headrace.section_keys import with_defaults

bootstrap, url = sys.argv[1:3]
topic, step = sys.argv[3:] or ("killed", "never")
sent = threading.Event()


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def then_die(function: Any, *, is_first: bool = False) -> Any:
    """Once something was sent: before, or after it."""

    def call(*values: Any, **named: Any) -> Any:
        if sent.is_set() and is_first:
            die()
        found = function(*values, **named)
        if sent.is_set():
            die()
        return found

    return call


post = Courier._post


def posted(*values: Any) -> Any:
    found = post(*values)
    sent.set()
    if step == "answered":
        die()
    return found


Courier._post = posted  # type: ignore[method-assign]
match step:
    case "before":
        Transactions.add = then_die(Transactions.add, is_first=True)  # type: ignore[method-assign]
    case "added":
        Transactions.add = then_die(Transactions.add)  # type: ignore[method-assign]
    case "sent":
        delivery.send = then_die(delivery.send)
    case "committed":
        Transactions.commit = then_die(Transactions.commit)  # type: ignore[method-assign]

endpoint = {
    "topic": topic, "url": url, "unsigned": True, "from": "start", "first_pause": "20 ms", "longest_pause": "50 ms",
}  # fmt: skip
given = {"endpoints": {"e": endpoint}, "allow_private": ["127.0.0.1"]}
stopping = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())
KIND.make(topic, with_defaults(KIND.keys, given), parse_bootstrap(bootstrap), stopping).run()
