"""Looking for values in whatever bytes there are, in bounded memory. Pure.

After a subject is forgotten nobody knows its values, so whoever verifies brings them. A value is looked for in UTF-8
and UTF-16, as JSON writes it with and without escapes, and without regard to the case of ASCII letters, as indexes may
keep it so. What is compressed or encrypted by others is not seen through; who reads such a store decodes it first.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from headrace.forgetting.errors import ForgettingError

_SHORTEST: Final = 3


class Needles:
    """Values to look for; `find` says which of them are somewhere in some bytes."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values = [value for value in values if value]
        if not self.values:
            raise ForgettingError("there are no values to look for: give a file with one on each line")
        forms: dict[bytes, int] = {}
        for number, value in enumerate(self.values, 1):
            if len(value) < _SHORTEST:
                raise ForgettingError(f"value {number} has less than {_SHORTEST} letters: it would be found everywhere")
            for form in _forms(value):
                forms.setdefault(form.lower(), number)
        self._numbers = forms
        ordered = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, ordered)), re.IGNORECASE)
        self.longest = len(ordered[0])

    def find(self, data: bytes | memoryview) -> set[int]:
        """The numbers of values in some bytes."""
        return {self._numbers[found[0].lower()] for found in self._pattern.finditer(data)}

    def find_in_parts(self, parts: Iterable[bytes]) -> Iterator[int]:
        """The numbers of values in bytes that come in parts, each once, also where a value is cut in two."""
        told: set[int] = set()
        tail = b""
        for part in parts:
            data = tail + part
            for number in self.find(data) - told:
                told.add(number)
                yield number
            tail = data[-(self.longest - 1) :]


def _forms(value: str) -> set[bytes]:
    written = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    return {text.encode() for text in written} | {value.encode("utf-16-le"), value.encode("utf-16-be")}


def read_needles(lines: Iterable[str]) -> Needles:
    """One value a line; empty lines are passed by."""
    return Needles(line.strip("\r\n").strip() for line in lines)
