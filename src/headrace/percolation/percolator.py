"""Stored queries and the documents that flow past them, as one plain object.

    percolator = Percolator({"default": read_mapping({"fields": {"title": {"type": "text", "analyzer": "english"}}})})
    percolator.add("cars", 'title:"fast car"~2', tags=("cars",), owner="ann")
    percolator.percolate({"title": "A fast red car"})         # [Hit(id='cars', score=1.0, …)]

What always holds: the hits are those that `evaluate.py` defines, in the order of their ids, whichever index picked the
candidates; a query that is refused changes nothing; a document is held against the queries that stand when it comes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Map
from dataclasses import dataclass, replace
from typing import Any, Protocol

from headrace.errors import nearest
from headrace.percolation.documents import Document, read_document
from headrace.percolation.errors import InvalidMapping, InvalidQuery, InvalidStoredQuery, UnknownQuery
from headrace.percolation.evaluate import Highlight, highlights, score
from headrace.percolation.explain import Explanation, explain
from headrace.percolation.language import DEFAULT_POLICY, Policy
from headrace.percolation.mapping import DYNAMIC, Mapping
from headrace.percolation.reading import is_selective, read_query
from headrace.percolation.stored import StoredQuery
from headrace.percolation.tree import Query


@dataclass(frozen=True, slots=True)
class Hit:
    """A stored query that a document matches."""

    id: str
    score: float
    tags: tuple[str, ...] = ()
    owner: str = ""
    version: int = 1
    highlights: tuple[Highlight, ...] = ()


class CandidateIndex(Protocol):
    """Picks the queries that a document may match, by numbers that are given once and never again."""

    def add(self, number: int, query: Query) -> None: ...

    def remove(self, number: int) -> None: ...

    def candidates(self, documents: Sequence[Document]) -> Sequence[Iterable[int]]:
        """For each document all the numbers whose query matches it, and as few others as can be."""
        ...


class AllQueries:
    """The index that picks every query: brute force, by which the others are measured."""

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}

    def add(self, number: int, query: Query) -> None:  # noqa: ARG002 (whatever it asks)
        self._numbers[number] = None

    def remove(self, number: int) -> None:
        del self._numbers[number]

    def candidates(self, documents: Sequence[Document]) -> Sequence[Iterable[int]]:
        return [tuple(self._numbers)] * len(documents)


@dataclass(frozen=True, slots=True)
class _Held:
    """A stored query, what it means, and its number in the index (None while it is paused)."""

    stored: StoredQuery
    query: Query
    number: int | None


class Percolator:
    """Holds queries, each under the mapping that it names; a document is read by one mapping."""

    def __init__(
        self,
        mappings: Map[str, Mapping] | None = None,
        *,
        policy: Policy = DEFAULT_POLICY,
        index: Callable[[], CandidateIndex] = AllQueries,
    ) -> None:
        self._mappings = dict(mappings) if mappings else {"default": DYNAMIC}
        self._policy = policy
        self._indexes = {name: index() for name in self._mappings}
        self._held: dict[str, _Held] = {}
        self._by_number: dict[int, _Held] = {}
        self._next = 0

    # --- the queries

    def put(self, stored: StoredQuery) -> None:
        """Add a query, or replace the one of the same id; refused, the one that is there stays."""
        query = self.read(stored)
        self._take_out(stored.id)
        held = _Held(stored, query, None)
        if not stored.paused:
            held = _Held(stored, query, self._next)
            self._next += 1
            self._indexes[stored.mapping].add(held.number or 0, query)
            self._by_number[held.number or 0] = held
        self._held[stored.id] = held

    def add(self, query_id: str, text: str, **kept: Any) -> StoredQuery:
        """A new query; `kept` are the other fields of `StoredQuery`."""
        if query_id in self._held:
            raise InvalidStoredQuery(f"query {query_id!r} is there already: change it, or choose another id")
        stored = StoredQuery(query_id, text, **kept)
        self.put(stored)
        return stored

    def change(self, query_id: str, **kept: Any) -> StoredQuery:
        """Some fields of a query replaced; its version goes up by one."""
        before = self.get(query_id)
        stored = replace(before, **{"version": before.version + 1, **kept})
        self.put(stored)
        return stored

    def pause(self, query_id: str) -> StoredQuery:
        """The query is kept, and no document matches it."""
        return self.change(query_id, paused=True)

    def resume(self, query_id: str) -> StoredQuery:
        return self.change(query_id, paused=False)

    def remove(self, query_id: str) -> None:
        self.get(query_id)
        self._take_out(query_id)

    def get(self, query_id: str) -> StoredQuery:
        held = self._held.get(query_id)
        if held is None:
            raise UnknownQuery(
                f"no query is stored as {query_id!r}: {nearest(query_id, self._held, otherwise='look at the list')}"
            )
        return held.stored

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._held

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[StoredQuery]:
        """The stored queries in the order of their ids."""
        return (self._held[each].stored for each in sorted(self._held))

    @property
    def unselective(self) -> int:
        """How many queries are held against every document, for want of something that a match must have."""
        return sum(held.number is not None and not is_selective(held.query) for held in self._held.values())

    def read(self, stored: StoredQuery) -> Query:
        """What a query means; refused with the place marked."""
        mapping = self._mapping(stored.mapping, f"query {stored.id!r}")
        try:
            return read_query(
                stored.text, mapping, fields=stored.fields, all_words=stored.all_words, policy=self._policy
            )
        except InvalidQuery as error:
            raise InvalidQuery(f"query {stored.id!r}: {error.sentence}", error.place) from None

    def _take_out(self, query_id: str) -> None:
        held = self._held.pop(query_id, None)
        if held is not None and held.number is not None:
            self._indexes[held.stored.mapping].remove(held.number)
            del self._by_number[held.number]

    # --- the documents

    def percolate(
        self, document: Map[str, Any] | Document, mapping: str = "default", *, with_highlights: bool = True
    ) -> list[Hit]:
        """The queries that a document matches."""
        return self.percolate_many([document], mapping, with_highlights=with_highlights)[0]

    def percolate_many(
        self, documents: Sequence[Map[str, Any] | Document], mapping: str = "default", *, with_highlights: bool = True
    ) -> list[list[Hit]]:
        """The hits of each document; one that does not fit its mapping is an `InvalidDocument`."""
        fields = self._mapping(mapping, "a document")
        read = [each if isinstance(each, Document) else read_document(each, fields) for each in documents]
        return [
            self._hits(document, numbers, with_highlights)
            for document, numbers in zip(read, self._indexes[mapping].candidates(read), strict=True)
        ]

    def explain(self, query_id: str, document: Map[str, Any] | Document) -> Explanation:
        """Why the document matches the query, or why not."""
        stored = self.get(query_id)
        mapping = self._mappings[stored.mapping]
        return explain(
            self._held[query_id].query, document if isinstance(document, Document) else read_document(document, mapping)
        )

    def _hits(self, document: Document, numbers: Iterable[int], with_highlights: bool) -> list[Hit]:
        hits = list[Hit]()
        for number in numbers:
            held = self._by_number[number]
            worth = score(held.query, document)
            if worth is None:
                continue
            stored = held.stored
            words = highlights(held.query, document) if with_highlights else ()
            hits.append(Hit(stored.id, worth * stored.boost, stored.tags, stored.owner, stored.version, words))
        hits.sort(key=lambda hit: hit.id)
        return hits

    def _mapping(self, name: str, what: str) -> Mapping:
        mapping = self._mappings.get(name)
        if mapping is None:
            raise InvalidMapping(f"{what} names mapping {name!r}, which is unknown; {nearest(name, self._mappings)}")
        return mapping
