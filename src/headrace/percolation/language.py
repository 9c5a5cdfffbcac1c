r"""The language of queries, read into `syntax.py`: Lucene's, with true precedence and a few functions.

    fast car                 words side by side: any of them (or all, as the reader is told)
    +fast car -old           must, may, must not
    fast AND (car OR bike)   NOT before AND before OR before side by side; also && || !
    "fast car"~2             a phrase, its words up to two positions out of place
    fa*t  f?st  fast~1       wildcards; up to so many edits; `fast~1,2`: the first two letters stand
    /fas?t/                  a regular expression in RE2's syntax, over the whole token
    title:fast  title:(a b)  of a field; `a.b.c` is a field within objects
    price:[100 TO 500}       a range; [ ] included, { } not, * open; also price:>=100
    title:*  *:*             any value; every document
    where:within(52.5, 13.4, 10km)  where:box(53, 13, 52, 14)     latitude, longitude, distance; two corners
    parts:nested(name:wheel AND price:>100)                       one object for which it all holds
    (a b c)@2  (a b c)@75%   at least so many of them
    a^2  (a b)^=3            score times two; score three, however it matches
    \:  \u003a               any letter as itself

What always holds: a text is read in time and memory that grow with its length, and no deeper than the policy's nesting;
whatever is wrong is an `InvalidQuery` with its place.
"""

import math
import re
from dataclasses import dataclass
from typing import Final

from headrace.errors import nearest
from headrace.percolation.errors import InvalidQuery
from headrace.percolation.syntax import (
    And,
    Approximate,
    Boosted,
    Clauses,
    Constant,
    Everything,
    Expression,
    Function,
    InField,
    Inside,
    Interval,
    Minimum,
    Node,
    Not,
    Or,
    Pattern,
    Present,
    Quoted,
    Required,
    Word,
)
from headrace.percolation.tree import Wild
from headrace.places import Place, whole

FUNCTIONS: Final = ("within", "box", "nested")
_ENDS_WORD: Final = frozenset('()[]{}"^~:')
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_SPACE: Final = re.compile(r"\s*")
_PLAIN: Final = re.compile(r'[^\s()\[\]{}"^~:\\*?]+')
_NAME: Final = re.compile(r"[A-Za-z_]+(?=\()")
_HIGHEST_BOOST: Final = 1e6
_HALF: Final = re.compile("[\ud800-\udfff]")
_DEEPEST: Final = 48


@dataclass(frozen=True)
class Policy:
    """What a query may cost: what is above is refused before it is stored, with the reason."""

    characters: int = 65_536
    clauses: int = 1_024
    nesting: int = 32
    patterns: int = 64
    """Wildcards, fuzzy words and regular expressions: each may be held against every token of a document."""
    leading_wildcards: bool = False
    expression_characters: int = 1_000
    expression_bytes: int = 262_144
    """Of the program that RE2 makes of a regular expression."""
    unselective: bool = True
    """Queries without a word or value that a document must have, which are held against every document."""

    def __post_init__(self) -> None:
        # Readers and evaluators call as deep as a query is nested.
        object.__setattr__(self, "nesting", min(self.nesting, _DEEPEST))


DEFAULT_POLICY: Final = Policy()


def parse(text: str, policy: Policy = DEFAULT_POLICY) -> Node:
    """The query of a text."""
    if len(text) > policy.characters:
        raise InvalidQuery(f"this query has {len(text):,} characters, and at most {policy.characters:,} are allowed")
    if (half := _HALF.search(text)) is not None:
        raise InvalidQuery(
            "this is half a letter: write the letter itself", Place(_HALF.sub("\ufffd", text), *half.span())
        )
    if not text.strip():
        raise InvalidQuery("this query is empty: write a word, or *:* for every document")
    return _Parser(text, policy).query()


class _Parser:
    """One text's way into nodes; `_at` is the character that is read next."""

    def __init__(self, text: str, policy: Policy) -> None:
        self._text = text
        self._policy = policy
        self._at = 0
        self._depth = 0
        self._clauses = 0

    def query(self) -> Node:
        node = self._list()
        if self._at < len(self._text):
            raise InvalidQuery(
                f"{self._text[self._at]!r} closes nothing here: leave it out, or write \\{self._text[self._at]}",
                self._place(self._at, self._at + 1),
            )
        return node

    # --- how words are held together

    def _list(self) -> Node:
        """Clauses side by side, up to the end or to a parenthesis that closes."""
        start, items = self._skip(), list[Node]()
        while self._skip() < len(self._text) and self._text[self._at] not in ")]}":
            items.append(self._or())
        if not items:
            raise InvalidQuery("a word is missing here", self._place(start, start + 1))
        if len(items) == 1 and not isinstance(items[0], Required | Not):
            return items[0]
        return Clauses(tuple(items), place=self._place(start))

    def _or(self) -> Node:
        start, items = self._at, [self._and()]
        while self._operator("OR", "||"):
            items.append(self._and())
        if len(items) == 1:
            return items[0]
        for item in items:
            if isinstance(item, Required):
                raise InvalidQuery("what is required cannot be one side of OR: leave out the + or the OR", item.place)
        return Or(tuple(items), place=self._place(start))

    def _and(self) -> Node:
        start, items = self._at, [self._signed()]
        while self._operator("AND", "&&"):
            items.append(self._signed())
        if len(items) == 1:
            return items[0]
        # Both sides of AND are required as it is.
        return And(tuple(item.node if isinstance(item, Required) else item for item in items), place=self._place(start))

    def _signed(self) -> Node:
        start = self._skip()
        self._deeper(start)
        node: Node
        if self._operator("NOT", "!") or self._take("-"):
            node = Not(self._unsigned(self._signed()), place=self._place(start))
        elif self._take("+"):
            node = Required(self._unsigned(self._signed()), place=self._place(start))
        else:
            node = self._boosted()
        self._depth -= 1
        return node

    def _unsigned(self, node: Node) -> Node:
        if isinstance(node, Required):
            raise InvalidQuery("one sign is enough: leave out the +", node.place)
        return node

    def _boosted(self) -> Node:
        start, node = self._at, self._operand()
        if self._skip() < len(self._text) and self._text[self._at] == "^":
            mark = self._at
            self._at += 1
            is_constant = self._take("=")
            value = self._number(mark, "a boost is a number from 0 on, as in ^2 or ^=1.5")
            if value > _HIGHEST_BOOST:
                raise InvalidQuery(f"a boost is at most {_HIGHEST_BOOST:,.0f}", self._place(mark))
            place = self._place(start)
            node = Constant(node, value, place=place) if is_constant else Boosted(node, value, place=place)
            if self._skip() < len(self._text) and self._text[self._at] == "^":
                raise InvalidQuery("one boost is enough", self._place(self._at, self._at + 1))
        return node

    def _operand(self) -> Node:
        start = self._skip()
        if start >= len(self._text):
            raise InvalidQuery("a word is missing here", self._place(start, start + 1))
        if (field := self._field()) is None:
            return self._value(in_field=False)
        if field == "_exists_":
            named = self._bare("a field's name")
            return InField(named, Present(place=self._place(start)), place=self._place(start))
        self._skip()
        return InField(field, self._value(in_field=True), place=self._place(start))

    def _field(self) -> str | None:
        """The name in front of a colon, if there is one; `*:` is left for `*:*`."""
        start = self._at
        if self._text[start] in '()[]{}"/^~:<>':
            return None
        parts = self._word(with_colons=False)
        if self._at < len(self._text) and self._text[self._at] == ":" and parts:
            if parts == (Wild.ANY,) and self._text.startswith("*", self._at + 1):
                self._at = start
                return None
            if any(isinstance(part, Wild) for part in parts):
                raise InvalidQuery("a field has no wildcard in its name: name each field", self._place(start))
            self._at += 1
            return "".join(part for part in parts if isinstance(part, str))
        self._at = start
        return None

    # --- one operand

    def _value(self, *, in_field: bool) -> Node:
        start = self._at
        if start >= len(self._text):
            raise InvalidQuery("a value is missing after the colon", self._place(start - 1, start))
        letter = self._text[start]
        if letter == "(":
            return self._group()
        self._count(start)
        if letter == '"':
            text = self._quoted()
            slop = 0
            if self._take("~"):
                slop = self._whole_number(start, "a phrase's slop is a whole number, as in ~2")
            return Quoted(text, slop, place=self._place(start))
        if letter == "/":
            return self._expression()
        if letter in "[{":
            return self._interval()
        if letter in "<>":
            return self._comparison()
        if not in_field and self._text.startswith("*:*", start):
            self._at += 3
            return Everything(place=self._place(start))
        if in_field and (name := _NAME.match(self._text, start)):
            return self._function(name[0])
        return self._word_node(in_field=in_field)

    def _word_node(self, *, in_field: bool) -> Node:
        start = self._at
        parts = self._word(with_colons=in_field)
        if not parts:
            letter = self._text[start]
            known = {")": "closes nothing", ":": "has no field before it", "~": "has no word before it"}
            raise InvalidQuery(
                f"{letter!r} {known.get(letter, 'is not expected')} here: write \\{letter} for the letter itself",
                self._place(start, start + 1),
            )
        text = "".join(part for part in parts if isinstance(part, str))
        is_plain = not any(isinstance(part, Wild) for part in parts)
        if is_plain and self._text[start : self._at] in ("AND", "OR", "&&", "||"):
            raise InvalidQuery(f"{text} has nothing before it", self._place(start))
        if self._take("~"):
            if not is_plain:
                raise InvalidQuery("a word has wildcards or ~, not both", self._place(start))
            edits = self._digits()
            prefix = self._digits() if edits is not None and self._take(",") else 0
            if prefix is None or self._text.startswith(".", self._at):
                raise InvalidQuery(
                    "~ counts edits: write ~1, or ~1,2 to let the first two letters stand", self._place(start)
                )
            return Approximate(text, edits, prefix, place=self._place(start))
        place = self._place(start)
        if is_plain:
            return Word(text, place=place)
        if parts == (Wild.ANY,):
            return Present(place=place) if in_field else Everything(place=place)
        return Pattern(parts, place=place)

    def _word(self, *, with_colons: bool) -> tuple[str | Wild, ...]:
        """A bare word as text and wildcards; none if no word begins here."""
        parts, letters = list[str | Wild](), list[str]()
        text, end = self._text, len(self._text)
        while self._at < end:
            if plain := _PLAIN.match(text, self._at):
                letters.append(plain[0])
                self._at = plain.end()
                continue
            letter = text[self._at]
            if letter == "\\":
                letters.append(self._escaped())
                continue
            if letter.isspace() or (
                letter in _ENDS_WORD and not (letter == ":" and with_colons and (letters or parts))
            ):
                break
            if letter in "*?":
                if letters:
                    parts.append("".join(letters))
                    letters = []
                # Several stars say what one says.
                if not (letter == "*" and parts and parts[-1] is Wild.ANY):
                    parts.append(Wild(letter))
            else:
                letters.append(letter)
            self._at += 1
        if letters:
            parts.append("".join(letters))
        return tuple(parts)

    def _escaped(self) -> str:
        """The letter that a backslash is in front of."""
        start = self._at
        if start + 1 >= len(self._text):
            raise InvalidQuery(
                "a backslash is in front of a letter: write \\\\ for itself", self._place(start, start + 1)
            )
        letter = self._text[start + 1]
        self._at += 2
        if letter == "u" and (code := re.compile("[0-9a-fA-F]{4}").match(self._text, self._at)):
            self._at += 4
            if 0xD800 <= int(code[0], 16) < 0xE000:
                raise InvalidQuery("this is half a letter: write the letter itself", self._place(start))
            return chr(int(code[0], 16))
        return letter

    def _quoted(self) -> str:
        start, letters = self._at, list[str]()
        self._at += 1
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter == '"':
                self._at += 1
                return "".join(letters)
            if letter == "\\":
                letters.append(self._escaped())
            else:
                letters.append(letter)
                self._at += 1
        raise InvalidQuery("a quote is opened here and never closed", self._place(start, start + 1))

    def _expression(self) -> Node:
        start, letters = self._at, list[str]()
        self._at += 1
        while self._at < len(self._text):
            letter = self._text[self._at]
            self._at += 1
            if letter == "/":
                return Expression("".join(letters), place=self._place(start))
            if letter == "\\" and self._at < len(self._text):
                letters.append("/" if self._text[self._at] == "/" else letter + self._text[self._at])
                self._at += 1
            else:
                letters.append(letter)
        raise InvalidQuery(
            "a regular expression is opened here and never closed: write \\/ for a slash", self._place(start, start + 1)
        )

    def _interval(self) -> Node:
        start = self._at
        includes_low = self._text[start] == "["
        self._at += 1
        low = self._bound(start)
        if not self._keyword("TO"):
            raise InvalidQuery("a range is written as [low TO high], with * for none", self._place(start))
        high = self._bound(start)
        self._skip()
        if self._at >= len(self._text) or self._text[self._at] not in "]}":
            raise InvalidQuery("a range is opened here and never closed", self._place(start, start + 1))
        self._at += 1
        place = self._place(start)
        return Interval(low, high, includes_low, self._text[self._at - 1] == "]", place=place)

    def _bound(self, opened: int) -> str | None:
        start = self._skip()
        if start < len(self._text) and self._text[start] == '"':
            return self._quoted()
        while (
            self._at < len(self._text) and not self._text[self._at].isspace() and self._text[self._at] not in '[]{}"()'
        ):
            self._at += 2 if self._text[self._at] == "\\" else 1
        end = self._at = min(self._at, len(self._text))
        if start == end or self._text[start:end] == "TO":
            raise InvalidQuery("a range is written as [low TO high], with * for none", self._place(opened))
        if self._text[start:end] == "*":
            return None
        return re.sub(r"\\(.)", r"\1", self._text[start:end], flags=re.DOTALL)

    def _comparison(self) -> Node:
        start = self._at
        self._at += 1
        includes = self._take("=")
        self._skip()
        value = self._bound(start) if not self._text.startswith("*", self._at) else None
        if value is None:
            raise InvalidQuery("a value is missing in this comparison: write for example >=100", self._place(start))
        place = self._place(start)
        if self._text[start] == ">":
            return Interval(value, None, includes, True, place=place)
        return Interval(None, value, True, includes, place=place)

    def _group(self) -> Node:
        start = self._at
        self._at += 1
        self._deeper(start)
        node = self._list()
        self._depth -= 1
        self._close(start)
        if not self._take("@"):
            return node
        count = self._digits()
        minimum = Minimum(count or 0, self._take("%"))
        place = self._place(start)
        if not minimum.count or (minimum.is_percent and minimum.count > 100):
            raise InvalidQuery("@ says how many have to match: write @2 or @75%", place)
        if isinstance(node, Or | Clauses) and node.minimum is None:
            return type(node)(node.items, minimum, place=place)
        if isinstance(node, And):
            raise InvalidQuery("all sides of AND have to match: leave out the @", place)
        return Clauses((node,), minimum, place=place)

    def _close(self, opened: int) -> None:
        self._skip()
        if self._at >= len(self._text):
            raise InvalidQuery("a parenthesis is opened here and never closed", self._place(opened, opened + 1))
        if self._text[self._at] != ")":
            raise InvalidQuery(
                f"{self._text[self._at]!r} closes nothing here: leave it out, or write \\{self._text[self._at]}",
                self._place(self._at, self._at + 1),
            )
        self._at += 1

    def _function(self, name: str) -> Node:
        start = self._at
        self._at += len(name)
        if name not in FUNCTIONS:
            raise InvalidQuery(f"{name} is unknown as a function; {nearest(name, FUNCTIONS)}", self._place(start))
        opened = self._at
        self._at += 1
        if name == "nested":
            self._deeper(opened)
            node = self._list()
            self._depth -= 1
            self._close(opened)
            return Inside(node, place=self._place(start))
        end = self._text.find(")", opened)
        if end < 0:
            raise InvalidQuery("a parenthesis is opened here and never closed", self._place(opened, opened + 1))
        self._at = end + 1
        arguments = tuple(each.strip() for each in self._text[opened + 1 : end].split(","))
        return Function(name, arguments, place=self._place(start))

    def _bare(self, what: str) -> str:
        start = self._skip()
        parts = self._word(with_colons=False)
        if not parts or any(isinstance(part, Wild) for part in parts):
            raise InvalidQuery(f"{what} is missing here", self._place(start, start + 1))
        return "".join(part for part in parts if isinstance(part, str))

    # --- letters

    def _skip(self) -> int:
        """Past white space; where that is."""
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at

    def _take(self, letter: str) -> bool:
        if self._text.startswith(letter, self._at):
            self._at += len(letter)
            return True
        return False

    def _keyword(self, word: str) -> bool:
        self._skip()
        end = self._at + len(word)
        # A word ends where it could not go on; what has a colon behind it is a field.
        after = self._text[end : end + 1]
        if self._text.startswith(word, self._at) and (not after or after.isspace() or after in '()"+-!/['):
            self._at = end
            return True
        return False

    def _operator(self, word: str, sign: str) -> bool:
        self._skip()
        return self._keyword(word) or self._take(sign)

    def _digits(self) -> int | None:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "0123456789" and self._at - start < 9:
            self._at += 1
        return int(self._text[start : self._at]) if self._at > start else None

    def _whole_number(self, start: int, sentence: str) -> int:
        found = self._digits()
        if found is None or self._text.startswith(".", self._at):
            raise InvalidQuery(sentence, self._place(start))
        return found

    def _number(self, start: int, sentence: str) -> float:
        found = _NUMBER.match(self._text, self._at)
        if found is None or not math.isfinite(float(found[0])):
            raise InvalidQuery(sentence, self._place(start, self._at + 1))
        self._at = found.end()
        return float(found[0])

    # --- bounds

    def _deeper(self, start: int) -> None:
        self._depth += 1
        if self._depth > 2 * self._policy.nesting:
            raise InvalidQuery(
                f"more than {self._policy.nesting} parentheses and signs are within each other here",
                self._place(start, start + 1),
            )

    def _count(self, start: int) -> None:
        self._clauses += 1
        if self._clauses > self._policy.clauses:
            raise InvalidQuery(
                f"this query has more than {self._policy.clauses:,} words and values: write several queries",
                self._place(start, start + 1),
            )

    def _place(self, start: int, end: int | None = None) -> Place:
        if end is not None:
            return Place(self._text, start, end)
        end = self._at
        while end > start and self._text[end - 1].isspace():
            end -= 1
        return Place(self._text, start, end) if end > start else whole(self._text)
