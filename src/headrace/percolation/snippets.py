"""Pieces of a document with the words for which it matched: what a person is shown of a hit.

What always holds: a snippet is a piece of the value as it was sent, cut between words where it can be; its marks are
offsets into its own text, in order, and do not overlap.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headrace.percolation.documents import Document
from headrace.percolation.evaluate import Highlight

_BEFORE: Final = 40


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of one value of a field; `marks` are the characters of words that matched."""

    field: str
    value: int
    text: str
    marks: tuple[tuple[int, int], ...]
    begins_within: bool = False
    ends_within: bool = False
    """Whether there is more of the value before it, and after it."""

    def marked(self, before: str = "[", after: str = "]") -> str:
        """The text with something around each word that matched, and dots where the value goes on."""
        parts, at = ["… " if self.begins_within else ""], 0
        for start, end in self.marks:
            parts += (self.text[at:start], before, self.text[start:end], after)
            at = end
        return "".join((*parts, self.text[at:], " …" if self.ends_within else ""))


def snippets(document: Document, highlights: Iterable[Highlight], width: int = 160) -> list[Snippet]:
    """One snippet for each value with a highlight, around its first; about so many characters each."""
    by_value: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for each in sorted(highlights):
        spans = by_value.setdefault((each.field, each.value), [])
        if not spans or each.start >= spans[-1][1]:
            spans.append((each.start, each.end))
    return [
        _snippet(field, value, document.text(field, value), spans, width) for (field, value), spans in by_value.items()
    ]


def _snippet(field: str, value: int, text: str, spans: list[tuple[int, int]], width: int) -> Snippet:
    first, first_end = spans[0]
    begin = max(0, first - _BEFORE)
    if begin:
        space = text.find(" ", begin, first)
        begin = space + 1 if space >= 0 else begin
    end = max(first_end, begin + width)
    if end < len(text):
        space = text.rfind(" ", first_end, end)
        end = space if space >= 0 else end
    end = min(end, len(text))
    marks = tuple((start - begin, stop - begin) for start, stop in spans if stop <= end)
    return Snippet(field, value, text[begin:end], marks, begin > 0, end < len(text))
