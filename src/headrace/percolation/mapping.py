"""What fields mean: their kinds, the analyzers of their texts, and what becomes of fields that nobody described.

A mapping as JSON (or TOML):

    {"fields": {"title": {"type": "text", "analyzer": "english"}, "price": "double", "where": "geo_point"},
     "default_fields": ["title"], "analyzers": {"mine": {"stem": "german", "stop": ["der", "die"]}}, "dynamic": true}

A field that is not described is dynamic: each value is what it looks like. Its strings are text (and dates, if they are
written like one), its numbers numbers; with `dynamic` false it is left out.

What always holds: a field has one kind, whatever a document brings; a described field's value that does not fit is an
`InvalidDocument`, or left out where `malformed` is `ignore`.
"""

import json
from collections.abc import Mapping as Map
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from headrace.errors import nearest
from headrace.percolation.analysis import KEYWORD, NAMED, STANDARD, Analyzer, read_analyzer
from headrace.percolation.errors import InvalidMapping
from headrace.percolation.tree import ANY_FIELD


class Kind(Enum):
    TEXT = "text"
    KEYWORD = "keyword"
    LONG = "long"
    DOUBLE = "double"
    DATE = "date"
    BOOLEAN = "boolean"
    GEO_POINT = "geo_point"
    DYNAMIC = "dynamic"
    """Not described: by value."""


UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field's kind; `analyzer` is that of its strings, `unit_us` what a date's number counts, in microseconds."""

    kind: Kind
    analyzer: Analyzer = STANDARD
    unit_us: int = 1_000


@dataclass(frozen=True)
class Mapping:
    """The fields that are described, by their full paths, and what holds for all of them.

    Without `default_fields`, a word that names no field may stand in any text.
    """

    fields: Map[str, FieldType] = field(default_factory=dict)
    default_fields: tuple[str, ...] = ()
    dynamic: bool = True
    analyzer: Analyzer = STANDARD
    """Of dynamic fields' strings."""
    ignores_malformed: bool = False
    name: str = "default"

    def field(self, path: str) -> FieldType:
        """What a field is; `*` is dynamic."""
        return self.fields.get(path) or FieldType(Kind.DYNAMIC, self.analyzer)

    def names(self, path: str) -> bool:
        """Whether the field, or one below it, is described or may come."""
        return self.dynamic or path in self.fields or any(each.startswith(f"{path}.") for each in self.fields)

    def searched(self) -> tuple[str, ...]:
        """The fields in which a word is looked for that names none."""
        if self.default_fields:
            return self.default_fields
        described = tuple(path for path, each in self.fields.items() if each.kind in (Kind.TEXT, Kind.KEYWORD))
        return (*described, ANY_FIELD) if self.dynamic else described


DYNAMIC: Final = Mapping()
"""Nothing is described: every value is what it looks like."""

_PARTS: Final = ("fields", "default_fields", "analyzers", "dynamic", "analyzer", "malformed")
_KINDS: Final = {kind.value: kind for kind in Kind if kind is not Kind.DYNAMIC}


def parse_mapping(value: bytes | str, name: str = "default") -> Mapping:
    """A mapping as the text of JSON."""
    try:
        return read_mapping(json.loads(value), name)
    except (ValueError, RecursionError):
        raise InvalidMapping(f"mapping {name!r} is not JSON: write an object with 'fields'") from None


def read_mapping(given: object, name: str = "default") -> Mapping:
    """A mapping as JSON describes it; see the module."""
    what = f"mapping {name!r}"
    if not isinstance(given, dict):
        raise InvalidMapping(f"{what}: write it as an object with 'fields'")
    for each in given:
        if each not in _PARTS:
            raise InvalidMapping(f"{what}: {each!r} is unknown; {nearest(str(each), _PARTS)}")
    described = given.get("analyzers", {})
    if not isinstance(described, dict):
        raise InvalidMapping(f"{what}: 'analyzers' is an object of names and settings")
    analyzers = {**NAMED, **{str(each): read_analyzer(str(each), settings) for each, settings in described.items()}}
    fields = given.get("fields", {})
    if not isinstance(fields, dict):
        raise InvalidMapping(f"{what}: 'fields' is an object of field names and their types")
    types = {str(path): _field_type(what, str(path), each, analyzers) for path, each in fields.items()}
    for other in types:
        path = other
        while "." in path:
            path = path.rpartition(".")[0]
            if path in types:
                raise InvalidMapping(f"{what}: {path!r} has a type, so there can be no field {other!r} below it")
    dynamic = given.get("dynamic", True)
    if not isinstance(dynamic, bool):
        raise InvalidMapping(f"{what}: 'dynamic' is true or false")
    malformed = given.get("malformed", "refuse")
    if malformed not in ("refuse", "ignore"):
        raise InvalidMapping(f"{what}: 'malformed' is 'refuse' or 'ignore', not {malformed!r}")
    default = _default_fields(what, given.get("default_fields", []), types, dynamic)
    analyzer = _analyzer(what, given.get("analyzer", "standard"), analyzers)
    return Mapping(types, default, dynamic, analyzer, malformed == "ignore", name)


def _field_type(what: str, path: str, given: object, analyzers: Map[str, Analyzer]) -> FieldType:
    where = f"{what}, field {path!r}"
    if not all(path.split(".")) or ANY_FIELD in path:
        raise InvalidMapping(f"{where}: a field is named by words with dots between them")
    settings: dict[str, Any] = {"type": given} if isinstance(given, str) else given if isinstance(given, dict) else {}
    kind = _KINDS.get(str(settings.get("type")))
    if kind is None:
        raise InvalidMapping(f"{where}: its type is missing or unknown; {nearest(str(settings.get('type')), _KINDS)}")
    allowed = {Kind.TEXT: ("type", "analyzer"), Kind.KEYWORD: ("type", "analyzer"), Kind.DATE: ("type", "unit")}
    for each in settings:
        if each not in allowed.get(kind, ("type",)):
            raise InvalidMapping(f"{where}: a {kind.value} field has no setting {each!r}")
    if kind is Kind.KEYWORD:
        analyzer = _analyzer(where, settings["analyzer"], analyzers) if "analyzer" in settings else KEYWORD
        if analyzer.tokenizer != "whole":
            raise InvalidMapping(f"{where}: a keyword is one token: give it an analyzer whose tokenizer is 'whole'")
        return FieldType(kind, analyzer)
    if kind is Kind.TEXT:
        return FieldType(kind, _analyzer(where, settings.get("analyzer", "standard"), analyzers))
    unit = settings.get("unit", "ms")
    if not isinstance(unit, str) or unit not in UNITS:
        raise InvalidMapping(f"{where}: 'unit' is what a number counts since 1970: {', '.join(UNITS)}, not {unit!r}")
    return FieldType(kind, KEYWORD, UNITS[unit])


def _default_fields(what: str, given: object, types: Map[str, FieldType], dynamic: bool) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        raise InvalidMapping(f"{what}: 'default_fields' is a list of field names")
    for each in given:
        if not dynamic and each not in types:
            raise InvalidMapping(f"{what}: default field {each!r} is not described; {nearest(each, types)}")
    return tuple(given)


def _analyzer(what: str, name: object, analyzers: Map[str, Analyzer]) -> Analyzer:
    if not isinstance(name, str) or name not in analyzers:
        raise InvalidMapping(f"{what}: analyzer {name!r} is unknown; {nearest(str(name), analyzers)}")
    return analyzers[name]
