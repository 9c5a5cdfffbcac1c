"""Looking for files and reading pieces of them: the only place here that touches the disk."""

import contextlib
import glob
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headrace.gateways.files.following import HEAD_BYTES, Identity, Seen, Tracked

# What rotation appends to a name, or puts in front of its ending: a number, a date, a word. What is compressed is left.
_SUFFIX: Final = re.compile(r"[._-](?:[0-9][0-9TZ._:-]*|old|bak)")
_ATTEMPTS: Final = 10  # at a look at folders that do not change meanwhile
_TICK_NS: Final = 10_000_000  # by which a folder's time goes on, at the most
_MAGIC: Final = re.compile(r"[*?\[]")


class Piece(NamedTuple):
    """Bytes of a file from its offset on, and what stands at its beginning."""

    data: bytes
    head: bytes


class Files:
    """The files that match some patterns, and those rotated from them; handles of what is read stay open."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [os.path.abspath(os.path.expanduser(pattern)) for pattern in patterns]
        self._handles: dict[Identity, int] = {}
        self._heads: dict[Identity, tuple[int, int, bytes]] = {}
        self.problems: dict[str, str] = {}

    @property
    def patterns(self) -> Sequence[str]:
        return self._patterns

    def seen(self, known: Collection[str] = ()) -> list[Seen]:
        """All files as they are now; one that cannot be read is a problem, and looked at again.

        `known` are paths whose rotated files are looked for although a pattern may not find them now: between a rename
        and the file that takes its place. A path is looked at before the files beside it, so that whatever is moved or
        copied from it in between is seen; and while a folder changes, all are looked at again: of a row of files that
        are renamed one after the other, some would be seen and some not.
        """
        for _ in range(_ATTEMPTS):
            begun, before = time.time_ns(), self._folders(known)
            found = self._scan(known)
            if self._folders(known) == before:
                if all(abs(begun - stamp) > _TICK_NS for stamp in before.values()):
                    break
                time.sleep(_TICK_NS / 1e9)  # another change within the same tick would have left no trace
        return found

    def _folders(self, known: Collection[str]) -> dict[str, int]:
        """When a name last changed in each folder."""
        stamps: dict[str, int] = {}
        for folder in {os.path.dirname(path) for path in (*self._patterns, *known)}:
            with contextlib.suppress(OSError):
                stamps[folder] = os.stat(folder).st_mtime_ns
        return stamps

    def _scan(self, known: Collection[str]) -> list[Seen]:
        self.problems = {}
        found: dict[Identity, Seen] = {}
        for pattern in self._patterns:
            # Sorted, so that a file of two names has the same one at each look, and its lines one partition.
            live = sorted(glob.glob(pattern, recursive=True)) if _MAGIC.search(pattern) else [pattern]
            for path in live:
                self._add(found, path, path, pattern, is_live=True)
            for base in dict.fromkeys((*live, *known)):
                for path in _rotated(base):
                    if path not in live:
                        self._add(found, path, base, pattern, is_live=False)
        self._heads = {identity: head for identity, head in self._heads.items() if identity in found}
        return list(found.values())

    def _add(self, found: dict[Identity, Seen], path: str, base: str, pattern: str, *, is_live: bool) -> None:
        try:
            about = os.stat(path)
            if not stat.S_ISREG(about.st_mode):
                if path == pattern:
                    self.problems[path] = f"{path} is not a file of lines: name a regular file, or a pattern of them"
                return
            identity = Identity(about.st_dev, about.st_ino)
            if identity in found and (found[identity].is_live or not is_live):
                return
            head = self._head(path, identity, about)
        except FileNotFoundError:
            return
        except OSError as error:
            self.problems[path] = f"{path} cannot be read: {error.strerror}"
            return
        found[identity] = Seen(identity, path, base, is_live, about.st_size, about.st_mtime_ns, head, pattern)

    def _head(self, path: str, identity: Identity, about: os.stat_result) -> bytes:
        size, modified, head = self._heads.get(identity, (-1, -1, b""))
        if (size, modified) != (about.st_size, about.st_mtime_ns):
            # A pipe that took its name since would hold an ordinary open up until somebody writes to it.
            with open(path, "rb", buffering=0, opener=_without_waiting) as file:
                if (other := os.fstat(file.fileno())).st_ino != about.st_ino or other.st_dev != about.st_dev:
                    raise FileNotFoundError(path)  # rotated in between: the next look sees both
                head = file.read(HEAD_BYTES) or b""
            self._heads[identity] = (about.st_size, about.st_mtime_ns, head)
        return head

    def read(self, file: Tracked, size: int, head_seen: bytes) -> Piece | None:
        """What stands behind the offset of a file; None where it is not that file any more.

        The beginning is read after the piece: if it is still the one that the last look saw, nobody emptied the file in
        between.
        """
        handle = self._handle(file)
        if handle is None:
            return None
        try:
            data = os.pread(handle, size, file.offset)
            head = os.pread(handle, HEAD_BYTES, 0)
        except OSError as error:  # a disk or a network file system that fails: the next look opens it again
            self.problems[file.path] = f"{file.path} cannot be read: {error.strerror}"
            self.release(file.identity)
            return None
        if not head.startswith(file.head if file.offset else head_seen or data[:HEAD_BYTES]):
            return None
        return Piece(data, head)

    def _handle(self, file: Tracked) -> int | None:
        handle = self._handles.get(file.identity)
        if handle is not None:
            return handle
        try:
            handle = _without_waiting(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self.problems[file.path] = f"{file.path} cannot be read: {error.strerror}"
            return None
        about = os.fstat(handle)
        if (about.st_dev, about.st_ino) != file.identity or not stat.S_ISREG(about.st_mode):
            os.close(handle)
            return None
        self._handles[file.identity] = handle
        return handle

    def is_away(self, file: Tracked) -> bool:
        """Whether a file that no look sees may come back: it is there, or its folder or file system is not."""
        try:
            about = os.stat(file.path)
            return (about.st_dev, about.st_ino) == file.identity
        except FileNotFoundError:
            pass
        except OSError:
            return True
        try:
            return os.stat(os.path.dirname(os.path.realpath(file.path))).st_dev != file.identity.device
        except OSError:
            return True

    def is_open(self, file: Tracked) -> bool:
        """Whether it can be read although it may be in no folder any more."""
        return file.identity in self._handles

    def release(self, identity: Identity) -> None:
        if (handle := self._handles.pop(identity, None)) is not None:
            os.close(handle)

    def close(self) -> None:
        for identity in list(self._handles):
            self.release(identity)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _rotated(base: str) -> Iterator[str]:
    """The files beside a path whose names rotation makes of its name."""
    folder, name = os.path.split(base)
    stem, ending = os.path.splitext(name)
    with contextlib.suppress(OSError):
        for other in sorted(os.listdir(folder)):
            if other == name or not other.startswith(stem):
                continue
            behind = other[len(name) :] if other.startswith(name) else ""
            between = other[len(stem) : len(other) - len(ending)] if ending and other.endswith(ending) else ""
            if _SUFFIX.fullmatch(behind) or _SUFFIX.fullmatch(between):
                yield str(Path(folder) / other)
