"""Datagrams from a socket into an aggregator, in batches as large as what came meanwhile.

A batch of one costs as much as one of thirty. So where there is little to do, a receiver of UDP sleeps for two
thousandths of a second before it looks again, as a network card waits before it interrupts; never so long that a
million packets a second would fill a quarter of what the kernel holds for it. A Unix socket holds ten, so there it
never sleeps.
"""

import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from headrace.gateways.statsd.aggregation import Aggregator
from headrace.gateways.statsd.packets import Batch, buffer_of

_NAP_S: Final = 0.002
_SHORTEST_NAP_S: Final = 0.0002
_FEW: Final = 32
_HELD_BYTES: Final = 1280  # by the kernel, for a small packet
_MOST_A_S: Final = 1_000_000
_LAST_BATCHES: Final = 256  # of datagrams that are with the kernel when it is time to end

Intake = Callable[[threading.Event], None]


def packet_intake(bound: socket.socket, aggregator: Aggregator, lock: threading.Lock, *, naps: bool) -> Intake:
    """What a thread of its own does until it is told to stop."""
    fitting = buffer_of(bound) / _HELD_BYTES / _MOST_A_S / 4
    nap_s = min(_NAP_S, fitting) if naps and fitting >= _SHORTEST_NAP_S else 0.0

    def take(stopping: threading.Event) -> None:
        batch = Batch()
        read = aggregator.reader(batch)
        while not stopping.is_set():
            count = batch.receive(bound)
            if not count:
                continue
            with lock:
                read(count)
            if nap_s and count < _FEW:
                time.sleep(nap_s)
        for _ in range(_LAST_BATCHES):
            if not (count := batch.receive(bound, wait=False)):
                break
            with lock:
                read(count)

    return take
