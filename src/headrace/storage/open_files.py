"""How many log files are open at once: no more than half of what the process may have, the rest is for connections.

A data directory may hold more segments than the process may open files, so a segment's file is opened when it is needed
and let go of when others need room. What always holds:
- a file with bytes that are not synced stays open, because a failed write-back is reported to those who have it open;
  where such files alone take up too much (`durability = os` syncs none but full ones), they are synced one by one;
- a file that has lost its name stays open for as long as somebody holds its segment, unless there are too many of
  them: whoever comes for it later gets an error, and finds what took its place when it asks again;
- whoever reads has the file in hand: letting go of it closes it only when the last reader is done.

Who opened first lets go first. A file that is used all the time is opened again at once, which costs less than noting
every use would.
"""

import errno
from threading import Lock
from typing import Protocol
from weakref import WeakKeyDictionary

from headrace.storage.filesystem import File, FileSystem, max_open_files

_TRIES = 16  # of one turn, so that no opening waits until all the others were asked


class Holder(Protocol):
    """Somebody with a file that may be opened again later."""

    def release_file(self, *, urgent: bool = False) -> bool:
        """Let go of the file if that does no harm, or if it is `urgent` and loses nothing; whether it did."""
        ...


class OpenFiles:
    """The files that are open, and who has them."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit  # None: by what the process may have
        self._holders: WeakKeyDictionary[Holder, None] = WeakKeyDictionary()
        self._lock = Lock()

    def open(self, filesystem: FileSystem, path: str, holder: Holder, *, create: bool = False) -> File:
        """Open a file that `holder` may be asked to let go of."""
        limit = self.limit or max_open_files() // 2
        self._make_room(limit)
        self._make_room(limit + limit // 4, urgent=True)
        try:
            file = filesystem.open(path, create=create)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            self._make_room(0, tries=len(self._holders))
            self._make_room(len(self._holders), urgent=True)
            file = filesystem.open(path, create=create)
        with self._lock:
            self._holders[holder] = None
        return file

    def forget(self, holder: Holder) -> None:
        """Ask this one no more: its file is closed for good."""
        with self._lock:
            self._holders.pop(holder, None)

    def _make_room(self, limit: int, tries: int = _TRIES, *, urgent: bool = False) -> None:
        with self._lock:
            for _ in range(tries):
                if len(self._holders) < limit:
                    return
                holder = next(iter(self._holders.keys()), None)
                if holder is None:
                    return
                del self._holders[holder]
                if not holder.release_file(urgent=urgent):
                    self._holders[holder] = None  # it has its next turn when all others had theirs


OPEN_FILES = OpenFiles()
