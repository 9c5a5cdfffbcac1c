"""A small file that is written whole or not at all."""

from headrace.storage.filesystem import Buffer, File, FileSystem


def write_atomically(filesystem: FileSystem, path: str, data: Buffer) -> None:
    """Put `data` at `path` so that a crash leaves either the old content or the new one, durably.

    The new name is on the disk when this returns.
    """
    temporary = path + ".tmp"
    file = filesystem.open(temporary, create=True)
    try:
        file.truncate(0)
        write_all(file, data, 0)
        file.sync()
    finally:
        file.close()
    filesystem.replace(temporary, path)
    filesystem.sync_directory(path.rpartition("/")[0] or ".")


def write_all(file: File, data: Buffer, position: int) -> None:
    """Write all of `data`, however the file portions it."""
    view = memoryview(data)
    while view:
        written = file.write_at([view], position)
        position += written
        view = view[written:]
