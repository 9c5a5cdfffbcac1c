"""Fetches that wait for more records, woken by the append itself: nobody polls."""

from collections.abc import Callable

from headrace.storage.log import Log

Wake = Callable[[], None]


class Waiting:
    """Who waits for which log. All on the event loop's thread."""

    def __init__(self) -> None:
        self._wakes: dict[Log, dict[Wake, None]] = {}  # a dictionary for its order: first come, first served

    def add(self, log: Log, wake: Wake) -> None:
        """Call `wake` at the next append to `log`, and at each one after it, until it is removed."""
        self._wakes.setdefault(log, {})[wake] = None

    def remove(self, log: Log, wake: Wake) -> None:
        """Wake it no more."""
        wakes = self._wakes.get(log)
        if wakes:
            wakes.pop(wake, None)
            if not wakes:
                del self._wakes[log]

    def appended(self, log: Log) -> None:
        """Something was appended to `log`."""
        wakes = self._wakes.get(log)
        if wakes:
            for wake in tuple(wakes):
                wake()
