"""On which line of a TOML file each key stands; `tomllib` reads values and forgets their places. Pure.

Only for a text that `tomllib` has read: what is not TOML is its business, so nothing is checked here.
"""

import re
from collections.abc import Mapping
from typing import Final

Path = tuple[str, ...]
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_SCALAR: Final = re.compile(r"[^,\]}\n#]*")
_LONG: Final = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}', re.DOTALL)
_SHORT: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'')
_ESCAPE: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([btnfr"\\]))')
_SHORT_ESCAPES: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


def key_lines(text: str) -> dict[Path, int]:
    """The line, from 1, on which each table and each key begins; elements of lists go by their number."""
    return _Scan(text).run()


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """The line of a key or, if it is not in the file, of the nearest table around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Path, int] = {}
        self._line_at, self._line = 0, 1
        self._lengths: dict[Path, int] = {}  # of lists of tables

    def run(self) -> dict[Path, int]:
        table: Path = ()
        self._skip(_SPACE)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_SPACE)
        return self._lines

    def _skip(self, what: re.Pattern[str]) -> str:
        found = what.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return found[0]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _note(self, path: Path, at: int) -> None:
        self._line += self._text.count("\n", self._line_at, at)
        self._line_at = at
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], self._line)

    def _header(self) -> Path:
        at = self._at
        is_list = self._text.startswith("[[", at)
        self._at += 2 if is_list else 1
        path = self._number(self._key())
        if is_list:
            number = self._lengths.get(path, 0)
            self._lengths[path] = number + 1
            path = (*path, str(number))
        self._at = self._text.index("]", self._at) + (2 if is_list else 1)
        self._note(path, at)
        return path

    def _number(self, path: Path) -> Path:
        """A name inside a list of tables means its last element."""
        found: Path = ()
        for number, part in enumerate(path, start=1):
            found = (*found, part)
            if number < len(path) and found in self._lengths:
                found = (*found, str(self._lengths[found] - 1))
        return found

    def _key(self) -> Path:
        parts = []
        while True:
            self._skip(_BLANK)
            quote = self._peek()
            parts.append(_unquote(self._skip(_SHORT)) if quote in ('"', "'") else self._skip(_BARE))
            self._skip(_BLANK)
            if self._peek() != ".":
                return tuple(parts)
            self._at += 1

    def _pair(self, table: Path) -> None:
        at = self._at
        path = (*table, *self._key())
        self._note(path, at)
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        match self._peek():
            case "{":
                self._inside("}", path, is_table=True)
            case "[":
                self._inside("]", path, is_table=False)
            case '"' | "'":
                is_long = self._text.startswith(('"""', "'''"), self._at)
                self._skip(_LONG if is_long else _SHORT)
            case _:
                self._skip(_SCALAR)

    def _inside(self, end: str, path: Path, *, is_table: bool) -> None:
        self._at += 1
        number = 0
        self._skip(_SPACE)
        while self._peek() != end:
            if is_table:
                self._pair(path)
            else:
                self._note((*path, str(number)), self._at)
                self._value((*path, str(number)))
            number += 1
            self._skip(_SPACE)
            if self._peek() == ",":
                self._at += 1
                self._skip(_SPACE)
        self._at += 1


def _unquote(text: str) -> str:
    if text[0] == "'":
        return text[1:-1]
    return _ESCAPE.sub(
        lambda found: _SHORT_ESCAPES[found[3]] if found[3] else chr(int(found[1] or found[2], 16)), text[1:-1]
    )
