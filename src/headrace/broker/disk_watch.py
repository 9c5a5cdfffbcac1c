"""What the broker's log says of a disk that refuses writes: once when it begins, and once when it is over.

Every producer is answered with the reason, but whoever runs the broker looks at its log. A full disk refuses a thousand
appends a second, so not each gets a line; and one that is full to the brim takes small batches and refuses large ones,
so neither does each change.
"""

from typing import Final

from headrace.clock import Clock
from headrace.storage.errors import DiskFull, StorageError, SyncFailed, WriteFailed
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_REFUSALS: Final = (DiskFull, WriteFailed, SyncFailed)
_QUIET_MS: Final = 60_000


class DiskWatch:
    """Is told of every write that fails and, while any has, of those that do not."""

    __slots__ = ("_clock", "_is_logged", "_logged_ms", "_refused", "is_failing")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_failing = False
        self._is_logged = False
        self._logged_ms = -_QUIET_MS
        self._refused = 0

    def failed(self, error: BaseException) -> None:
        """A write was refused; errors that are not the disk's are not looked at."""
        if not isinstance(error, _REFUSALS):
            return
        self.is_failing = True
        self._refused += 1
        now_ms = self._clock.now_ms()
        if not self._is_logged and now_ms - self._logged_ms >= _QUIET_MS:
            self._is_logged = True
            self._logged_ms = now_ms
            _log.error(_event(error), reason=str(error))

    def wrote(self) -> None:
        """A write was taken again."""
        self.is_failing = False
        if self._is_logged:
            self._is_logged = False
            _log.info("the disk takes writes again", refused=self._refused)
            self._refused = 0


def _event(error: StorageError) -> str:
    what = "the disk is full" if isinstance(error, DiskFull) else "the disk refuses writes"
    return f"{what}: producers are refused until it takes writes again, reads go on"
