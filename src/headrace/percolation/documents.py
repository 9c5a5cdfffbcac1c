"""A document as the leaves of queries see it: tokens, numbers, dates and points by field.

Objects are fields within fields (`a.b.c`), arrays are several values of one field, null is no value. What is described
by the mapping is read when the document comes, so that one that does not fit is refused whatever the queries ask; text
is cut into words when a query first asks for its field.

What always holds: a document is never changed; the positions of two values of a field are so far apart that no phrase
reaches from one to the next.
"""

import json
import math
import re
import weakref
from collections.abc import Iterable
from collections.abc import Mapping as Map
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Final

from headrace.percolation.analysis import Analyzer
from headrace.percolation.dates import microseconds, read_date
from headrace.percolation.errors import InvalidDocument
from headrace.percolation.mapping import DYNAMIC, FieldType, Kind, Mapping
from headrace.percolation.points import Point, read_points
from headrace.percolation.tree import ANY_FIELD

POSITION_GAP: Final = 1_024
"""Positions between two values of a field; a phrase's words and its slop together have fewer."""

_DEEPEST: Final = 100
_MOST_VALUES: Final = 1_000_000
"""Of a document: with a gap behind each, positions are still integers of 32 bits."""
_SHOWN: Final = 60
_ODD_NUMBER: Final = re.compile(r"NaN|Infinity|[eE]\+?\d{3}|\d{200}")  # 200 digits and e99 are more than 1e308
_NOTHING: Final[tuple[Any, ...]] = ()


class FieldTokens:
    """The tokens of one field: all values, one after the other; None is a value without tokens."""

    __slots__ = ("_analyzer", "_at", "_positions", "_terms", "highlights", "values")

    def __init__(self, values: tuple[str | None, ...], analyzer: Analyzer) -> None:
        self.values = values
        self._analyzer = analyzer
        self._terms: frozenset[str] | None = None
        self._positions: dict[str, list[int]] | None = None
        self._at: dict[int, tuple[int, int, int]] = {}
        self.highlights: dict[tuple[int, int], Any] = {}
        """Kept here by whoever makes them of positions: many queries have the same."""

    @property
    def terms(self) -> frozenset[str]:
        if self._terms is None:
            if self._positions is not None:
                self._terms = frozenset(self._positions)
            else:
                self._terms = frozenset(
                    term for value in self.values if value is not None for term in self._analyzer.terms(value)
                )
        return self._terms

    @property
    def positions(self) -> Map[str, list[int]]:
        """Where each token stands, ascending."""
        if self._positions is None:
            self._positions = {}
            base = 0
            for number, value in enumerate(self.values):
                if value is None:
                    continue
                for text, position, start, end in self._analyzer.tokens(value):
                    self._positions.setdefault(text, []).append(base + position)
                    self._at[base + position] = (number, start, end)
                base = next(reversed(self._at), base) + POSITION_GAP
        return self._positions

    def place(self, position: int) -> tuple[int, int, int]:
        """Which value a position is in, and the characters there."""
        assert self.positions is not None
        return self._at[position]


class Document:
    """One document, or one object of it; see `read_document`."""

    __slots__ = (
        "__weakref__", "_dates", "_mapping", "_numbers", "_objects", "_parts", "_points", "_present", "_tokens",
        "_values", "is_part", "value",
    )  # fmt: skip
    _whose_parts: ClassVar["weakref.ref[Document] | None"] = None
    """Only one document's objects are kept at a time, since each may have very many."""

    def __init__(self, value: Map[str, Any], mapping: Mapping, prefix: str = "") -> None:
        self.value = value
        self.is_part = bool(prefix)
        self._mapping = mapping
        self._values: dict[str, list[Any]] = {}
        self._objects: dict[str, list[Map[str, Any]]] = {}
        self._numbers: dict[str, tuple[int | float, ...]] = {}
        self._dates: dict[str, tuple[int, ...]] = {}
        self._points: dict[str, tuple[Point, ...]] = {}
        self._tokens: dict[tuple[str, bool], FieldTokens] = {}
        self._parts: dict[str, tuple[Document, ...]] = {}
        self._present: frozenset[str] | None = None
        self._flatten(value, prefix)
        for path in [path for path in self._values if path in mapping.fields]:
            self._convert(path, mapping.fields[path])

    def _flatten(self, value: Map[str, Any], prefix: str) -> None:
        waiting: list[tuple[str, Any, int]] = [
            (f"{prefix}.{key}" if prefix else str(key), each, 1) for key, each in value.items()
        ]
        # In the order in which they are written: the positions of an array's values depend on it.
        waiting.reverse()
        seen = 0
        while waiting:
            path, each, depth = waiting.pop()
            seen += 1
            if seen + len(waiting) > _MOST_VALUES:
                raise InvalidDocument(
                    f"the document has more than {_MOST_VALUES:,} values: send its parts as documents of their own"
                )
            if each is None:
                continue
            if depth > _DEEPEST:
                raise InvalidDocument(f"the document has more than {_DEEPEST} objects and arrays within each other")
            described = self._mapping.fields.get(path)
            if described is not None and described.kind is Kind.GEO_POINT:
                self._values.setdefault(path, []).append(each)
            elif isinstance(each, Map):
                self._objects.setdefault(path, []).append(each)
                if described is not None:
                    self._refuse(path, each, described)
                    continue
                waiting.extend((f"{path}.{key}", inner, depth + 1) for key, inner in reversed(list(each.items())))
            elif isinstance(each, list | tuple):
                waiting.extend((path, inner, depth + 1) for inner in reversed(each))
            elif described is not None or self._mapping.dynamic:
                self._values.setdefault(path, []).append(each)

    def _convert(self, path: str, described: FieldType) -> None:
        """The values of a described field; those that do not fit are refused or taken out."""
        readers = {
            Kind.LONG: _long,
            Kind.DOUBLE: _double,
            Kind.DATE: lambda each: _date(each, described.unit_us),
            Kind.BOOLEAN: _boolean,
            Kind.GEO_POINT: read_points,
        }
        reader = readers.get(described.kind, _text)
        kept, found = list[Any](), list[Any]()
        for each in self._values[path]:
            if (made := reader(each)) is None:
                self._refuse(path, each, described)
                continue
            kept.append(each)
            found.append(made)
        if not kept:
            del self._values[path]
            return
        self._values[path] = kept
        match described.kind:
            case Kind.LONG | Kind.DOUBLE:
                self._numbers[path] = tuple(found)
            case Kind.DATE:
                self._dates[path] = tuple(found)
            case Kind.GEO_POINT:
                self._points[path] = tuple(point for points in found for point in points)
            case _:
                self._tokens[path, False] = FieldTokens(tuple(found), described.analyzer)

    def _refuse(self, path: str, value: object, described: FieldType) -> None:
        if self._mapping.ignores_malformed:
            return
        try:
            shown = repr(value)
        except ValueError:  # more digits than Python writes out
            shown = "a number of thousands of digits"
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        raise InvalidDocument(
            f"field {path!r} is {shown}, which is not a {described.kind.value}: send one, or set 'malformed' to "
            "'ignore' in the mapping",
            path,
        )

    # --- what leaves ask

    def fields(self) -> Iterable[str]:
        """The fields that have values."""
        return self._values.keys()

    def count(self, field: str) -> int:
        """How many values a field has."""
        return len(self._values.get(field, _NOTHING))

    def exists(self, field: str) -> bool:
        """Whether the field, or one below it, has a value."""
        return field in self.present

    @property
    def present(self) -> frozenset[str]:
        """The fields that have a value, or have one below them."""
        if self._present is None:
            present = set(self._values)
            for path in self._values:
                while "." in path:
                    path = path.rpartition(".")[0]
                    if path in present:
                        break
                    present.add(path)
            self._present = frozenset(present)
        return self._present

    def searched(self, field: str) -> tuple[str, ...]:
        """The fields that a leaf's field stands for: itself, or all that the mapping does not describe."""
        if field != ANY_FIELD:
            return (field,)
        return tuple(path for path in self._values if path not in self._mapping.fields)

    def tokens(self, field: str, *, with_numbers: bool = False) -> FieldTokens:
        """A field's tokens; those of a dynamic field's numbers only for a search in any field."""
        found = self._tokens.get((field, with_numbers))
        if found is None:
            described = self._mapping.fields.get(field)
            if described is not None:
                return self._tokens.get((field, False)) or _NO_TOKENS
            texts = tuple(
                _text(each) if with_numbers or isinstance(each, str | bool) else None
                for each in self._values.get(field, _NOTHING)
            )
            found = FieldTokens(texts, self._mapping.analyzer)
            self._tokens[field, with_numbers] = found
        return found

    def terms(self, field: str) -> frozenset[str]:
        """The different tokens of a field; of `*`, those of every field that is not described."""
        if field != ANY_FIELD:
            return self.tokens(field).terms
        return frozenset(term for path in self.searched(field) for term in self.tokens(path, with_numbers=True).terms)

    def numbers(self, field: str) -> tuple[int | float, ...]:
        found = self._numbers.get(field)
        if found is None:
            found = self._numbers[field] = tuple(self._dynamic(field, _double))
        return found

    def dates(self, field: str) -> tuple[int, ...]:
        found = self._dates.get(field)
        if found is None:
            found = self._dates[field] = tuple(self._dynamic(field, _full_date))
        return found

    def points(self, field: str) -> tuple[Point, ...]:
        """A field's points; without a description, objects that say latitude and longitude."""
        found = self._points.get(field)
        if found is None:
            objects = () if field in self._mapping.fields else self._objects.get(field, ())
            found = tuple(point for each in objects for point in read_points(each) or ())
            self._points[field] = found
        return found

    def objects(self, path: str) -> tuple["Document", ...]:
        """The objects at a path, each a document of its own whose fields have their full paths; many queries ask."""
        found = self._parts.get(path)
        if found is None:
            found = self._parts[path] = tuple(
                Document(each, self._mapping, path) for each in self._objects.get(path, ())
            )
            if not self.is_part:
                before = Document._whose_parts() if Document._whose_parts is not None else None
                if before is not None and before is not self:
                    before._parts = {}  # noqa: SLF001 - one of its own
                Document._whose_parts = weakref.ref(self)
        return found

    def text(self, field: str, value: int) -> str:
        """One value of a field as text, by its number among the field's values: what highlights point into."""
        return _text(self._values[field][value]) or ""

    def _dynamic(self, field: str, reader: Any) -> Iterable[Any]:
        if field in self._mapping.fields:
            return
        for each in self._values.get(field, _NOTHING):
            if not isinstance(each, str) or reader is _full_date:
                made = reader(each)
                if made is not None:
                    yield made


_NO_TOKENS: Final = FieldTokens((), DYNAMIC.analyzer)


def read_document(value: object, mapping: Mapping = DYNAMIC) -> Document:
    """A decoded JSON object (or a row as a dict) as a document."""
    if not isinstance(value, Map):
        raise InvalidDocument(f"a document is an object with fields, not {type(value).__name__}")
    return Document(value, mapping)


def parse_document(text: bytes | str, mapping: Mapping = DYNAMIC) -> Document:
    """A document as the text of JSON."""
    return read_document(parse_value(text), mapping)


def parse_value(text: bytes | str) -> Any:
    """What a text of JSON stands for. What Python takes besides, such as NaN, is none: nobody else could read it."""
    try:
        if not isinstance(text, str):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        if _ODD_NUMBER.search(text) is None:
            return json.loads(text)
        return json.loads(text, parse_constant=finite, parse_float=finite)
    except (ValueError, RecursionError):
        raise InvalidDocument("it is not JSON") from None


def finite(text: str) -> float:
    """The number that a text of JSON stands for; a `ValueError` for one that is larger than any."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:_SHOWN]} is not a number there")
    return found


# --- values


def _text(value: object) -> str | None:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            try:
                return str(value)
            except ValueError:  # more digits than Python writes out
                return None
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime() | date():
            return value.isoformat()
        case _:
            return None


def _double(value: object) -> int | float | None:
    """A number; one that is not a number at all (NaN) is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Decimal):
        value = (int(value) if value == value.to_integral_value() else float(value)) if value.is_finite() else None
    if isinstance(value, str):
        try:
            value = int(value) if value.strip().lstrip("+-").isdecimal() and len(value) < 400 else float(value)
        except ValueError:
            return None
    return value if isinstance(value, int) or (isinstance(value, float) and not math.isnan(value)) else None


def _long(value: object) -> int | None:
    found = _double(value)
    if isinstance(found, float):
        return int(found) if found.is_integer() else None
    return found


def _boolean(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) and value in ("true", "false") else None


def _date(value: object, unit_us: int) -> int | None:
    if isinstance(value, datetime | date):
        return microseconds(value)
    if isinstance(value, str):
        if (found := read_date(value.strip())) is not None:
            return found[0]
        if not value.strip().lstrip("-").isdecimal():
            return None
    number = _double(value)
    moment = None if number is None else number * unit_us
    return None if moment is None or moment in (math.inf, -math.inf) else math.floor(moment)


def _full_date(value: object) -> int | None:
    """What a dynamic field's value is as a date: only what is written with a day looks like one."""
    if isinstance(value, datetime | date):
        return microseconds(value)
    if not isinstance(value, str) or len(value) < 10 or value[4] != "-" or value[7] != "-":
        return None
    found = read_date(value)
    return found[0] if found else None
