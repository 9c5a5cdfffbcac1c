"""All that each part of a stack says, in a file of its own: the place to look when one line is not enough.

What always holds: a part's files together hold at most twice `LARGEST_BYTES`, the newest of what it said.
"""

import os
from pathlib import Path
from typing import BinaryIO, Final

from headrace.stack.lock import STATE_FOLDER

LARGEST_BYTES: Final = 8 * 1024 * 1024
FOLDER: Final = STATE_FOLDER / "logs"


class PartLogs:
    """A file in `folder` for each part, opened when it first says something."""

    def __init__(self, folder: Path, largest_bytes: int = LARGEST_BYTES) -> None:
        self._folder = folder
        self._largest_bytes = largest_bytes
        self._files: dict[str, BinaryIO] = {}

    def path(self, name: str) -> Path:
        """Where a part's words are."""
        return self._folder / f"{name}.log"

    def write(self, name: str, line: str) -> None:
        """One line more; a disk that is full costs the line and nothing else."""
        try:
            file = self._files.get(name) or self._opened(name)
            file.write(line.encode(errors="replace") + b"\n")
            if file.tell() >= self._largest_bytes:
                self._turn(name)
        except OSError:
            return

    def close(self) -> None:
        """No more words."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _opened(self, name: str) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Whoever looks wants the last line too, so it is not kept back; only the owner may look.
        descriptor = os.open(self.path(name), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._files[name] = file = os.fdopen(descriptor, "ab", buffering=0)
        file.seek(0, os.SEEK_END)
        return file

    def _turn(self, name: str) -> None:
        self._files.pop(name).close()
        path = self.path(name)
        os.replace(path, path.with_suffix(".log.1"))
