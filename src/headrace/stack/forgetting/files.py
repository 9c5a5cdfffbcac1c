"""Folders of files: checkpoints of pipelines, with whatever state is in them.

State is Spark's, in RocksDB's files, and no row of it can be taken out. What a pipeline reads sealed it keeps sealed,
unless it opens values itself: then its state has to be made anew.
"""

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from headrace.forgetting.report import Finding, Hit, Outcome
from headrace.forgetting.search import Needles
from headrace.stack.forgetting.place import Subject

_CHUNK_BYTES: Final = 1 << 20
_OPENS: Final = ("open_sealed", "open_value", "open_columns")


class CheckpointPlace:
    """The checkpoints of a pipeline or of views; `file` is their code."""

    def __init__(self, part: str, file: Path, state: Path) -> None:
        self._part, self._file, self._state = part, file, state
        self.name = f"checkpoints of {part}"

    def forget(self, subject: Subject, *, dry: bool) -> Iterator[Finding]:  # noqa: ARG002 - nothing is done here
        if not self._state.is_dir():
            yield Finding(self.name, "state", Outcome.NOTHING)
            return
        try:
            code = self._file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            code = ""
        if any(word in code for word in _OPENS):
            why = (
                f"{self._file.name} opens sealed values, so its state and results may hold them: reset its jobs with "
                "headrace pipeline reset, and rebuild its results"
            )
            yield Finding(self.name, "state", Outcome.FAILED, 0, why)
        else:
            yield Finding(self.name, "state", Outcome.UNREADABLE, 0, "what was read sealed is kept sealed")

    def search(self, needles: Needles) -> Iterator[Hit]:
        for path in sorted(self._state.rglob("*")) if self._state.is_dir() else ():
            if path.is_file() and not path.is_symlink():
                for number in needles.find_in_parts(parts_of(path)):
                    yield Hit(self.name, str(path.relative_to(self._state)), number)


def parts_of(path: Path) -> Iterable[bytes]:
    """A file's bytes in parts; of an archive also what is in it."""
    with path.open("rb") as file:
        yield from _chunks(file)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                with archive.open(member) as inside:
                    yield from _chunks(inside)


def _chunks(file: Any) -> Iterator[bytes]:
    while part := file.read(_CHUNK_BYTES):
        yield part
