"""A queue before a socket, for policies that its library does not have, or not so that it can be closed in order.

A thread of its own takes messages from a queue of bounded length to the socket, as that has room; when the queue is
full the oldest message is dropped and counted, or the new one is not taken. A message is dropped or handed to the
socket, never both.
"""

import threading
import time
from collections import deque
from typing import Final, Protocol

from headrace.gateways.messaging.forms import Frame

_LOOK_EVERY_S: Final = 0.1


class Outlet(Protocol):
    def try_send(self, frame: Frame) -> bool: ...

    def wait_writable(self, timeout_s: float) -> None: ...


class Outbox:
    """A queue before a socket; only its thread uses the socket."""

    def __init__(self, outlet: Outlet, most: int, *, drops_oldest: bool) -> None:
        self._outlet = outlet
        self._most = most
        self._drops_oldest = drops_oldest
        self._queue: deque[Frame] = deque()
        self._changed = threading.Condition()
        self._close_by: float | None = None
        self.dropped = 0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-outbox", daemon=True)
        self._thread.start()

    def put(self, frame: Frame) -> bool:
        """Whether it was taken."""
        with self._changed:
            if self.error is not None:
                raise self.error
            if len(self._queue) >= self._most:
                if not self._drops_oldest:
                    return False
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(frame)
            self._changed.notify()
            return True

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def close(self, linger_s: float) -> None:
        """Hand over what waits, if there is room in time; what is left then is counted as dropped."""
        with self._changed:
            self._close_by = time.monotonic() + linger_s
            self._changed.notify()
        self._thread.join()
        self.dropped += len(self._queue)
        self._queue.clear()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except Exception as error:  # noqa: BLE001 - whoever sends next learns of it
            self.error = error

    def _step(self) -> bool:
        with self._changed:
            while not self._queue and self._close_by is None:
                self._changed.wait()
            if not self._queue:
                return False
            if self._outlet.try_send(self._queue[0]):
                self._queue.popleft()
                return True
            left_s = _LOOK_EVERY_S if self._close_by is None else self._close_by - time.monotonic()
        if left_s <= 0:
            return False
        self._outlet.wait_writable(min(left_s, _LOOK_EVERY_S))
        return True
