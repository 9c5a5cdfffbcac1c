"""Where in a text something is wrong, shown to whoever wrote it: the line, and `^` below the place."""

from dataclasses import dataclass
from typing import Final

from headrace.errors import harmless

# What is shown of a long line, in characters before the place and from it on.
_BEFORE: Final = 60
_BEHIND: Final = 120


@dataclass(frozen=True)
class Place:
    """A part of a text: characters `start` to `end`, the last one left out."""

    text: str
    start: int
    end: int

    def mark(self) -> str:
        """The line that the place is in, as much of it as fits a screen, and a line of `^` below it."""
        begin = self.text.rfind("\n", 0, self.start) + 1
        stop = self.text.find("\n", self.start)
        stop = stop if stop >= 0 else len(self.text)
        first, last = max(begin, self.start - _BEFORE), min(stop, self.start + _BEHIND)
        line = self.text[first:last]
        width = max(1, min(self.end, last) - self.start)
        cut, rest = "…" * (first > begin), "…" * (last < stop)
        lead = " " * len(cut) + "".join(
            "\t" if letter == "\t" else " " * len(harmless(letter)) for letter in line[: self.start - first]
        )
        return f"  {cut}{harmless(line)}{rest}\n  {lead}{'^' * width}"


def whole(text: str) -> Place:
    return Place(text, 0, len(text))


def marked(sentence: str, place: Place | None) -> str:
    """The sentence of a refusal, with its place below it if there is one to see."""
    return f"{sentence}\n{place.mark()}" if place and place.text.strip() else sentence
