"""Patterns and streams that our matcher, Flink and Esper are all given.

A case has one pattern in one of two forms, which Flink reads too, and may have another in Esper's language.

    steps   the calls that make a `Pattern`, as data: a name and its arguments, a list of such calls being a group
    sql     MATCH_RECOGNIZE (…), of which Esper's form is made unless one is given
    epl     a statement of Esper's

A stream is a text of words, each a row: `a`, `a:5` (its x is 5, otherwise 0), `b@12` (its time is 12 s, otherwise a
second for each row before it), `k/b` (its key is k). A row's id is its number in the stream. A match is written `a:0
b:3`: variables and ids in the order of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.cep.pattern import Pattern

Step = Sequence[Any]


@dataclass(frozen=True)
class Case:
    name: str
    streams: tuple[str, ...]
    steps: tuple[Step, ...] | None = None
    sql: str | None = None
    epl: str | None = None
    flink: tuple[Step, ...] | None = None
    """The steps for Flink where it says the same in other words."""
    lateness_s: int | None = None

    @property
    def pattern(self) -> Pattern:
        return Pattern.sql(self.sql) if self.sql is not None else build(self.steps or ())

    @property
    def variables(self) -> list[str]:
        """Of the pattern, without those that must not come."""
        if self.sql is not None:
            inside = self.sql.split("PATTERN (", 1)[1].split(" DEFINE")[0]
            found = re.findall(r"\b[A-Za-z]\w*", inside.replace("PERMUTE", "").split("WITHIN")[0])
            return list(dict.fromkeys(found))
        return list(dict.fromkeys(_variables(self.steps or ())))

    @property
    def for_flink(self) -> dict[str, Any]:
        given: dict[str, Any] = {"name": self.name, "streams": [rows(text) for text in self.streams]}
        given |= {"lateness_ms": (self.lateness_s or 0) * 1000}
        if self.sql is not None:
            return {**given, "sql": self.sql, "variables": self.variables}
        return {**given, "steps": self.flink or self.steps}

    @property
    def for_esper(self) -> dict[str, Any] | None:
        streams = [rows(text) for text in self.streams]
        has_keys = any(row["k"] for stream in streams for row in stream)
        epl = self.epl or (None if self.sql is None else _epl(self.sql, self.variables, has_keys))
        if not epl:
            return None
        return {"name": self.name, "streams": streams, "variables": self.variables, "epl": epl}


def rows(text: str) -> list[dict[str, Any]]:
    """The rows of a stream."""
    found = []
    for number, word in enumerate(text.split()):
        key, kind, x, second = _WORD.fullmatch(word).groups()  # type: ignore[union-attr]
        ms = round(float(second) * 1000) if second else number * 1000
        found.append({"k": key or "", "t": ms, "kind": kind, "x": float(x or 0), "id": number})
    return found


_WORD = re.compile(r"(?:(\w+)/)?([a-z])(?::(-?\d+))?(?:@([\d.]+))?")


def build(steps: Sequence[Step]) -> Pattern:
    """The pattern that these calls make."""
    pattern: Pattern | None = None
    for name, *given in steps:
        options = given.pop() if given and isinstance(given[-1], dict) else {}
        arguments = [build(each) if isinstance(each, tuple) else each for each in given]
        if name == "either":
            pattern = arguments[0] | arguments[1]
        elif pattern is None:
            pattern = getattr(Pattern, name)(*arguments, **options)
        else:
            pattern = getattr(pattern, name)(*arguments, **options)
    assert pattern is not None
    return pattern


_TAKING = ("begin", "next", "followed_by", "followed_by_any")


def _variables(steps: Sequence[Step]) -> list[str]:
    found = []
    for name, *given in steps:
        if name in _TAKING and isinstance(given[0], str):
            found.append(given[0])
        for each in given:
            if isinstance(each, tuple):
                found += _variables(each)
    return found


def _epl(sql: str, variables: Sequence[str], has_keys: bool) -> str:
    """MATCH_RECOGNIZE as Esper has it: measures are what it gives of a match, and the order is that of arrival."""
    measures = ", ".join(f"{each} as {each}" for each in variables)
    text = sql.replace("PARTITION BY k ORDER BY t", f"{'partition by k' * has_keys} measures {measures}")
    return "select * from E " + text.replace("PERMUTE(", "match_recognize_permute(")


def pattern_of(epl: str) -> str:
    """A statement of Esper's around a pattern in which `a=a` stands for an event of that kind."""
    return "select * from pattern [" + re.sub(r"(\w+=)?@(\w)", r"\1E(kind='\2')", epl) + "]"


def by_key(epl: str) -> str:
    return f"create context ByKey partition by k from E; context ByKey {pattern_of(epl)}"


A, B, C, D = ("kind = '" + letter + "'" for letter in "abcd")
TAKE_A, TAKE_B, TAKE_C = ("begin", "a", A), ("followed_by", "b", B), ("followed_by", "c", C)
ANY_B = ("followed_by_any", "b", B)
TEN = ("within", "10 seconds")


def recognize(pattern: str, define: str | None = None, *, skip: str = "PAST LAST ROW", within: str = "") -> str:
    """The clause with variables a to d that take rows of their kind, unless something else is said."""
    if define is None:
        used = [letter for letter in "abcd" if re.search(rf"\b{letter}\b", pattern)]
        define = ", ".join(f"{each} AS {each}.kind = '{each}'" for each in used)
    after = f" AFTER MATCH SKIP {skip}" if skip else ""
    inside = f"PARTITION BY k ORDER BY t{after} PATTERN ({pattern}){within and ' WITHIN INTERVAL ' + within}"
    return f"MATCH_RECOGNIZE ({inside} DEFINE {define})"
