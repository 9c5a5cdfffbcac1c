"""Files and folders made durable: synced first, shown by one rename, and the rename synced too."""

import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Final

from headrace.stores.errors import SinkMisconfigured, SinkRefused

_NUMBER: Final = re.compile(r"\.g(\d+)$")


def sync(path: Path) -> None:
    """What the file or the folder's listing holds is on the disk when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folders(path: Path) -> None:
    """The folder and its parents, each synced into the one above."""
    if path.is_dir():
        return
    make_folders(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)


def show_folder(staged: Path, shown: Path) -> None:
    """All files of the staged folder appear under the new name at once, or none of them."""
    for file in staged.iterdir():
        sync(file)
    sync(staged)
    make_folders(shown.parent)
    staged.rename(shown)
    sync(shown.parent)


def replace_text(path: Path, text: str) -> None:
    """The file holds the old text or the new one, whatever happens."""
    make_folders(path.parent)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync(path.parent)


def path_beside(path: str, version: int) -> str:
    """The folder of a version until it takes over."""
    return f"{path}.v{version}"


def switch_folders(path: Path, version: int) -> None:
    """Put the folder of a version in place."""
    built, kept = Path(path_beside(str(path), version)), Path(path_beside(str(path), version - 1))
    if not built.exists():
        if path.exists():
            return
        raise SinkMisconfigured(f"{built} is not there: build version {version} before switching to it")
    if path.exists():
        if kept.exists():
            raise SinkMisconfigured(f"{kept} is in the way of the version that is replaced: move it away")
        path.rename(kept)
    built.rename(path)


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
        sync(self._link.parent)
