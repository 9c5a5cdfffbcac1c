r"""Regular expressions over topic names, in RE2's syntax and with RE2's promise: time linear in the name.

Python's `re` backtracks, and a member could stop the broker with `(a+)+b`. So an expression becomes an automaton here,
whose states are made as they are needed. A name has to match as a whole. Since a topic's name is made of letters,
digits, dots, underscores and dashes, that is the whole alphabet: `.` means one of these, and other characters match
nothing.

Of RE2's syntax there is: literals, `.`, classes (with ranges, `^`, `\d\w\s`, `[:alpha:]`), groups (plain, `?:`, named),
`|`, the quantifiers `* + ? {n} {n,} {n,m}` (greedy or not makes no difference), `^ $ \A \z`, `\Q…\E`, `\x41`, and the
flags `i m s U`, of which only `i` means anything here. What RE2 has and this has not: `\b \B`, `\C`, octal escapes and
the Unicode classes `\p…`. What RE2 has not, this has not either: look-around, back-references, possessive quantifiers.
"""

import re
from collections.abc import Iterable

from headrace.coordinator.group.consumer.automaton import ALPHABET, END, START, Automaton, Node, TooLarge
from headrace.errors import HeadraceError

_DIGITS = frozenset("0123456789")
_WORDS = frozenset(character for character in ALPHABET if character.isalnum() or character == "_")
_ESCAPED_CLASSES = {
    "d": _DIGITS,
    "D": ALPHABET - _DIGITS,
    "w": _WORDS,
    "W": ALPHABET - _WORDS,
    "s": frozenset[str](),
    "S": ALPHABET,
}
_NAMED_CLASSES = {
    "alnum": frozenset(filter(str.isalnum, ALPHABET)),
    "alpha": frozenset(filter(str.isalpha, ALPHABET)),
    "ascii": ALPHABET,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(filter(str.islower, ALPHABET)),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(filter(str.isupper, ALPHABET)),
    "word": _WORDS,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
_CONTROLS = "aftnrv"
_QUANTIFIER = re.compile(r"([*+?])|\{(\d+)(?:(,)(\d*))?\}")
_GROUP = re.compile(r"\?(?:P?<(\w+)>|([imsU]*)(?:-([imsU]*))?([:)]))")
_HEXADECIMAL = re.compile(r"\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2})")
_NAMED_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_MOST_REPEATS = 1000
_DEEPEST_NESTING = 100


class InvalidExpression(HeadraceError):
    """A regular expression that cannot be understood here."""


class Expression:
    """A compiled regular expression."""

    def __init__(self, text: str) -> None:
        try:
            self._automaton = Automaton(_Parser(text).parse())
        except TooLarge:
            raise InvalidExpression("it is too large") from None
        self.text = text

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._automaton.accepts(name)


class _Parser:
    """Recursive descent over the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False
        self._names: set[str] = set()

    def parse(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise InvalidExpression(f"unexpected {self._text[self._at]!r} at position {self._at}")
        return node

    def _looks_at(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self) -> str:
        if self._at == len(self._text):
            raise InvalidExpression("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._looks_at("|"):
            self._at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Node.either(branches)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._looks_at(r"\Q"):
                parts += map(self._literal, self._quoted())
                if parts:
                    parts.append(self._quantified(parts.pop()))
            elif (atom := self._atom()) is not None:
                parts.append(self._quantified(atom))
        return Node.sequence(parts)

    def _atom(self) -> Node | None:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return Node.one_of(self._class())
            case ".":
                return Node.one_of(ALPHABET)
            case "^":
                return START
            case "$":
                return END
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise InvalidExpression(f"nothing to repeat before {character!r} at position {self._at - 1}")
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        return Node.one_of(self._cased((character,)))

    def _cased(self, characters: Iterable[str]) -> frozenset[str]:
        found = frozenset(characters)
        if self._ignores_case:
            found |= {case for character in found for case in (character.lower(), character.upper())}
        return found & ALPHABET

    def _quoted(self) -> str:
        start = self._at + 2
        end = self._text.find(r"\E", start)
        self._at = len(self._text) if end < 0 else end + 2
        return self._text[start:] if end < 0 else self._text[start:end]

    def _quantified(self, atom: Node) -> Node:
        if (found := _QUANTIFIER.match(self._text, self._at)) is None:
            return atom
        symbol, least, comma, most = found.groups()
        self._at = found.end()
        if self._looks_at("?"):
            self._at += 1
        if _QUANTIFIER.match(self._text, self._at):
            raise InvalidExpression(f"a quantifier follows another at position {self._at}")
        if symbol:
            return atom.repeated(int(symbol == "+"), 1 if symbol == "?" else None)
        low = int(least)
        high = low if not comma else int(most) if most else None
        if max(low, high or 0) > _MOST_REPEATS or (high is not None and high < low):
            raise InvalidExpression(f"{found[0]!r} is no count of at most {_MOST_REPEATS}")
        return atom.repeated(low, high)

    def _group(self) -> Node | None:
        outer = self._ignores_case
        if self._looks_at("?"):
            if (found := _GROUP.match(self._text, self._at)) is None:
                raise InvalidExpression(f"'({self._text[self._at : self._at + 2]}' is not RE2")
            name, on, off, end = found.groups()
            self._at = found.end()
            if name in self._names:
                raise InvalidExpression(f"two groups are called {name!r}")
            if name:
                self._names.add(name)
            self._ignores_case = (outer or "i" in (on or "")) and "i" not in (off or "")
            if end == ")":  # flags for the rest of the group around it
                return None
        self._depth += 1
        if self._depth > _DEEPEST_NESTING:
            raise InvalidExpression("it is nested too deeply")
        node = self._alternatives()
        self._depth -= 1
        if not self._looks_at(")"):
            raise InvalidExpression("a parenthesis is not closed")
        self._at += 1
        self._ignores_case = outer
        return node

    def _escape(self) -> Node:
        character = self._take()
        if character == "A":
            return START
        if character == "z":
            return END
        if character in _ESCAPED_CLASSES:
            return Node.one_of(_ESCAPED_CLASSES[character])
        return self._literal(self._escaped(character))

    def _escaped(self, character: str) -> str:
        """The character that an escape means."""
        if character == "x" and (found := _HEXADECIMAL.match(self._text, self._at)):
            self._at = found.end()
            code = int(found[1] or found[2], 16)
            return chr(code) if code < 0x110000 else "\0"
        if character in _CONTROLS:
            return "\0"  # in no topic's name
        if character.isascii() and not character.isalnum():
            return character
        raise InvalidExpression(f"'\\{character}' is not known here")

    def _class(self) -> frozenset[str]:
        """A class, after its opening bracket."""
        is_negated = self._looks_at("^")
        self._at += is_negated
        found: set[str] = set()
        is_first = True
        while is_first or not self._looks_at("]"):
            is_first = False
            if self._looks_at("[:"):
                found |= self._named_class()
                continue
            low = self._take()
            if low == "\\":
                low = self._take()
                if low in _ESCAPED_CLASSES:
                    found |= _ESCAPED_CLASSES[low]
                    continue
                low = self._escaped(low)
            high = low
            if self._looks_at("-") and not self._looks_at("-]"):
                self._at += 1
                high = self._take()
                high = self._escaped(self._take()) if high == "\\" else high
                if high < low:
                    raise InvalidExpression(f"'{low}-{high}' is no range")
            found |= self._cased(character for character in ALPHABET | {low, high} if low <= character <= high)
        self._at += 1
        return ALPHABET - found if is_negated else frozenset(found)

    def _named_class(self) -> frozenset[str]:
        named = _NAMED_CLASS.match(self._text, self._at)
        if named is None or named[2] not in _NAMED_CLASSES:
            raise InvalidExpression(f"there is no such class as {self._text[self._at : self._at + 10]!r}")
        self._at = named.end()
        members = self._cased(_NAMED_CLASSES[named[2]])
        return ALPHABET - members if named[1] else members
