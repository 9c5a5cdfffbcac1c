"""What a query means: its words met with the mapping, `syntax.py` turned into `tree.py`.

    words of a text field      tokens of its analyzer; several of one word (`wi-fi`) are a phrase
    fuzzy words                the token, if the word is one; edits are counted between tokens
    prefixes and wildcards     in the letters of tokens, neither cut into words nor stemmed
    words of numbers, dates    the number; all of the time that the date says
    a dynamic field            each thing that the word could be: text, number, date

What always holds: a clause whose words the analyzer leaves out counts as not written, and a query of which nothing is
left is refused; so is what a field's type cannot be asked. A stored query has no `now`: whether it matches depends on
the document alone.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2

from headrace.errors import nearest
from headrace.percolation import syntax
from headrace.percolation.analysis import Analyzer
from headrace.percolation.dates import asks_for_now, read_date
from headrace.percolation.documents import POSITION_GAP
from headrace.percolation.errors import InvalidQuery
from headrace.percolation.language import DEFAULT_POLICY, Policy, parse
from headrace.percolation.mapping import DYNAMIC, FieldType, Kind, Mapping
from headrace.percolation.points import is_on_earth, read_distance
from headrace.percolation.tree import (
    ANY_FIELD,
    Boolean,
    Boost,
    ConstantScore,
    Either,
    Exists,
    Fuzzy,
    GeoBox,
    GeoDistance,
    MatchAll,
    Nested,
    Phrase,
    PhraseTerm,
    Prefix,
    Query,
    Range,
    Regexp,
    Scale,
    Term,
    Wild,
    Wildcard,
)

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_MOST_EDITS: Final = 2
# The index keeps a word under everything that it becomes without so many letters: their square.
_LONGEST_FUZZY: Final = 64
# Each of its words may be sought at every place of a long text.
_LONGEST_SLOPPY_PHRASE: Final = 64
# A phrase's words and its slop stay below the gap between two values.
_LONGEST_PHRASE: Final = POSITION_GAP // 2
_HIGHEST_SLOP: Final = POSITION_GAP // 2 - 1
_TEXTS: Final = (Kind.TEXT, Kind.KEYWORD, Kind.DYNAMIC)


@dataclass(frozen=True)
class _Scope:
    """Where the words of a part of the query are looked for: `is_named` if the query says so."""

    fields: tuple[str, ...]
    is_named: bool = False
    path: str = ""
    """Of the object that names are relative to, with a dot at its end."""


def read_query(
    text: str,
    mapping: Mapping = DYNAMIC,
    *,
    fields: Iterable[str] = (),
    all_words: bool = False,
    policy: Policy = DEFAULT_POLICY,
) -> Query:
    """The query of a text. `fields` are looked in for words that name none, instead of the mapping's.

    Of words side by side any has to be there, or with `all_words` all of them.
    """
    return bind(parse(text, policy), mapping, fields=fields, all_words=all_words, policy=policy)


def bind(
    node: syntax.Node,
    mapping: Mapping = DYNAMIC,
    *,
    fields: Iterable[str] = (),
    all_words: bool = False,
    policy: Policy = DEFAULT_POLICY,
) -> Query:
    """The meaning of a query that was parsed."""
    reader = _Reader(mapping, policy, all_words)
    chosen = tuple(dict.fromkeys(fields)) or mapping.searched()
    for each in chosen:
        if each != ANY_FIELD and not mapping.names(each):
            raise InvalidQuery(f"field {each!r} is not in mapping {mapping.name!r}; {nearest(each, mapping.fields)}")
    found = reader.read(node, _Scope(chosen))
    if found is None:
        raise InvalidQuery("nothing is left of this query: the analyzer leaves out all its words", node.place)
    if not policy.unselective and not is_selective(found):
        raise InvalidQuery(
            "this query has no word or value that every match must have, so it would be held against every document: "
            "add one",
            node.place,
        )
    return found


def is_selective(query: Query) -> bool:
    """Whether a document must have a certain word, or a value in a certain stretch, for the query to match."""
    match query:
        case Boolean():
            if any(is_selective(each) for each in query.must):
                return True
            selective = sum(is_selective(each) for each in query.should)
            # So many can be left out of a match: if that cannot be all selective ones, one of them is in it.
            return selective > len(query.should) - query.minimum_should_match
        case Either():
            return all(is_selective(each) for each in query.queries)
        case Nested() | Boost() | ConstantScore():
            return is_selective(query.query)
        case Exists() | MatchAll() | Regexp():
            return False
        case Wildcard():
            return any(isinstance(part, str) for part in query.parts)
        case Range():
            return query.low is not None or query.high is not None
        case _:
            return True


class _Reader:
    """One query's way into the tree; None stands for what the analyzer left nothing of."""

    def __init__(self, mapping: Mapping, policy: Policy, all_words: bool) -> None:
        self._mapping = mapping
        self._policy = policy
        self._all_words = all_words
        self._patterns = 0
        self._leaves = 0

    def read(self, node: syntax.Node, scope: _Scope) -> Query | None:
        match node:
            case syntax.Everything():
                return MatchAll()
            case syntax.InField():
                return self._in_field(node, scope)
            case syntax.Clauses():
                return self._clauses(node, scope)
            case syntax.And():
                return self._all(node.items, scope)
            case syntax.Or():
                return self._any(node.items, node.minimum, len(node.items), scope, node)
            case syntax.Not():
                inner = self.read(node.node, scope)
                return None if inner is None else Boolean(must_not=(inner,))
            case syntax.Required():
                return self.read(node.node, scope)
            case syntax.Boosted():
                inner = self.read(node.node, scope)
                return None if inner is None else Boost(inner, node.factor)
            case syntax.Constant():
                inner = self.read(node.node, scope)
                return None if inner is None else ConstantScore(inner, node.score)
            case syntax.Inside():
                return self._nested(node, scope)
            case _:
                return self._leaf(node, scope)

    # --- what holds words together

    def _in_field(self, node: syntax.InField, scope: _Scope) -> Query | None:
        field = scope.path + node.field
        known = (field == ANY_FIELD and not scope.path) or self._mapping.names(field)
        if not known or not all(field.split(".")):
            raise InvalidQuery(
                f"field {field!r} is not in mapping {self._mapping.name!r}; {nearest(field, self._mapping.fields)}",
                node.place,
            )
        return self.read(node.node, _Scope((field,), True, scope.path))

    def _clauses(self, node: syntax.Clauses, scope: _Scope) -> Query | None:
        must, may, must_not = list[Query](), list[Query](), list[Query]()
        takes_all = self._all_words and node.minimum is None
        written = 0
        for item in node.items:
            if isinstance(item, syntax.Not):
                self._keep(must_not, item.node, scope)
            elif isinstance(item, syntax.Required) or takes_all:
                self._keep(must, item, scope)
            else:
                written += 1
                self._keep(may, item, scope)
        if not must and not may and not must_not:
            return None
        if node.minimum is None:
            return _boolean(must, may, must_not, 0 if must or not may else 1)
        return _boolean(must, may, must_not, self._minimum(node.minimum, written, len(may), node))

    def _all(self, items: Iterable[syntax.Node], scope: _Scope) -> Query | None:
        must, must_not = list[Query](), list[Query]()
        for item in items:
            if isinstance(item, syntax.Not):
                self._keep(must_not, item.node, scope)
            else:
                self._keep(must, item, scope)
        return _boolean(must, [], must_not, 0) if must or must_not else None

    def _any(
        self,
        items: Iterable[syntax.Node],
        minimum: syntax.Minimum | None,
        written: int,
        scope: _Scope,
        node: syntax.Node,
    ) -> Query | None:
        may = list[Query]()
        for item in items:
            self._keep(may, item, scope)
        if not may:
            return None
        return _boolean([], may, [], 1 if minimum is None else self._minimum(minimum, written, len(may), node))

    def _minimum(self, minimum: syntax.Minimum, written: int, left: int, node: syntax.Node) -> int:
        """How many it takes, of those that the analyzer left."""
        if minimum.is_percent:
            return max(1, written * minimum.count // 100) if left >= written else max(1, left * minimum.count // 100)
        if minimum.count > written:
            raise InvalidQuery(
                f"at least {minimum.count} have to match and there are {written}: it would never match", node.place
            )
        return min(minimum.count, left)

    def _keep(self, into: list[Query], node: syntax.Node, scope: _Scope) -> None:
        if (found := self.read(node, scope)) is not None:
            into.append(found)

    def _nested(self, node: syntax.Inside, scope: _Scope) -> Query | None:
        path = scope.fields[0]
        if path in self._mapping.fields or path == ANY_FIELD:
            raise InvalidQuery(f"field {path!r} does not hold objects", node.place)
        inner = self.read(node.node, _Scope((), False, f"{path}."))
        return None if inner is None else Nested(path, inner)

    # --- words and values

    def _leaf(self, node: Any, scope: _Scope) -> Query | None:
        if not scope.fields:
            raise InvalidQuery(
                "a field is missing in front of this: within nested(…) each word names its own", node.place
            )
        found = list[Query]()
        for field in scope.fields:
            described = self._mapping.field(field)
            # A word may be looked for in many fields, of which some cannot have it.
            if not scope.is_named and not self._may_ask(node, described):
                continue
            made = self._of_field(node, field, described)
            if made is not None and made not in found:
                found.append(made)
        self._leaves += len(found)
        if self._leaves > 4 * self._policy.clauses:
            raise InvalidQuery(
                f"this query asks {self._leaves:,} times for something in a field, and at most "
                f"{4 * self._policy.clauses:,} are allowed: name fewer default fields",
                node.place,
            )
        if not found:
            return None
        return found[0] if len(found) == 1 else Either(tuple(found))

    def _may_ask(self, node: Any, described: FieldType) -> bool:
        kind = described.kind
        if kind in _TEXTS:
            return True
        if isinstance(node, syntax.Word | syntax.Quoted):
            text = node.text.strip()
            return (
                (kind in (Kind.LONG, Kind.DOUBLE) and _number(text) is not None)
                or (kind is Kind.DATE and read_date(text) is not None)
                or (kind is Kind.BOOLEAN and text in ("true", "false"))
            )
        if isinstance(node, syntax.Interval):
            return kind is not Kind.GEO_POINT
        return isinstance(node, syntax.Function) and kind is Kind.GEO_POINT

    def _of_field(self, node: Any, field: str, described: FieldType) -> Query | None:
        match node:
            case syntax.Present():
                return MatchAll() if field == ANY_FIELD else Exists(field)
            case syntax.Word() | syntax.Quoted():
                return self._words(node, field, described)
            case syntax.Interval():
                return self._range(node, field, described)
            case syntax.Function():
                return self._place(node, field, described)
        if described.kind not in _TEXTS:
            raise InvalidQuery(
                f"field {field!r} is a {described.kind.value}: it has no letters to compare; write the value, or a "
                "range",
                node.place,
            )
        self._patterns += 1
        if self._patterns > self._policy.patterns:
            raise InvalidQuery(
                f"this query has more than {self._policy.patterns} wildcards, fuzzy words and regular expressions "
                "(each counts once a field): write whole words, or several queries",
                node.place,
            )
        match node:
            case syntax.Approximate():
                return self._fuzzy(node, field, described.analyzer)
            case syntax.Pattern():
                return self._wildcard(node, field, described.analyzer)
            case syntax.Expression():
                return self._regexp(node, field, described.analyzer)
        raise AssertionError(node)

    def _words(self, node: syntax.Word | syntax.Quoted, field: str, described: FieldType) -> Query | None:
        text, stripped = node.text, node.text.strip()
        match described.kind:
            case Kind.LONG | Kind.DOUBLE:
                return self._number_term(field, stripped, described, node)
            case Kind.DATE:
                first, end = self._date(stripped, described, node)
                return Range(field, Scale.DATE, first, end, True, False)
            case Kind.BOOLEAN:
                if stripped not in ("true", "false"):
                    raise InvalidQuery(f"field {field!r} is true or false, not {stripped!r}", node.place)
                return Term(field, stripped)
            case Kind.GEO_POINT:
                raise InvalidQuery(
                    f"field {field!r} is a point: ask for within(52.5, 13.4, 10km) or box(53, 13, 52, 14)",
                    node.place,
                )
        found = self._text(node, text, field, described.analyzer)
        if described.kind is not Kind.DYNAMIC or field == ANY_FIELD:
            return found
        could_be = [] if found is None else [found]
        if (number := _number(stripped)) is not None:
            could_be.append(Range(field, Scale.NUMBER, number, number))
        elif (dated := read_date(stripped)) is not None and len(stripped) >= 10:
            could_be.append(Range(field, Scale.DATE, dated[0], dated[1], True, False))
        if not could_be:
            return None
        return could_be[0] if len(could_be) == 1 else Either(tuple(could_be))

    def _text(self, node: syntax.Word | syntax.Quoted, text: str, field: str, analyzer: Analyzer) -> Query | None:
        tokens = analyzer.tokens(text)
        if not tokens:
            return None
        if len(tokens) == 1:
            return Term(field, tokens[0].text)
        first = tokens[0].position
        if tokens[-1].position - first >= _LONGEST_PHRASE:
            raise InvalidQuery(f"a phrase has at most {_LONGEST_PHRASE} words", node.place)
        slop = node.slop if isinstance(node, syntax.Quoted) else 0
        if slop and len(tokens) > _LONGEST_SLOPPY_PHRASE:
            raise InvalidQuery(f"a phrase with ~ has at most {_LONGEST_SLOPPY_PHRASE} words: use AND", node.place)
        if slop > _HIGHEST_SLOP:
            raise InvalidQuery(f"a phrase's slop is at most {_HIGHEST_SLOP}: use AND", node.place)
        return Phrase(field, tuple(PhraseTerm(token.text, token.position - first) for token in tokens), slop)

    def _number_term(self, field: str, text: str, described: FieldType, node: Any) -> Query:
        value = self._value(field, text, described, node)
        return Range(field, Scale.NUMBER, value, value)

    def _value(self, field: str, text: str, described: FieldType, node: Any) -> int | float:
        value = _number(text)
        if value is None:
            raise InvalidQuery(f"field {field!r} is a {described.kind.value}, and {text!r} is not a number", node.place)
        return value

    def _date(self, text: str, described: FieldType, node: Any) -> tuple[int, int]:
        """The stretch of time that a text says; a number beyond a year's four digits counts the field's unit."""
        if (found := read_date(text)) is not None:
            return found
        if asks_for_now(text):
            raise InvalidQuery(
                "a stored query has no now, for documents come at any time: write a date, or let the query also match "
                "the last hours when it is added",
                node.place,
            )
        number = _number(text)
        if number is not None and number * described.unit_us not in (math.inf, -math.inf):
            first = math.floor(number * described.unit_us)
            return first, first + described.unit_us
        raise InvalidQuery(f"{text!r} is not a date: write it as 2030-12-31 or 2030-12-31T23:59:59Z", node.place)

    # --- ranges

    def _range(self, node: syntax.Interval, field: str, described: FieldType) -> Query:
        low, high = (None if each is None else each.strip() for each in (node.low, node.high))
        if low is None and high is None:
            return Exists(field)
        match described.kind:
            case Kind.LONG | Kind.DOUBLE:
                scale = Scale.NUMBER
            case Kind.DATE:
                scale = Scale.DATE
            case Kind.TEXT | Kind.KEYWORD:
                scale = Scale.TEXT
            case Kind.DYNAMIC:
                scale = _scale_of([each for each in (low, high) if each is not None])
            case _:
                raise InvalidQuery(
                    f"field {field!r} is a {described.kind.value}, which has no order to be in a range of", node.place
                )
        if scale is Scale.DATE:
            made = self._dates(node, field, low, high, described)
        elif scale is Scale.NUMBER:
            numbers = [None if each is None else self._value(field, each, described, node) for each in (low, high)]
            made = Range(field, scale, numbers[0], numbers[1], node.includes_low, node.includes_high)
        else:
            if field == ANY_FIELD:
                raise InvalidQuery("a field is missing in front of this range", node.place)
            normal = described.analyzer.normal
            texts = [None if each is None else normal(each) for each in (node.low, node.high)]
            made = Range(field, scale, texts[0], texts[1], node.includes_low, node.includes_high)
        if field == ANY_FIELD:
            raise InvalidQuery("a field is missing in front of this range", node.place)
        bounds: Any = made
        if (
            low is not None
            and high is not None
            and (
                bounds.low > bounds.high
                or (bounds.low == bounds.high and not (bounds.includes_low and bounds.includes_high))
            )
        ):
            raise InvalidQuery("nothing lies in this range: its low end is above its high end", node.place)
        return made

    def _dates(
        self, node: syntax.Interval, field: str, low: str | None, high: str | None, described: FieldType
    ) -> Range:
        """A bound is all of the time that it says: `[2030 TO 2030]` is the whole year, `{2030 TO *]` what follows."""
        first = last = None
        if low is not None:
            first = self._date(low, described, node)[0 if node.includes_low else 1]
        if high is not None:
            last = self._date(high, described, node)[1 if node.includes_high else 0]
        return Range(field, Scale.DATE, first, last, True, last is None)

    # --- places

    def _place(self, node: syntax.Function, field: str, described: FieldType) -> Query:
        if described.kind not in (Kind.GEO_POINT, Kind.DYNAMIC) or field == ANY_FIELD:
            raise InvalidQuery(f"field {field!r} is a {described.kind.value}, not a point", node.place)
        how = {
            "within": "within(latitude, longitude, distance), as in within(52.5, 13.4, 10km)",
            "box": "box(top, left, bottom, right) in degrees, as in box(53, 13, 52, 14)",
        }[node.name]
        count = {"within": 2, "box": 4}[node.name]
        numbers = [_number(each) for each in node.arguments[:count]]
        if len(node.arguments) != {"within": 3, "box": 4}[node.name] or None in numbers:
            raise InvalidQuery(f"a place is written as {how}", node.place)
        degrees = [float(each) for each in numbers if each is not None]
        if not all(is_on_earth(degrees[at], degrees[at + 1]) for at in range(0, count, 2)):
            raise InvalidQuery(
                "a latitude is from -90 to 90 and a longitude from -180 to 180, in this order", node.place
            )
        if node.name == "within":
            metres = read_distance(node.arguments[2])
            if metres is None or not math.isfinite(metres):
                raise InvalidQuery(
                    f"{node.arguments[2]!r} is not a distance: write for example 500m, 10km, 6mi", node.place
                )
            return GeoDistance(field, degrees[0], degrees[1], metres)
        if degrees[0] < degrees[2]:
            raise InvalidQuery("this box has its top below its bottom: write box(top, left, bottom, right)", node.place)
        return GeoBox(field, degrees[0], degrees[1], degrees[2], degrees[3])

    # --- patterns

    def _fuzzy(self, node: syntax.Approximate, field: str, analyzer: Analyzer) -> Query:
        terms = analyzer.terms(node.text)
        text = terms[0] if len(terms) == 1 else analyzer.normal(node.text)
        letters = len(node.text)
        edits = node.edits if node.edits is not None else (0 if letters < 3 else 1 if letters < 6 else 2)
        if edits > _MOST_EDITS:
            raise InvalidQuery(f"{edits} edits are too many: at most {_MOST_EDITS} keep a word a word", node.place)
        if edits and len(text) > _LONGEST_FUZZY:
            raise InvalidQuery(
                f"a word of {len(text):,} letters is too long for ~: at most {_LONGEST_FUZZY} are allowed", node.place
            )
        if edits and len(text) <= edits:
            raise InvalidQuery(
                f"{edits} edits make anything of a word of {len(text)}: leave out the ~, or write fewer", node.place
            )
        return Fuzzy(field, text, edits, min(node.prefix_length, len(text)))

    def _wildcard(self, node: syntax.Pattern, field: str, analyzer: Analyzer) -> Query:
        if isinstance(node.parts[0], Wild) and not self._policy.leading_wildcards:
            raise InvalidQuery(
                "a wildcard in front has to be held against every word of every document: begin with a letter",
                node.place,
            )
        parts = tuple(part if isinstance(part, Wild) else analyzer.normal(part) for part in node.parts)
        if len(parts) == 2 and parts[1] is Wild.ANY and isinstance(parts[0], str):
            return Prefix(field, parts[0])
        try:
            compiled(wildcard_expression(parts), ignores_case=False, most_bytes=self._policy.expression_bytes)
        except re2.error:
            raise InvalidQuery("this word with wildcards is too long: write fewer letters and ?", node.place) from None
        return Wildcard(field, parts)

    def _regexp(self, node: syntax.Expression, field: str, analyzer: Analyzer) -> Query:
        if not node.pattern:
            raise InvalidQuery("this regular expression is empty", node.place)
        if len(node.pattern) > self._policy.expression_characters:
            raise InvalidQuery(
                f"this regular expression has more than {self._policy.expression_characters:,} characters", node.place
            )
        found = Regexp(field, node.pattern, analyzer.lower)
        try:
            compiled(found.pattern, found.ignores_case, self._policy.expression_bytes)
        except re2.error as error:
            why = error.args[0] if error.args else "cannot be read"
            why = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
            if "too large" in why:
                why = "it is too large: repeat less"
            raise InvalidQuery(f"this is not a regular expression that RE2 takes: {why}", node.place) from None
        return found


def wildcard_expression(parts: Iterable[str | Wild]) -> str:
    """The regular expression that a word with wildcards is."""
    meant = {Wild.ANY: ".*", Wild.ONE: "."}
    return "".join(re2.escape(part) if isinstance(part, str) else meant[part] for part in parts)


@lru_cache(maxsize=4_096)
def compiled(pattern: str, ignores_case: bool, most_bytes: int = 1 << 20) -> Any:
    """A regular expression ready to be held against whole tokens."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignores_case
    options.max_mem = most_bytes
    options.dot_nl = True
    return re2.compile(pattern, options)


def _boolean(must: list[Query], may: list[Query], must_not: list[Query], minimum: int) -> Query:
    if not must_not:
        if len(must) == 1 and not may:
            return must[0]
        if len(may) == 1 and not must and minimum == 1:
            return may[0]
    return Boolean(tuple(must), tuple(may), tuple(must_not), minimum)


def _number(text: str) -> int | float | None:
    if _NUMBER.fullmatch(text) is None or len(text) > 400:
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)


def _scale_of(bounds: list[str]) -> Scale:
    """In which values of a dynamic field a range looks: what both its ends look like."""
    if all(_number(each) is not None for each in bounds):
        return Scale.NUMBER
    if all(read_date(each) is not None or asks_for_now(each) for each in bounds):
        return Scale.DATE
    return Scale.TEXT
