"""What is wrong with a pattern, and where: every refusal names its place in the text and marks it with `^`.

What always holds: an `InvalidPattern` is raised before the first row is looked at.
"""

from dataclasses import dataclass

from headrace.errors import HeadraceError, harmless


@dataclass(frozen=True)
class Place:
    """A part of a text: characters `start` to `end`, the last one left out."""

    text: str
    start: int
    end: int

    def mark(self) -> str:
        """The line that the place is in, and a line of `^` below it."""
        begin = self.text.rfind("\n", 0, self.start) + 1
        stop = self.text.find("\n", self.start)
        line = self.text[begin : stop if stop >= 0 else len(self.text)]
        width = max(1, min(self.end, begin + len(line)) - self.start)
        lead = "".join("\t" if letter == "\t" else " " for letter in line[: self.start - begin])
        return f"  {harmless(line)}\n  {lead}{'^' * width}"


def whole(text: str) -> Place:
    return Place(text, 0, len(text))


class CepError(HeadraceError):
    """Anything that patterns and their matchers noticed."""


class InvalidPattern(CepError):
    """A pattern that cannot be read, can never match, or would keep its partial matches forever."""

    def __init__(self, sentence: str, place: Place | None = None) -> None:
        super().__init__(f"{sentence}\n{place.mark()}" if place and place.text.strip() else sentence)
        self.sentence = sentence
        self.place = place


class InvalidEvent(CepError):
    """An event without what the matcher was told to find in it: its time, its key."""


class TooManyPartialMatches(CepError):
    """A key has as many partial matches as it may, and the user chose to fail there."""
