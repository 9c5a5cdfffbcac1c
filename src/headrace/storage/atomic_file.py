"""A small file that is written whole or not at all, and a folder that stays made."""

import errno
from contextlib import suppress

from headrace.storage.filesystem import Buffer, File, FileSystem

NAME_MAX = 255  # bytes of one name, in every file system that matters; Kafka's longest topic names come close
_TEMPORARY = ".tmp"


def write_atomically(filesystem: FileSystem, path: str, data: Buffer, *, sync_name: bool = True) -> None:
    """Put `data` at `path` so that a crash leaves either the old content or the new one, durably.

    The new name is on the disk when this returns, unless the caller syncs the folder itself, for several names at once.
    """
    folder = folder_of(path)
    name = path.rpartition("/")[2]
    temporary = f"{folder}/{name[: NAME_MAX - len(_TEMPORARY)]}{_TEMPORARY}"
    file = filesystem.open(temporary, create=True)
    try:
        try:
            file.truncate(0)
            write_all(file, data, 0)
            file.sync()
        finally:
            file.close()
        filesystem.replace(temporary, path)
    except OSError:
        with suppress(OSError):  # what was written may be the last room on a full disk
            filesystem.remove(temporary)
        raise
    if sync_name:
        filesystem.sync_directory(folder)


def folder_of(path: str) -> str:
    folder, slash, _ = path.rstrip("/").rpartition("/")
    return folder or slash or "."


def make_folder(filesystem: FileSystem, path: str) -> None:
    """Make a folder and those above it, durably: a folder's own name is its parent's to keep."""
    parents = []
    missing = path
    while not filesystem.exists(missing):
        missing = folder_of(missing)
        parents.append(missing)
    filesystem.make_directory(path)
    for parent in reversed(parents):
        filesystem.sync_directory(parent)


def write_all(file: File, data: Buffer, position: int) -> None:
    """Write all of `data`, however the file portions it."""
    view = memoryview(data)
    while view:
        written = file.write_at([view], position)
        if not written:
            raise OSError(errno.ENOSPC, "nothing was written")
        position += written
        view = view[written:]
