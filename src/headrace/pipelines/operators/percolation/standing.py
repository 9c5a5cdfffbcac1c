"""Queries as a worker process holds them, between one micro-batch and the next. Pure.

What stands is known by a token, which says what it was made of. A process keeps the queries of the tokens that it used
last: a call whose state has another token finds nothing here, and makes them anew from what is stored. So a
micro-batch that is done again, on another machine or after others, has the queries that it had, and nothing here need
ever be declared stale.
"""

import hashlib
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from headrace.percolation.catalog import Catalog
from headrace.percolation.language import Policy
from headrace.percolation.mapping import Mapping
from headrace.percolation.percolator import Percolator
from headrace.percolation.stored import StoredQuery

Key = TypeVar("Key")
Kept = TypeVar("Kept")
_MOST: Final = 4
"""So many are kept: one for each operator of the queries of Spark that a process serves."""
_MOST_SHOWN: Final = 20
_LONGEST: Final = 500


class Record(NamedTuple):
    """A record of the queries' topic, numbered in the order in which records were read."""

    number: int
    key: bytes | None
    value: bytes | None


@dataclass
class Standing:
    """The queries of a topic as they stand, and how, as JSON."""

    catalog: Catalog
    status: str = ""

    def apply(self, records: Sequence[Record]) -> None:
        for record in records:
            self.catalog.apply(*record)
        self.status = self._status()

    @property
    def size(self) -> int:
        """How many records it is made of at least."""
        percolator = self.catalog.percolator
        return len(percolator) + len(self.catalog.refused) + len(percolator.mappings)

    def _status(self) -> str:
        percolator, refused = self.catalog.percolator, self.catalog.refused
        said = {
            "queries": len(percolator),
            "unselective": percolator.unselective,
            "refused": len(refused),
            "reasons": {name: refused[name].reason[:_LONGEST] for name in sorted(refused)[:_MOST_SHOWN]},
        }
        return json.dumps(said, ensure_ascii=False)


_standing: OrderedDict[tuple[Policy, str], Standing] = OrderedDict()
_fixed: OrderedDict[str, Percolator] = OrderedDict()


def forget() -> None:
    """As a process begins: nothing is held."""
    _standing.clear()
    _fixed.clear()


def next_token(token: str, records: Sequence[Record]) -> str:
    """What is known of queries by when records come on top of them, however these are cut."""
    for record in records:
        made = hashlib.blake2b(token.encode(), digest_size=16)
        for part in (record.key, record.value):
            made.update(b"-" if part is None else b"%d:" % len(part) + part)
        token = made.hexdigest()
    return token


def standing(
    policy: Policy, token: str, records: Sequence[Record], later: str, stored: Callable[[], Sequence[Record]]
) -> Standing:
    """The queries of a token with some records on top, by when their token is `later`."""
    found = _standing.pop((policy, later), None)
    if found is None:
        found = _standing.pop((policy, token), None)
        if found is None:
            found = Standing(Catalog(policy=policy))
            found.apply(stored() if token else ())
        found.apply(records)
    _keep(_standing, (policy, later), found)
    return found


def latest(records: Sequence[Record]) -> list[Record]:
    """Those of some records that still say something: the same queries stand by them as by all."""
    kept: dict[bytes, Record] = {}
    for record in records:
        name = record.key or b""
        if record.value is None:
            # One that removes the mapping that everybody has is of use no longer, either: it is there by itself.
            kept.pop(name, None)
        else:
            kept[name] = record
    return sorted(kept.values())


@dataclass(frozen=True)
class Fixed:
    """Queries that stay as they are as long as the query of Spark runs, packed for the workers."""

    packed: bytes
    token: str

    @classmethod
    def of(cls, mapping: Mapping, queries: Sequence[StoredQuery], policy: Policy) -> "Fixed":
        """Refused if one of them does not stand."""
        packed = pickle.dumps((mapping, tuple(queries), policy))
        made = cls(packed, hashlib.blake2b(packed, digest_size=16).hexdigest())
        made.percolator()
        return made

    def percolator(self) -> Percolator:
        """Made once in a process."""
        found = _fixed.pop(self.token, None)
        if found is None:
            mapping, queries, policy = pickle.loads(self.packed)  # noqa: S301 - packed by ourselves
            found = Percolator({"default": mapping}, policy=policy)
            for each in queries:
                found.put(each)
        _keep(_fixed, self.token, found)
        return found


def _keep(held: "OrderedDict[Key, Kept]", key: Key, kept: Kept) -> None:
    held[key] = kept
    while len(held) > _MOST:
        held.popitem(last=False)
