"""How a job's patterns stand, added up from what each bucket of their operator says. Pure.

Every bucket publishes its own totals whenever it has something to say, in the query's observed metrics. The last word
of each is kept; their sum is how the patterns stand. A bucket that has had nothing to say since the run began is not
in it yet.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from headrace.cep.errors import CepError
from headrace.cep.pictures.diagram import as_json
from headrace.cep.spelling import read_pattern
from headrace.pipelines.observed import PATTERNS, described

_MOST_KEYS: Final = 10
_COUNTS: Final = ("matches", "timed_out", "dropped", "partial")


@dataclass(frozen=True)
class KeyPartial:
    """A key, its columns as text, and how many partial matches it has."""

    key: str
    partial: int


@dataclass(frozen=True)
class PatternProgress:
    """One pattern; `name` is empty where a job has only one. Counts are since the checkpoint began."""

    name: str
    version: str | None
    state: str
    problem: str | None
    matches: int
    timed_out: int
    dropped: int
    partial: int
    matches_in_batch: int
    keys: tuple[KeyPartial, ...]
    diagram: Mapping[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return plain | {"keys": [{"key": one.key, "partial": one.partial} for one in self.keys]}


@dataclass(frozen=True)
class PatternStand:
    """What the buckets of each operator of a query said last."""

    said: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    fresh: frozenset[tuple[str, int]] = frozenset()
    """Those that said it in the last micro-batch."""

    def heard(self, observed: Mapping[str, Any]) -> "PatternStand":
        """With what a micro-batch's observed metrics have of it."""
        said = dict(self.said)
        fresh = []
        for name, counted in observed.items():
            if not name.startswith(PATTERNS):
                continue
            for text in counted["buckets"] or ():
                status = json.loads(text)
                place = name, int(status["bucket"])
                found = matches_in(said[place]) if place in fresh else {}
                for one in status["patterns"]:
                    # A bucket may speak more than once in a micro-batch.
                    one["new"] += found.get(one["name"], 0)
                said[place] = status
                fresh.append(place)
        return PatternStand(said, frozenset(fresh))

    @property
    def events(self) -> int:
        """Rows that patterns looked at."""
        return sum(int(status["events"]) for status in self.said.values())

    @property
    def patterns(self) -> tuple[PatternProgress, ...]:
        found: dict[tuple[str, str], list[tuple[Mapping[str, Any], bool]]] = {}
        newest: dict[str, tuple[int, set[str]]] = {}
        for (operator, bucket), status in self.said.items():
            names = {one["name"] for one in status["patterns"]}
            # Every bucket knows the same patterns, as of when it spoke last.
            if status.get("changed", 0) >= newest.get(operator, (-1, set()))[0]:
                newest[operator] = status.get("changed", 0), names
            for one in status["patterns"]:
                found.setdefault((operator, one["name"]), []).append((one, (operator, bucket) in self.fresh))
        return tuple(
            self._sum(operator, parts)
            for (operator, name), parts in sorted(found.items())
            if name in newest[operator][1]
        )

    def _sum(self, operator: str, parts: Iterable[tuple[Mapping[str, Any], bool]]) -> PatternProgress:
        said = [one for one, _ in parts]
        last = max(said, key=lambda one: int(one["version"] or 0))
        now = [(one, is_fresh) for one, is_fresh in parts if one["version"] == last["version"]]
        keys = sorted((-count, key) for one, _ in now for key, count in one["keys"])[:_MOST_KEYS]
        totals = {
            name: sum(int(one[name]) for one, _ in now) for name in ("matches", "timed_out", "dropped", "partial")
        }
        text = last.get("text")
        diagram = described(operator, last["name"]) if text is None else _diagram(text)
        return PatternProgress(
            last["name"],
            last["version"],
            last.get("state", "running"),
            last.get("problem"),
            **totals,
            matches_in_batch=sum(int(one["new"]) for one, is_fresh in now if is_fresh),
            keys=tuple(KeyPartial(key, -count) for count, key in keys),
            diagram=diagram,
        )


@lru_cache(maxsize=1_000)
def _diagram(text: str) -> Mapping[str, Any] | None:
    """What a pattern from a topic looks like; None if it cannot be read."""
    try:
        return as_json(read_pattern(text).compile(bounded=True))
    except CepError:
        return None


def matches_in(status: Mapping[str, Any]) -> dict[str, int]:
    """How many matches each pattern had in what a bucket said."""
    return {one["name"]: int(one["new"]) for one in status["patterns"]}


NOTHING: Final = PatternStand()
