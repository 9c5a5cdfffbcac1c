"""Unpacks what comes in an archive: archives.py LIB PATTERN TO

LIB is the folder where Maven has put it. The archive is a file there whose name fits PATTERN, or one inside of a jar
there; its content goes to TO, which is made.
"""

from __future__ import annotations

import fnmatch
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import IO


def unpack(lib: Path, pattern: str, to: Path) -> None:
    """Unpack the one archive that fits; `LookupError` if there is none."""
    for found in sorted(lib.iterdir()):
        if fnmatch.fnmatch(found.name, pattern):
            with found.open("rb") as file:
                return _extract(file, to)
        if found.suffix == ".jar":
            with zipfile.ZipFile(found) as jar:
                for name in fnmatch.filter(jar.namelist(), pattern):
                    with jar.open(name) as file:
                        return _extract(file, to)
    raise LookupError(f"no archive {pattern!r} in {lib}, nor in a jar there")


def _extract(file: IO[bytes], to: Path) -> None:
    to.mkdir()
    # As a stream: what is inside of a jar is compressed twice, and going back in it would begin anew.
    with tarfile.open(fileobj=file, mode="r|*") as archive:
        archive.extractall(to, filter=_inside)  # noqa: S202 - the filter lets nothing out of the folder


def _inside(member: tarfile.TarInfo, to: str) -> tarfile.TarInfo | None:
    try:
        return tarfile.data_filter(member, to)
    except tarfile.AbsoluteLinkError:
        return None  # a link to a place on the machine where it was packed


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
