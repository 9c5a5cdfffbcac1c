"""The one log of a stack: a line for each thing that a member says, with its name before it, in a colour of its own."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from headrace.stack.lines import ERROR, INFO, WARNING

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
            name = self._painted(f"{source:<{self._width}}", self._colours.get(source, "1"))
            text = self._painted(sentence, _LEVEL_COLOURS.get(level, ""))
            self._stream.write(f"{moment:%H:%M:%S} {name} {self._painted('│', '2')} {text}\n")
        self._stream.flush()

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._has_colours and colour else text
