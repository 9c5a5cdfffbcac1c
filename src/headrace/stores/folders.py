"""Files and folders made durable: synced first, shown by one rename, and the rename synced too."""

import os
import uuid
from pathlib import Path

from headrace.stores.errors import SinkMisconfigured


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
