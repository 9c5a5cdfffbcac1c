"""A folder that is a link to the generation in use: `orders` → `orders.g3`.

Readers open the folder by its name. A rebuild fills the next generation beside it, and the switch points the link there
in one step of the filesystem; the generation before is kept until the next rebuild.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Final

from headrace.stores.errors import SinkRefused

_NUMBER: Final = re.compile(r"\.g(\d+)$")


class Generations:
    """The generations of one folder."""

    def __init__(self, link: Path) -> None:
        self._link = link.absolute()

    def current(self) -> Path | None:
        """The folder in use; None before the first."""
        if self._link.is_symlink():
            return self._link.parent / os.readlink(self._link)
        if self._link.exists():
            raise SinkRefused(
                f"{self._link} is not a link to a folder that this sink made: name another path, or move it away"
            )
        return None

    def ensure(self) -> Path:
        """The folder in use, made if there is none."""
        found = self.current()
        if found is None:
            found = self._folder(1)
            found.mkdir(parents=True, exist_ok=True)
            self._point(found)
        return found

    def prepare(self) -> Path:
        """An empty folder for the next generation."""
        folder = self._folder(self._number() + 1)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def switch(self) -> None:
        """The next generation comes into use; those before the present one go."""
        number = self._number()
        new = self._folder(number + 1)
        if not new.exists():
            raise SinkRefused(f"{new} is not there: build it before switching to it")
        self._point(new)
        for old in range(1, number):
            shutil.rmtree(self._folder(old), ignore_errors=True)

    def _number(self) -> int:
        found = self.current()
        match = _NUMBER.search(found.name) if found else None
        return int(match[1]) if match else 0

    def _folder(self, number: int) -> Path:
        return self._link.with_name(f"{self._link.name}.g{number}")

    def _point(self, folder: Path) -> None:
        fresh = self._link.with_name(f".{self._link.name}.link")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder.name)
        fresh.replace(self._link)
        sync_folder(self._link.parent)


def sync_folder(folder: Path) -> None:
    """A folder's listing is on the disk when this returns."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
