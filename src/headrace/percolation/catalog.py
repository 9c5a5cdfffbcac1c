"""Stored queries as a compacted topic tells them: record by record, into a percolator.

    key `cars`               value `{"query": "title:fast", …}` (`stored.py`); no value removes the query
    key `mapping:listings`   value `{"fields": {…}}` (`mapping.py`); no value removes the mapping

What always holds: what stands after a record depends on the records up to it and on nothing else, so whoever read to
the same offset has the same queries, also where the topic was compacted meanwhile; a record that is refused stops
nothing: its query or its mapping does not stand until a record that can be read comes, and the reason is kept. A query
may come before its mapping, and stands once both are there.
"""

from collections.abc import Callable
from collections.abc import Mapping as Map
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from headrace.percolation.errors import InvalidMapping, InvalidQuery, PercolationError
from headrace.percolation.language import DEFAULT_POLICY, Policy
from headrace.percolation.mapping import DYNAMIC, Mapping, parse_mapping
from headrace.percolation.percolator import Compiled, Index, Percolator
from headrace.percolation.stored import StoredQuery, read_stored

MAPPING_PREFIX: Final = "mapping:"


_LONGEST_REASON: Final = 1_000


class Effect(Enum):
    """What a record did."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    REFUSED = "refused"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one query, or of one mapping (its id is the record's key)."""

    id: str
    effect: Effect
    stored: StoredQuery | None = None
    """As it stands now; of one that is refused, as far as it could be read."""
    reason: str = ""
    has_stood: bool = False
    """Whether a mapping alone made it fall, or stand again: the query as it is has met documents before."""


class Catalog:
    """The queries that stand, those that do not, and the offset up to which that is known."""

    def __init__(self, *, policy: Policy = DEFAULT_POLICY, index: Callable[[], Index] = Compiled) -> None:
        self.percolator = Percolator({"default": DYNAMIC}, policy=policy, index=index)
        self.offset = 0
        """The next record that counts."""
        self._refused: dict[str, Change] = {}

    @property
    def refused(self) -> Map[str, Change]:
        """The queries and mappings that could not be taken, by their keys."""
        return self._refused

    def apply(self, offset: int, key: bytes | None, value: bytes | None) -> list[Change]:
        """Take in the record at an offset; one before `offset` is known already and does nothing."""
        if offset < self.offset:
            return []
        self.offset = offset + 1
        name = _name_of(key)
        if name.startswith(MAPPING_PREFIX):
            return self._apply_mapping(name, value)
        return [self._apply_query(name, value)]

    def _apply_query(self, name: str, value: bytes | None) -> Change:
        was_there = name in self.percolator
        if value is None:
            was_refused = self._refused.pop(name, None) is not None
            if was_there:
                self.percolator.remove(name)
            return Change(name, Effect.REMOVED if was_there or was_refused else Effect.NOTHING)
        stored = None
        try:
            stored = read_stored(name, value)
            return self._stand(stored)
        except PercolationError as error:
            return self._refuse(name, stored, error)

    def _stand(self, stored: StoredQuery) -> Change:
        before = self.percolator.get(stored.id) if stored.id in self.percolator else None
        if before == stored:
            return Change(stored.id, Effect.NOTHING, stored)
        self.percolator.put(stored)
        known = self._refused.pop(stored.id, None) is not None or before is not None
        return Change(stored.id, Effect.CHANGED if known else Effect.ADDED, stored)

    def _refuse(
        self, name: str, stored: StoredQuery | None, error: PercolationError, *, has_stood: bool = False
    ) -> Change:
        """What the topic says counts: the query that stood before is replaced by one that does not."""
        if name in self.percolator:
            self.percolator.remove(name)
        self._refused[name] = Change(name, Effect.REFUSED, stored, _short(error), has_stood)
        return self._refused[name]

    def _apply_mapping(self, key: str, value: bytes | None) -> list[Change]:
        name = key.removeprefix(MAPPING_PREFIX)
        was_refused = self._refused.pop(key, None) is not None
        usual = DYNAMIC if name == "default" else None
        what = "was removed"
        try:
            mapping, effect = (usual, Effect.REMOVED) if value is None else (parse_mapping(value, name), Effect.CHANGED)
        except InvalidMapping as error:
            # The one before counts no more: who reads the topic once it is compacted does not see it.
            mapping, effect, what = usual, Effect.REFUSED, "cannot be read"
            self._refused[key] = Change(key, Effect.REFUSED, None, _short(error))
        was_there = name in self.percolator.mappings
        changes: list[Change] = []
        is_news = self.percolator.mappings.get(name) != mapping
        if mapping is None and was_there:
            gone = [stored for stored in self.percolator if stored.mapping == name]
            self.percolator.remove_mapping(name)
            missing = InvalidMapping(f"mapping {name!r} {what}")
            changes = [self._refuse(each.id, each, missing, has_stood=True) for each in gone]
        elif mapping is not None and is_news:
            changes = self._put_mapping(name, mapping)
        if effect is Effect.REFUSED:
            return [self._refused[key], *changes]
        if not is_news:
            effect = Effect.REMOVED if was_refused and value is None else Effect.NOTHING
        elif mapping is not None:
            effect = Effect.CHANGED if was_there else Effect.ADDED
        return [Change(key, effect), *changes]

    def _put_mapping(self, name: str, mapping: Mapping) -> list[Change]:
        """Queries that no longer mean anything under it stand no more, and others that now do, do."""
        before = {stored.id: stored for stored in self.percolator if stored.mapping == name}
        refused = self.percolator.put_mapping(name, mapping)
        changes = [self._refuse(each, before[each], error, has_stood=True) for each, error in sorted(refused.items())]
        for was in [each for each in self._refused.values() if each.id not in refused]:
            stored = was.stored
            if stored is not None and stored.mapping == name:
                try:
                    changes.append(replace(self._stand(stored), has_stood=was.has_stood))
                except InvalidQuery as error:
                    changes.append(self._refuse(stored.id, stored, error, has_stood=was.has_stood))
        return changes


def _name_of(key: bytes | None) -> str:
    """A record's key as text; of one that is no text, what no query and no mapping is called."""
    try:
        return (key or b"").decode()
    except UnicodeDecodeError:
        return "\0" + (key or b"").decode(errors="backslashreplace")


def _short(error: PercolationError) -> str:
    """Why, as long as it is of use to anybody: a reason repeats what was sent."""
    reason = str(error)
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]} …"
