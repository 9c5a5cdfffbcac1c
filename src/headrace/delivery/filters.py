"""Filters of messages: a condition over headers, key and JSON fields, in the language of JMS selectors.

    header.region = 'eu' AND value.amount > 100
    key LIKE 'orders.%' OR value.kind IN ('gold', 'silver') OR NOT header.test IS NULL

Operands are `key`, `value` (both as text), `header.NAME`, `value.FIELD.FIELD` (of a JSON value; a number is a place in
a list), texts in single quotes, numbers, TRUE and FALSE. A part of a name with other characters than letters, digits,
`_` and `-` stands in double quotes. As in JMS a condition over what is missing is neither true nor false but unknown,
and a message matches only if the whole is true; values of different types compare as false. Headers, keys and values
are texts on the wire, so that one is read as a number, or as true or false, where it is compared with that.

What always holds: reading and matching take time and depth that the filter's length bounds; nothing is evaluated as
code, and nothing that a message has in it makes a match fail.
"""

import json
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import re2

from headrace.errors import HeadraceError
from headrace.records.record import Record

_LONGEST: Final = 4096  # characters
_DEEPEST: Final = 50
# Bytes of a value whose fields are looked at, as large as a message may be by default. A parse cannot be interrupted,
# nor does it let others run in a thread: whoever matches it holds up all others for as long: 50 ms on a slow machine.
LARGEST_JSON: Final = 1024 * 1024

Truth = bool | None  # None: unknown
Value = str | int | float | bool | None
_Test = Callable[["_Message"], Truth]


class InvalidFilter(HeadraceError):
    """A filter that cannot be read."""


class Filter:
    """A filter that was read."""

    __slots__ = ("_test", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._test = _Parser(text).read()

    def matches(self, record: Record) -> bool:
        return self.judge(record) is True

    def judge(self, record: Record) -> Truth:
        """Whether a record matches; None if its value is too large to be looked into, and nothing else of it does."""
        message = _Message(record)
        is_match = self._test(message) is True
        return None if message.is_too_large and not is_match else is_match

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


class _Text(str):
    """A text from the wire, which may stand for a number."""

    __slots__ = ()


class _Message:
    """A record as filters see it; its value is parsed when somebody wants a field of it."""

    __slots__ = ("_fields", "_is_parsed", "_text", "is_too_large", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._is_parsed = False
        self.is_too_large = False  # somebody wanted a field, and it was not parsed
        self._fields: Any = None
        self._text: Value = None

    @property
    def text(self) -> Value:
        if self._text is None:
            self._text = _text(self.record.value)
        return self._text

    @property
    def fields(self) -> Any:
        if not self._is_parsed:
            self._is_parsed = True
            value = self.record.value
            self.is_too_large = value is not None and len(value) > LARGEST_JSON
            if value is not None and not self.is_too_large:
                try:
                    self._fields = json.loads(value)
                except (ValueError, RecursionError):
                    self._fields = None
        return self._fields


# --- operands


_Operand = Callable[[_Message], Value]


def _text(data: bytes | None) -> Value:
    return None if data is None else _Text(data, "utf-8", "replace")


def _key(message: _Message) -> Value:
    return _text(message.record.key)


def _value(message: _Message) -> Value:
    return message.text


def _header(name: str) -> _Operand:
    def find(message: _Message) -> Value:
        for header in reversed(message.record.headers):  # as in Kafka the last one of a name counts
            if header.key == name:
                return _text(header.value)
        return None

    return find


def _field(path: Sequence[str]) -> _Operand:
    def find(message: _Message) -> Value:
        found = message.fields
        for name in path:
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 10:
                found = found[int(name)] if int(name) < len(found) else None
            else:
                return None
        return None if isinstance(found, dict | list) else found

    return find


# --- comparisons: of two values that are there


def _alike(left: Value, right: Value) -> tuple[Any, Any] | None:
    """Two values as they compare; None if they are of different types."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, _Text) and not isinstance(other, str):
            read = _read_as(one, other)
            if read is None:
                return None
            return (read, other) if one is left else (other, read)
    if isinstance(left, bool) is not isinstance(right, bool) or isinstance(left, str) is not isinstance(right, str):
        return None
    return left, right


def _read_as(text: str, like: Value) -> Value:
    if isinstance(like, bool):
        return {"true": True, "false": False}.get(text.lower())
    return _number(text) if _NUMBER.fullmatch(text) else None


_NUMBER = re.compile(r"[-+]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][-+]?\d{1,4})?", re.ASCII)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _compare(sign: str, left: _Operand, right: _Operand) -> _Test:
    compare = _SIGNS[sign]

    def test(message: _Message) -> Truth:
        one, other = left(message), right(message)
        if one is None or other is None:
            return None
        pair = _alike(one, other)
        if pair is None or (isinstance(pair[0], bool) and compare not in (operator.eq, operator.ne)):
            return False
        return bool(compare(*pair))

    return test


_SIGNS: Final = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _among(operand: _Operand, values: Sequence[Value]) -> _Test:
    def test(message: _Message) -> Truth:
        found = operand(message)
        if found is None:
            return None
        return any((pair := _alike(found, value)) is not None and pair[0] == pair[1] for value in values)

    return test


def _like(operand: _Operand, pattern: str, escape: str) -> _Test:
    parts, is_escaped = [], False
    for each in pattern:
        if is_escaped or each not in ("%", "_", escape):
            parts.append(re2.escape(each))
            is_escaped = False
        elif each == escape:
            is_escaped = True
        else:
            parts.append(".*" if each == "%" else ".")
    if is_escaped:
        raise InvalidFilter(f"the pattern {pattern!r} ends with its escape character {escape!r}")
    matches = re2.compile("(?s)" + "".join(parts)).fullmatch

    def test(message: _Message) -> Truth:
        found = operand(message)
        return None if found is None else isinstance(found, str) and matches(_plain(found)) is not None

    return test


def _plain(text: str) -> str:
    """A text that can be encoded: JSON may have halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def _is_true(operand: _Operand) -> _Test:
    """A value for a condition: a field that is true or false, or a text from the wire that says so."""

    def test(message: _Message) -> Truth:
        found = operand(message)
        if isinstance(found, _Text):
            found = _read_as(found, True)
            return found if isinstance(found, bool) else False
        return None if found is None else found is True

    return test


def _joined(tests: Sequence[_Test], decisive: bool) -> _Test:
    """Tests joined by OR, of which one that is true decides; or by AND, of which one that is false does."""
    if len(tests) == 1:
        return tests[0]

    def test(message: _Message) -> Truth:
        truth: Truth = not decisive
        for each in tests:
            found = each(message)
            if found is decisive:
                return decisive
            if found is None:
                truth = None
        return truth

    return test


def _not(inner: _Test) -> _Test:
    def test(message: _Message) -> Truth:
        truth = inner(message)
        return None if truth is None else not truth

    return test


# --- reading


class _Token(NamedTuple):
    kind: str  # "name", "text", "number", "sign", or "end"
    text: str
    at: int


_PART: Final = r'(?:[A-Za-z0-9_][A-Za-z0-9_-]*|"(?:[^"]|"")+")'
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{{1,4}})?(?![\w.]))
      | (?P<name>{_PART}(?:\.{_PART})*)
      | (?P<sign><>|!=|<=|>=|[=<>(),])
    )""",
    re.VERBOSE | re.ASCII,
)
_WORDS: Final = frozenset(["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"])


class _Parser:
    """Reads a filter from left to right, one word ahead."""

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise InvalidFilter(f"the filter has {len(text)} characters: give at most {_LONGEST}")
        self._tokens = _split(text)
        self._position = 0
        self._depth = 0

    def read(self) -> _Test:
        test = self._either()
        if self._next.kind != "end":
            raise self._expected("AND, OR or the end")
        return test

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self) -> _Token:
        token = self._next
        self._position += 1
        return token

    def _takes(self, *words: str) -> bool:
        """Whether these words or signs come next; then they are taken."""
        ahead = self._tokens[self._position : self._position + len(words)]
        if [token.text.upper() if token.kind == "name" else token.text for token in ahead] != list(words):
            return False
        if any(token.kind in ("text", "number") for token in ahead):
            return False
        self._position += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._expected(word)

    def _expected(self, what: str) -> InvalidFilter:
        token = self._next
        there = "the filter ends" if token.kind == "end" else f"there is {token.text}"
        return InvalidFilter(f"expected {what} at character {token.at + 1}, where {there}")

    def _either(self) -> _Test:
        tests = [self._both()]
        while self._takes("OR"):
            tests.append(self._both())
        return _joined(tests, decisive=True)

    def _both(self) -> _Test:
        tests = [self._negated()]
        while self._takes("AND"):
            tests.append(self._negated())
        return _joined(tests, decisive=False)

    def _negated(self) -> _Test:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InvalidFilter(f"the filter is nested more than {_DEEPEST} deep: write it flatter")
        try:
            if self._takes("NOT"):
                return _not(self._negated())
            if self._takes("("):
                test = self._either()
                self._expect(")")
                return test
            return self._predicate()
        finally:
            self._depth -= 1

    def _predicate(self) -> _Test:
        operand = self._operand()
        if self._next.text in _SIGNS and self._next.kind == "sign":
            return _compare(self._take().text, operand, self._operand())
        if self._takes("IS", "NOT", "NULL"):
            return lambda message: operand(message) is not None
        if self._takes("IS", "NULL"):
            return lambda message: operand(message) is None
        if self._takes("NOT", "IN") or self._takes("NOT", "LIKE") or self._takes("NOT", "BETWEEN"):
            self._position -= 1
            return _not(self._membership(operand))
        if self._next.text.upper() in ("IN", "LIKE", "BETWEEN"):
            return self._membership(operand)
        return _is_true(operand)

    def _membership(self, operand: _Operand) -> _Test:
        if self._takes("BETWEEN"):
            low = self._operand()
            self._expect("AND")
            bounds = _compare(">=", operand, low), _compare("<=", operand, self._operand())
            return _joined(bounds, decisive=False)
        if self._takes("LIKE"):
            pattern = self._literal_text("a pattern in single quotes")
            escape = self._literal_text("one character in single quotes") if self._takes("ESCAPE") else ""
            if len(escape) > 1:
                raise InvalidFilter(f"ESCAPE {escape!r} is invalid: give one character")
            return _like(operand, pattern, escape)
        self._expect("IN")
        self._expect("(")
        values = [self._literal()]
        while self._takes(","):
            values.append(self._literal())
        self._expect(")")
        return _among(operand, values)

    def _operand(self) -> _Operand:
        token = self._next
        if token.kind == "name" and token.text.upper() not in _WORDS:
            self._position += 1
            return _name(token)
        value = self._literal()
        return lambda _: value

    def _literal(self) -> Value:
        token = self._next
        if token.kind == "text":
            return self._literal_text("")
        if token.kind == "number":
            return _number(self._take().text)
        if self._takes("TRUE"):
            return True
        if self._takes("FALSE"):
            return False
        raise self._expected("a field, a text in single quotes, a number, TRUE or FALSE")

    def _literal_text(self, what: str) -> str:
        if self._next.kind != "text":
            raise self._expected(what)
        return self._take().text[1:-1].replace("''", "'")


def _split(text: str) -> list[_Token]:
    tokens, position = [], 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            at = position + len(text[position:]) - len(text[position:].lstrip())
            raise InvalidFilter(f"{text[at : at + 10]!r} at character {at + 1} cannot be read: check quotes and signs")
        tokens.append(_Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
        position = found.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _name(token: _Token) -> _Operand:
    parts = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in re.findall(_PART, token.text)]
    match parts:
        case ["key"]:
            return _key
        case ["value"]:
            return _value
        case ["value", *path]:
            return _field(path)
        case ["header", name]:
            return _header(name)
        case ["header", *names] if names and '"' not in token.text:
            return _header(".".join(names))  # dots are usual in names of headers
    raise InvalidFilter(
        f"{token.text} at character {token.at + 1} is unknown: give key, value, value.FIELD or header.NAME"
    )
