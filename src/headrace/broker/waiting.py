"""Fetches that wait for more records, woken by the append itself: nobody polls."""

from collections.abc import Callable

from headrace.broker.turns import Steps
from headrace.storage.log import Log

Wake = Callable[[], None]

_WOKEN_AT_ONCE = 8


class Waiting:
    """Who waits for which log. All on the event loop's thread."""

    def __init__(self, run: Callable[[Steps[None]], None]) -> None:
        """`run` takes turns: an append that many wait for wakes them one after the other, and is not held up by it."""
        self._run = run
        self._wakes: dict[Log, dict[Wake, None]] = {}  # a dictionary for its order: first come, first served

    def __len__(self) -> int:
        return sum(map(len, self._wakes.values()))

    def add(self, log: Log, wake: Wake) -> None:
        """Call `wake`, which raises nothing, at each append to `log` from now on until it is removed."""
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
        if not wakes:
            return
        if len(wakes) <= _WOKEN_AT_ONCE:
            for wake in tuple(wakes):
                wake()
        else:
            self._run(self._wake_in_steps(log, tuple(wakes)))

    def _wake_in_steps(self, log: Log, wakes: tuple[Wake, ...]) -> Steps[None]:
        for wake in wakes:
            if wake in self._wakes.get(log, ()):  # its client may have left, or been answered, in the meantime
                wake()
            yield
