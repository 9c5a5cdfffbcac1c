"""Files with secrets in them: private keys and passwords. What others can read is refused, with how to mend it."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import HeadraceError

_ROOT = 0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_BUT_READERS_IN_GROUP = _OTHERS & ~stat.S_IRGRP


class ExposedSecret(HeadraceError):
    """A file with a secret in it that cannot be read, or that others can read."""


def check_private(path: str | os.PathLike[str], what: str) -> None:
    """Refuse a file that others than its owner can read; one of root's may be its group's, as PostgreSQL has it."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise ExposedSecret(f"{what} {os.fspath(path)!r} cannot be read ({error.strerror}): check the path") from None
    is_shared_by_root = found.st_uid == _ROOT and os.geteuid() != _ROOT
    if found.st_mode & (_OTHERS_BUT_READERS_IN_GROUP if is_shared_by_root else _OTHERS):
        raise ExposedSecret(f"{what} {os.fspath(path)} can be read by others: chmod 600 {os.fspath(path)}")


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else can read, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # or a power cut leaves the name with nothing in it
    fresh.replace(path)


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """Keep others from changing the file meanwhile: of two who read, add and write, one would undo the other's."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
