"""Files and folders made durable: synced, shown by one rename, and the rename synced too; and versions of a folder."""

import os
import re
import shutil
import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headrace.stores.errors import SinkMisconfigured, SinkRefused, TargetReplaced

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


# --- folders that go with their process


def make_scratch_folder(prefix: str) -> Path:
    """A folder for the life of this process; those that killed ones left behind go.

    One whose number was given to another process stays until that ends.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*-*"):
        owner = left.name.removeprefix(prefix).partition("-")[0]
        if owner.isdecimal() and not is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # anybody may have made up the number
        return False
    except PermissionError:
        return True  # it is somebody else's
    return True


# --- a name that is a link to one of several folders
#
# Readers open a folder by its name. What is built beside it takes the name by one rename of a link, so that there is
# always a folder behind the name, whenever somebody is killed. A name that is still a folder, because nothing was ever
# built beside it, has to make room first: what a crash leaves between the two steps, `live_folder` finishes.


def live_folder(path: Path) -> Path:
    """The folder behind a batch sink's name, which need not be there; a switch that was cut short is finished first."""
    waiting = _waiting_link(path)
    if waiting.is_symlink() and not os.path.lexists(path) and _has_made_room(path, os.readlink(waiting)):
        waiting.replace(path)
        sync(path.parent)
    return _behind(path)


def _behind(path: Path) -> Path:
    return path.parent / os.readlink(path) if path.is_symlink() else path


def _point(path: Path, folder: Path) -> None:
    """Make the name a link to a folder beside it."""
    fresh = path.with_name(f".{path.name}.next")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder.name)
    fresh.replace(path)
    sync(path.parent)


def _make_room(path: Path, folder: Path, kept: Path) -> None:
    """Make the name a link to a folder beside it; what has the name becomes `kept`."""
    waiting = _waiting_link(path)
    waiting.unlink(missing_ok=True)
    waiting.symlink_to(folder.name)
    sync(path.parent)
    path.rename(kept)
    waiting.replace(path)
    sync(path.parent)


def _waiting_link(path: Path) -> Path:
    return path.with_name(f".{path.name}.link")


def _has_made_room(path: Path, version: str) -> bool:
    """Whether a switch was cut short behind its first rename: without what it kept, the name was removed by a user."""
    number = _version_of(path, path.with_name(version))
    return number is not None and os.path.lexists(path_beside(str(path), number - 1))


def _version_of(path: Path, folder: Path) -> int | None:
    """Which version of a batch sink's folder this is; None for any other folder."""
    base, _, number = folder.name.rpartition(".v")
    return int(number) if folder.parent == path.parent and base == path.name and number.isdecimal() else None


def path_beside(path: str, version: int) -> str:
    """The folder of a version of a batch sink, beside its own however many slashes its name ends with."""
    whole = path.rstrip("/")
    is_bucket = whole.rpartition("/")[0].endswith(":/")  # nothing can stand beside a bucket but another bucket
    return f"{path if is_bucket else whole}.v{version}"


def switch_folders(path: Path, version: int) -> None:
    """Let a version take the name; the folder of the version before is kept. Once more changes nothing."""
    built, kept = Path(path_beside(str(path), version)), Path(path_beside(str(path), version - 1))
    live = live_folder(path)
    if not built.exists():
        if live.exists():
            return  # it took the name by a rename, as versions did once
        raise SinkMisconfigured(f"{built} is not there: build version {version} before switching to it")
    if not path.exists() or _version_of(path, live) is not None:
        _point(path, built)
        return
    if os.path.lexists(kept):
        raise SinkMisconfigured(f"{kept} is in the way of the version that is replaced: move it away")
    _make_room(path, built, kept)


def refuse_in_use(built: Path) -> None:
    """A query that begins to build a version, as one does that lost its state, does not do so in the folder in use."""
    base, _, number = built.name.rpartition(".v")
    name = built.with_name(base or built.name)
    if name.is_symlink() and _version_of(name, _behind(name)) is not None and _behind(name) == built:
        raise SinkMisconfigured(
            f"{built} is in use, {name} is a link to it, and another query would build its version {number} there: let "
            f"it take the name (rm {name} && mv {built} {name}) and build again"
        )


@dataclass(frozen=True)
class Generations:
    """The folders of a derived system: `orders` is a link to `orders.g3`, and a rebuild fills `orders.g4`.

    With `built`, the one that is being filled. The generation before the present one is kept until the next rebuild.
    """

    path: Path
    built: Path | None = None

    def __str__(self) -> str:
        return str(self.path)

    def current(self) -> Path | None:
        """The folder in use; None before the first."""
        if self.built is not None:
            return self.built
        link = self.path.absolute()
        if link.is_symlink():
            return _behind(link)
        if link.exists():
            raise SinkRefused(
                f"{link} is not a link to a folder that this sink made: name another path, or move it away"
            )
        return None

    def ensure(self) -> Path:
        """The folder in use, made if there is none."""
        folder = self.current()
        if folder is None:
            folder = self._folder(1)
            folder.mkdir(parents=True, exist_ok=True)
            _point(self.path.absolute(), folder)
        return folder

    def check_current(self, folder: Path | None, what: str) -> None:
        """Raise `TargetReplaced` if another folder than this one is in use now."""
        if folder != self.current():
            raise TargetReplaced(f"{what} was replaced by a rebuilt one")

    def beside(self) -> "Generations":
        """The next generation, empty."""
        folder = self._folder(self._number() + 1)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return replace(self, built=folder)

    def switch(self) -> None:
        """The next generation comes into use; those before the present one go."""
        number = self._number()
        new = self._folder(number + 1)
        if not new.exists():
            raise SinkRefused(f"{new} is not there: build it before switching to it")
        _point(self.path.absolute(), new)
        for old in range(1, number):
            shutil.rmtree(self._folder(old), ignore_errors=True)

    def _number(self) -> int:
        folder = self.current()
        match = _NUMBER.search(folder.name) if folder else None
        return int(match[1]) if match else 0

    def _folder(self, number: int) -> Path:
        return self.path.absolute().with_name(f"{self.path.name}.g{number}")
