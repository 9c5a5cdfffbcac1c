"""Patterns over words, as AMQP's topic exchanges and NATS' subjects have them: `orders.*.eu`, `orders.#`, `orders.>`.

Words are separated by dots. `*` stands for one word; `#` for any number of them, none included; `>` for one or more,
and only at the end. What always holds: a match takes time linear in the text, whatever the pattern is.
"""

import re2

from headrace.errors import HeadraceError

_LONGEST = 1024


class InvalidPattern(HeadraceError):
    """A pattern of words that means nothing."""


class Pattern:
    """A pattern that was read; two of the same text are equal."""

    __slots__ = ("_matches", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        words = text.split(".")
        if len(text) > _LONGEST:
            raise InvalidPattern(f"the pattern has {len(text)} characters: give at most {_LONGEST}")
        if "" in words:
            raise InvalidPattern(
                f"the pattern {text!r} has an empty word: give words, *, # or > with dots between them"
            )
        if ">" in words[:-1]:
            raise InvalidPattern(f"the pattern {text!r} goes on after >: use > as the last word only, or # elsewhere")
        for word in words:
            if len(word) > 1 and any(each in word for each in "*#>"):
                raise InvalidPattern(f"the pattern {text!r} has {word!r}: *, # and > stand for whole words")
        # With a dot in front of every word, none needs a case of its own.
        self._matches = re2.compile("(?s)" + "".join(map(_expression, words))).fullmatch

    def matches(self, text: str) -> bool:
        return self._matches(f".{text}") is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def _expression(word: str) -> str:
    match word:
        case "*":
            return r"\.[^.]*"
        case "#":
            return r"(?:\.[^.]*)*"
        case ">":
            return r"(?:\.[^.]*)+"
        case _:
            return r"\." + str(re2.escape(word))
