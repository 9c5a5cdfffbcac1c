"""The regular expression over rows in the brackets of PATTERN, as in SQL:2016."""

import re
from typing import Final

from headrace.cep.errors import InvalidPattern
from headrace.cep.expressions import TRUE
from headrace.cep.tree import (
    NEXT,
    Alternation,
    Exclusion,
    Greed,
    Node,
    Permutation,
    Repeat,
    Variable,
)
from headrace.cep.tree import Sequence as SequenceNode
from headrace.places import Place

_MOST_TIMES: Final = 1_000
_DEEPEST: Final = 50

_PIECE: Final = re.compile(r"\s*(?:(?P<name>[^\W\d]\w*)|(?P<number>\d+)|(?P<sign>\{-|-\}|[()|*+?{},^$])|(?P<end>$))")


class RowPattern:
    """The regular expression in the brackets of PATTERN; `names` are its variables by their lower-case names."""

    def __init__(self, text: str, begin: int, end: int) -> None:
        self._text = text
        self._end = end
        self._pieces: list[tuple[str, str, int]] = []  # kind, text, where
        self._at = 0
        self._depth = 0
        self.names: dict[str, str] = {}
        while begin < end:
            piece = _PIECE.match(text, begin, end)
            if piece is None or piece.lastgroup is None:
                at = begin + len(text[begin:end]) - len(text[begin:end].lstrip())
                raise InvalidPattern("this has no meaning in a row pattern", Place(text, at, at + 1))
            if piece.lastgroup != "end":
                self._pieces.append((piece.lastgroup, piece[piece.lastgroup], piece.start(piece.lastgroup)))
            begin = piece.end()

    def read(self) -> Node:
        if not self._pieces:
            raise InvalidPattern("this pattern is empty", Place(self._text, self._end - 1, self._end + 1))
        node = self._alternation()
        if self._at < len(self._pieces):
            raise InvalidPattern("nothing is open that this could close", self._here())
        return node

    def _alternation(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InvalidPattern(f"a pattern has at most {_DEEPEST} brackets within each other", self._here())
        branches = [self._sequence()]
        while self._accept("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self._at < len(self._pieces) and self._peek() not in ("|", ")", "-}", ","):
            items.append(self._quantified())
        if not items:
            raise InvalidPattern("a variable or a group is expected here", self._here())
        return items[0] if len(items) == 1 else SequenceNode(tuple((NEXT, item) for item in items))

    def _quantified(self) -> Node:
        begin = self._at
        node = self._primary()
        bounds = self._quantifier()
        if bounds is None:
            return node
        greed = Greed.RELUCTANT if self._accept("?") else Greed.GREEDY
        least, most = bounds
        place = self._since(begin)
        if most is not None and (most < least or most == 0):
            raise InvalidPattern("so often is never: write {least,most}", place)
        if max(least, most or 0) > _MOST_TIMES:
            raise InvalidPattern(f"a repetition has at most {_MOST_TIMES} times", place)
        return Repeat(node, least, most, greed, place=place)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("?", (0, 1)), ("*", (0, None)), ("+", (1, None))):
            if self._accept(sign):
                return bounds
        if not self._accept("{"):
            return None
        least = self._number()
        if self._accept(","):
            most = self._number()
            self._require("}", "the braces are written {n}, {n,}, {,m} or {n,m}")
            return least or 0, most
        self._require("}", "the braces are written {n}, {n,}, {,m} or {n,m}")
        if least is None:
            raise InvalidPattern("the braces are written {n}, {n,}, {,m} or {n,m}", self._here(-1))
        return least, least

    def _primary(self) -> Node:
        kind, text, at = self._pieces[self._at]
        if kind == "name":
            self._at += 1
            if text.upper() == "PERMUTE" and self._peek() == "(":
                return self._permutation(at)
            name = self.names.setdefault(text.lower(), text)
            return Variable(name, TRUE, Place(self._text, at, at + len(text)))
        if self._accept("("):
            node = self._alternation()
            self._require(")", "this bracket is never closed", at)
            return node
        if self._accept("{-"):
            node = self._alternation()
            self._require("-}", "this is never closed with -}", at)
            return Exclusion(node)
        if text in ("^", "$"):
            raise InvalidPattern("anchors are unsupported: a stream has no first and no last row", self._here())
        raise InvalidPattern("a variable or a group is expected here", self._here())

    def _permutation(self, at: int) -> Node:
        self._require("(", "PERMUTE is followed by a list in brackets")
        items = [self._alternation()]
        while self._accept(","):
            items.append(self._alternation())
        self._require(")", "this bracket is never closed", at)
        place = Place(self._text, at, self._pieces[self._at - 1][2] + 1)
        if len(items) < 2:
            raise InvalidPattern("PERMUTE takes two patterns at least", place)
        if len(items) > 8:
            raise InvalidPattern("PERMUTE takes eight patterns at most", place)
        return Permutation(tuple(items), place=place)

    # --- pieces

    def _peek(self) -> str:
        return self._pieces[self._at][1] if self._at < len(self._pieces) else ""

    def _accept(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at += 1
        return True

    def _require(self, sign: str, sentence: str, opened: int | None = None) -> None:
        if not self._accept(sign):
            raise InvalidPattern(sentence, self._here() if opened is None else Place(self._text, opened, opened + 1))

    def _number(self) -> int | None:
        if self._at < len(self._pieces) and self._pieces[self._at][0] == "number":
            self._at += 1
            return int(self._pieces[self._at - 1][1])
        return None

    def _here(self, step: int = 0) -> Place:
        if self._at + step < len(self._pieces):
            _, text, at = self._pieces[self._at + step]
            return Place(self._text, at, at + len(text))
        return Place(self._text, self._end, self._end + 1)

    def _since(self, begin: int) -> Place:
        _, text, at = self._pieces[self._at - 1]
        return Place(self._text, self._pieces[begin][2], at + len(text))
