"""Where in a text something is wrong, shown to whoever wrote it: the line, and `^` below the place."""

from dataclasses import dataclass

from headrace.errors import harmless


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


def marked(sentence: str, place: Place | None) -> str:
    """The sentence of a refusal, with its place below it if there is one to see."""
    return f"{sentence}\n{place.mark()}" if place and place.text.strip() else sentence
