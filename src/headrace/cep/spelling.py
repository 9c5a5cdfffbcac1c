"""Patterns as texts and back: for files, command lines, and topics of patterns.

A text is `MATCH_RECOGNIZE (…)`, or Python as one writes it: `Pattern.begin("a", "x < 1").followed_by("b", "x > 9")`.
Python is read, not run: there are calls of what a `Pattern` has, texts and numbers in them, `|`, and nothing else.

What always holds: `read_pattern(text_of(pattern))` equals the pattern.
"""

import ast
import re
from typing import Any, Final

from headrace.cep.errors import InvalidPattern
from headrace.cep.pattern import Pattern
from headrace.cep.tree import Contiguity, Greed, Skip
from headrace.cep.written import Either, Order, Part, Row, Written
from headrace.durations import in_words
from headrace.errors import nearest
from headrace.places import Place, whole

_MAKE: Final = ("begin", "permutation", "sql")
_GO_ON: Final = (
    "next", "followed_by", "followed_by_any", "not_next", "not_followed_by", "times", "times_or_more", "one_or_more",
    "optional", "greedy", "reluctant", "consecutive", "allow_combinations", "until", "excluded", "within",
    "skip_to_next", "skip_past_last", "skip_to_first", "skip_to_last", "once", "every", "every_distinct",
)  # fmt: skip
_SQL: Final = re.compile(r"\s*(--[^\n]*\n\s*)*MATCH_RECOGNIZE\b", re.IGNORECASE)
_LONGEST: Final = 1024 * 1024


def is_sql(text: str) -> bool:
    return _SQL.match(text) is not None


def is_python(text: str) -> bool:
    return re.match(r"\s*\(*\s*Pattern\s*\.", text) is not None


def read_pattern(text: str) -> Pattern:
    """The pattern of a text in either language."""
    if len(text) > _LONGEST:
        raise InvalidPattern("this text is longer than a MiB, which no pattern is")
    return Pattern.sql(text) if is_sql(text) else _read_python(text)


def _read_python(text: str) -> Pattern:
    stripped = text.strip()
    try:
        tree = ast.parse(stripped, mode="eval")
        found = _Reader(stripped).read(tree.body)
    except SyntaxError as error:
        place = _at(stripped, error.lineno or 1, (error.offset or 1) - 1)
        raise InvalidPattern(f"this is not a pattern in Python: {error.msg}", place) from None
    except (RecursionError, MemoryError, ValueError):
        raise InvalidPattern("this is not a pattern in Python: it is nested too deep, or holds a null byte") from None
    if not isinstance(found, Pattern):
        raise InvalidPattern("this is not a pattern: write Pattern.begin(…) or MATCH_RECOGNIZE (…)", whole(stripped))
    return found


def _at(text: str, line: int, column: int) -> Place:
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: line - 1])) + column
    return Place(text, min(start, max(len(text) - 1, 0)), min(start, max(len(text) - 1, 0)) + 1)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int) and not isinstance(node.value, bool):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._pattern(node.left) | self._pattern(node.right)
        if isinstance(node, ast.Attribute) and self._is_name(node.value, "Contiguity"):
            if node.attr not in Contiguity.__members__:
                raise InvalidPattern(
                    f"unknown contiguity {node.attr!r}: {nearest(node.attr, Contiguity.__members__)}", self._place(node)
                )
            return Contiguity[node.attr]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self._call(node, node.func)
        raise InvalidPattern(
            "this is not part of a pattern: write Pattern.begin(…), what follows it, texts and numbers",
            self._place(node),
        )

    def _call(self, node: ast.Call, called: ast.Attribute) -> Pattern:
        is_first = self._is_name(called.value, "Pattern")
        known = _MAKE if is_first else _GO_ON
        if called.attr not in known:
            raise InvalidPattern(
                f"a pattern has no {called.attr!r}: {nearest(called.attr, known)}", self._place(called, called.attr)
            )
        method = getattr(Pattern if is_first else self._pattern(called.value), called.attr)
        arguments = [self.read(argument) for argument in node.args]
        named = {self._keyword(keyword): self.read(keyword.value) for keyword in node.keywords}
        try:
            found: Pattern = method(*arguments, **named)
        except (TypeError, AttributeError) as error:
            said = re.sub(r"^Pattern\.", "", str(error))
            raise InvalidPattern(f"this call is wrong: {said}", self._place(called, called.attr)) from None
        except InvalidPattern as error:
            if error.place is not None:
                raise
            raise InvalidPattern(error.sentence, self._place(called, called.attr)) from None
        return found

    def _keyword(self, keyword: ast.keyword) -> str:
        if keyword.arg is None:
            raise InvalidPattern("arguments are written one by one: ** is not read", self._place(keyword.value))
        return keyword.arg

    def _pattern(self, node: ast.expr) -> Pattern:
        found = self.read(node)
        if not isinstance(found, Pattern):
            raise InvalidPattern("a pattern is expected here: write Pattern.begin(…)", self._place(node))
        return found

    @staticmethod
    def _is_name(node: ast.expr, name: str) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    def _place(self, node: ast.expr, name: str = "") -> Place:
        """Of a node, or of the name at its end."""
        lines = self._text.splitlines(keepends=True)

        def offset(line: int, column: int) -> int:
            return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode(errors="ignore"))

        end = offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return Place(self._text, end - len(name) if name else offset(node.lineno, node.col_offset), end)


# --- written


def text_of(pattern: Pattern) -> str:
    """The pattern as a text that `read_pattern` reads."""
    return _text_of(pattern.written)


def _text_of(written: Written) -> str:
    if written.sql is not None:
        place = written.sql.place
        assert place is not None, "whatever was read has its text"
        return place.text
    first, *others = written.parts
    text = _first(first) + _quantified(first) + "".join(_following(part) + _quantified(part) for part in others)
    if written.within_us is not None:
        text += f".within({_text(in_words(written.within_us))})"
    text += _after(written)
    if written.distinct is not None:
        expression, expires_us = written.distinct
        expires = "" if expires_us is None else f", expires={_text(in_words(expires_us))}"
        text += f".every_distinct({_text(expression)}{expires})"
    return text


def _first(part: Part) -> str:
    what = part.what
    if isinstance(what, Either):
        return f"({' | '.join(map(_text_of, what.branches))})"
    if isinstance(what, Order):
        how = what.link.contiguity
        said = "" if how is Contiguity.RELAXED else f", contiguity=Contiguity.{how.name}"
        return f"Pattern.permutation({', '.join(map(_text_of, what.items))}{said})"
    return f"Pattern.begin({_what(what)})"


def _following(part: Part) -> str:
    assert isinstance(part.what, Row | Written)
    if part.is_absence:
        name = "not_next" if part.is_next else "not_followed_by"
        within_us = part.for_us
    else:
        name = {
            Contiguity.STRICT: "next",
            Contiguity.RELAXED: "followed_by",
            Contiguity.ANY: "followed_by_any",
        }[part.link.contiguity]
        within_us = part.link.within_us
    within = "" if within_us is None else f", within={_text(in_words(within_us))}"
    return f".{name}({_what(part.what)}{within})"


def _what(what: Row | Written) -> str:
    if isinstance(what, Written):
        return _text_of(what)
    return _text(what.name) + ("" if what.condition is None else f", {_text(what.condition)}")


def _quantified(part: Part) -> str:
    more = ".optional()" if part.is_optional else ""
    if part.greed is not Greed.EITHER:
        more += f".{part.greed.value}()"
    if part.turns is not Contiguity.RELAXED:
        more += ".consecutive()" if part.turns is Contiguity.STRICT else ".allow_combinations()"
    if part.until is not None:
        more += f".until({_text(part.until)})"
    excluded = ".excluded()" if part.is_excluded else ""
    if part.is_repeated:
        return _times(part) + more + excluded
    # What is said of times alone was said before there was one time only.
    return f".times(2){more}.times(1){excluded}" if more not in ("", ".optional()") else more + excluded


def _times(part: Part) -> str:
    if part.most is None:
        return ".one_or_more()" if part.least == 1 else f".times_or_more({part.least})"
    return f".times({part.least})" if part.least == part.most else f".times({part.least}, {part.most})"


def _after(written: Written) -> str:
    after = written.after
    if after.skip in (Skip.TO_FIRST, Skip.TO_LAST):
        (variable,) = after.variables
        return f".skip_{'to_first' if after.skip is Skip.TO_FIRST else 'to_last'}({_text(variable)})"
    return {Skip.NONE: "", Skip.TO_NEXT: ".skip_to_next()", Skip.PAST_LAST: ".skip_past_last()"}.get(
        after.skip, ".once()"
    )


def _text(text: str) -> str:
    return repr(text) if '"' in text or not text.isprintable() or "\\" in text else f'"{text}"'
