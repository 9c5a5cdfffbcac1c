"""The bytes of runs in a folder that the worker processes of one machine share.

Spark hands a partition to whichever worker is free. What one of them has in memory the next would ask Spark for, which
takes some ten milliseconds a megabyte; from a file that is still in the page cache it takes one. A run never changes
and has an id of its own, so a file that is there is right, and one that is not is asked for as before.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.pipelines.keyed.bucket import Store
from headrace.stores.folders import make_scratch_folder

VARIABLE: Final = "HEADRACE_RUN_SHELF"
LIMIT_BYTES: Final = 512 << 20


@dataclass
class Shelf:
    """A folder of runs, of which those written longest ago go when there are too many bytes."""

    folder: Path
    limit_bytes: int = LIMIT_BYTES
    _written: int = field(default=0, init=False)

    def get(self, identity: str) -> bytes | None:
        """The bytes of a run, if they are here."""
        try:
            return (self.folder / identity).read_bytes()
        except OSError:
            return None

    def put(self, identity: str, data: bytes) -> None:
        """Keep a run; where that fails (the disk is full), it is not here and is asked for elsewhere."""
        partial = self.folder / f"{identity}.{os.getpid()}"
        try:
            partial.write_bytes(data)
            partial.replace(self.folder / identity)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            return
        self._written += len(data)
        if self._written > self.limit_bytes // 8:
            self._written = 0
            self._sweep()

    def remove(self, identity: str) -> None:
        """Forget a run."""
        with contextlib.suppress(OSError):
            (self.folder / identity).unlink(missing_ok=True)

    def _sweep(self) -> None:
        found = sorted(_stats(self.folder), key=lambda each: -each[1].st_mtime)
        size = 0
        for file, stat in found:
            size += stat.st_size
            if size > self.limit_bytes:
                self.remove(file.name)


@dataclass(frozen=True)
class Shelved:
    """A store with a shelf before it."""

    store: Store
    shelf: Shelf

    def get(self, identity: str) -> bytes:
        """From the shelf, or else from the store, and then it is on the shelf for the next."""
        if (held := self.shelf.get(identity)) is not None:
            return held
        data = self.store.get(identity)
        self.shelf.put(identity, data)
        return data

    def put(self, identity: str, data: bytes) -> None:
        """Into both; only the store is asked to last."""
        self.store.put(identity, data)
        self.shelf.put(identity, data)

    def remove(self, identity: str) -> None:
        """From both."""
        self.store.remove(identity)
        self.shelf.remove(identity)


def put_shelf_before(store: Store) -> Store:
    """The store, with the shelf of this machine before it where the workers have one."""
    folder = os.environ.get(VARIABLE)
    return Shelved(store, Shelf(Path(folder))) if folder else store


@contextlib.contextmanager
def shared_shelf() -> Iterator[None]:
    """A folder for the workers that this process forks, gone when it ends; what killed ones left behind goes too."""
    try:
        folder = make_scratch_folder("headrace-runs-")
    except OSError:
        yield  # without it everything works as well, only slower
        return
    os.environ[VARIABLE] = str(folder)
    maker = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)


def _stats(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            yield file, file.stat()
