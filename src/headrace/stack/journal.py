"""What a stack writes down of its members' words: the one log for people, and a file for each with all of it.

The one log has a line for each thing that a member says, with its name before it, in a colour of its own. A member's
own files together hold at most twice `LARGEST_BYTES`, the newest of what it said.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

from headrace.stack.lines import ERROR, INFO, WARNING
from headrace.stack.state_file import STATE_FOLDER

OWN_NAME: Final = "up"
_COLOURS: Final = ("36", "35", "34", "32", "33", "96", "95", "94", "92", "93")
_LEVEL_COLOURS: Final = {WARNING: "33", ERROR: "31"}


class Journal:
    """Writes lines; in a terminal with colours, or as JSON."""

    def __init__(self, stream: TextIO, names: Sequence[str], *, as_json: bool, has_colours: bool) -> None:
        self._stream = stream
        self._as_json = as_json
        self._has_colours = has_colours
        self._colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
        self._width = max(map(len, [*names, OWN_NAME]))

    def write(
        self, now_ms: int, source: str, sentence: str, level: str = INFO, facts: Mapping[str, Any] | None = None
    ) -> None:
        """One line, at once; nothing if there is nothing to tell."""
        if not sentence and not facts:
            return
        moment = datetime.fromtimestamp(now_ms / 1000, UTC)
        if self._as_json:
            told: dict[str, Any] = {
                "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "source": source,
            }
            told |= {"level": level, "event": sentence, **({"facts": dict(facts)} if facts else {})}
            self._stream.write(json.dumps(told, ensure_ascii=False, default=str) + "\n")
        elif sentence:
            name = self._paint(f"{source:<{self._width}}", self._colours.get(source, "1"))
            text = self._paint(sentence, _LEVEL_COLOURS.get(level, ""))
            self._stream.write(f"{moment:%H:%M:%S} {name} {self._paint('│', '2')} {text}\n")
        self._stream.flush()

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._has_colours and colour else text


LARGEST_BYTES: Final = 8 * 1024 * 1024
FOLDER: Final = STATE_FOLDER / "logs"


class PartLogs:
    """A file in `folder` for each part, opened when it first says something."""

    def __init__(self, folder: Path, largest_bytes: int = LARGEST_BYTES) -> None:
        self._folder = folder
        self._largest_bytes = largest_bytes
        self._files: dict[str, BinaryIO] = {}

    def path(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def write(self, name: str, line: str) -> None:
        """One line more; a disk that is full costs the line and nothing else."""
        try:
            file = self._files.get(name) or self._open(name)
            file.write(line.encode(errors="replace") + b"\n")
            if file.tell() >= self._largest_bytes:
                self._turn(name)
        except OSError:
            return

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _open(self, name: str) -> BinaryIO:
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
