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
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.errors import nearest
from headrace.extras import load
from headrace.percolation.documents import Document, read_document
from headrace.percolation.errors import InvalidMapping, InvalidQuery, InvalidStoredQuery, UnknownQuery
from headrace.percolation.evaluate import Highlight, highlights, score
from headrace.percolation.explain import Explanation, explain
from headrace.percolation.language import DEFAULT_POLICY, Policy
from headrace.percolation.mapping import DYNAMIC, Mapping
from headrace.percolation.reading import is_selective, read_query
from headrace.percolation.stored import StoredQuery
from headrace.percolation.tree import Query

if TYPE_CHECKING:
    from headrace.percolation.index import Percolated

_MOST_TREES: Final = 100_000
# Documents that are held against the index in one go, so that their pairs of document and query stay few enough.
_MOST_TOGETHER: Final = 512
_FEWEST_TOGETHER: Final = 32
_MOST_PAIRS: Final = 10_000_000
_MANY: Final = 50_000


@dataclass(frozen=True, slots=True)
class Hit:
    """A stored query that a document matches."""

    id: str
    score: float
    tags: tuple[str, ...] = ()
    owner: str = ""
    version: int = 1
    highlights: tuple[Highlight, ...] = ()


Pair = tuple[int, int, float]
"""A document's row, a query's number, and what the match is worth."""


class Index(Protocol):
    """Holds queries by numbers, which are given again when they are free, and finds what documents match."""

    def add(self, number: int, query: Query) -> None: ...

    def remove(self, number: int) -> None: ...

    def pairs(self, documents: Sequence[Document], query_of: Callable[[int], Query]) -> Iterable[Pair]:
        """Every pair that matches, ordered by row; `query_of` knows a number's query, if the index does not."""
        ...


class AllQueries:
    """The index that holds every query against every document: by it the others are measured."""

    def __init__(self) -> None:
        self._queries: dict[int, Query] = {}

    def add(self, number: int, query: Query) -> None:
        self._queries[number] = query

    def remove(self, number: int) -> None:
        del self._queries[number]

    def pairs(self, documents: Sequence[Document], query_of: Callable[[int], Query]) -> Iterable[Pair]:  # noqa: ARG002
        for row, document in enumerate(documents):
            for number, query in self._queries.items():
                if (worth := score(query, document)) is not None:
                    yield row, number, worth


class Compiled:
    """The index that is compiled (`index/`): rarest facts pick candidates, and compiled loops decide most of them."""

    def __init__(self) -> None:
        self.index = load("headrace.percolation.index", "holding many queries").QueryIndex()
        self.add: Callable[[int, Query], None] = self.index.add
        self.remove: Callable[[int], None] = self.index.remove

    def pairs(self, documents: Sequence[Document], query_of: Callable[[int], Query]) -> Iterable[Pair]:
        settle = load("headrace.percolation.index").settle
        found = settle(self.index.match_documents(documents), documents.__getitem__, query_of)
        for first in range(0, len(found.rows), _MANY):
            some = slice(first, first + _MANY)
            yield from zip(
                found.rows[some].tolist(), found.numbers[some].tolist(), found.scores[some].tolist(), strict=True
            )


def _in_order(hits: list[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: hit.id)


class Percolator:
    """Holds queries, each under the mapping that it names; a document is read by one mapping.

    Trees of queries are read again from their texts when one is needed that was not for long: what is kept for each
    query is its record and what the index files.
    """

    def __init__(
        self,
        mappings: Map[str, Mapping] | None = None,
        *,
        policy: Policy = DEFAULT_POLICY,
        index: Callable[[], Index] = Compiled,
    ) -> None:
        self._mappings = dict(mappings) if mappings else {"default": DYNAMIC}
        self._policy = policy
        self._new_index = index
        self._indexes = {name: index() for name in self._mappings}
        self._stored: dict[str, StoredQuery] = {}
        self._numbers: dict[str, int] = {}
        """By id, of the queries that are not paused."""
        self._by_number: list[StoredQuery | None] = []
        self._free: list[int] = []
        self._unselective: set[int] = set()
        self._trees: dict[int, Query] = {}
        self._together = _MOST_TOGETHER

    # --- the queries

    def put(self, stored: StoredQuery) -> None:
        """Add a query, or replace the one of the same id; refused, the one that is there stays."""
        query = self.read(stored)
        number = None
        if not stored.paused:
            number = self._free.pop() if self._free else len(self._by_number)
            try:
                self._indexes[stored.mapping].add(number, query)
            except InvalidQuery:
                if number < len(self._by_number):
                    self._free.append(number)
                raise
        self._take_out(stored.id)
        self._stored[stored.id] = stored
        if number is None:
            return
        if number == len(self._by_number):
            self._by_number.append(None)
        self._by_number[number] = stored
        self._numbers[stored.id] = number
        if not is_selective(query):
            self._unselective.add(number)

    def add(self, query_id: str, text: str, **kept: Any) -> StoredQuery:
        """A new query; `kept` are the other fields of `StoredQuery`."""
        if query_id in self._stored:
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
        stored = self._stored.get(query_id)
        if stored is None:
            raise UnknownQuery(
                f"no query is stored as {query_id!r}: {nearest(query_id, self._stored, otherwise='look at the list')}"
            )
        return stored

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._stored

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[StoredQuery]:
        """The stored queries in the order of their ids."""
        return (self._stored[each] for each in sorted(self._stored))

    @property
    def unselective(self) -> int:
        """How many queries are held against every document, for want of something that a match must have."""
        return len(self._unselective)

    def read(self, stored: StoredQuery) -> Query:
        """What a query means; refused with the place marked."""
        mapping = self._mapping(stored.mapping, f"query {stored.id!r}")
        try:
            return read_query(
                stored.text, mapping, fields=stored.fields, all_words=stored.all_words, policy=self._policy
            )
        except InvalidQuery as error:
            raise InvalidQuery(f"query {stored.id!r}: {error.sentence}", error.place) from None

    def numbered(self, number: int) -> StoredQuery:
        """The stored query that has a number now."""
        stored = self._by_number[number]
        if stored is None:
            raise UnknownQuery(f"no query has number {number}")
        return stored

    def _tree(self, number: int) -> Query:
        """What the query of a number means; those that were not needed for longest are forgotten."""
        query = self._trees.pop(number, None)
        if query is None:
            query = self.read(self.numbered(number))
            if len(self._trees) >= _MOST_TREES:
                del self._trees[next(iter(self._trees))]
        self._trees[number] = query
        return query

    def _take_out(self, query_id: str) -> None:
        stored = self._stored.pop(query_id, None)
        number = self._numbers.pop(query_id, None)
        if stored is not None and number is not None:
            self._indexes[stored.mapping].remove(number)
            self._by_number[number] = None
            self._free.append(number)
            self._trees.pop(number, None)
            self._unselective.discard(number)

    # --- the mappings

    @property
    def mappings(self) -> Map[str, Mapping]:
        return self._mappings

    def put_mapping(self, name: str, mapping: Mapping) -> dict[str, InvalidQuery]:
        """Add a mapping, or replace one; its queries that mean nothing under the new one are removed, and why."""
        refused: dict[str, InvalidQuery] = {}
        under = [stored for stored in self._stored.values() if stored.mapping == name]
        for stored in under:
            self._take_out(stored.id)
        self._mappings[name] = mapping
        self._indexes[name] = self._new_index()
        for stored in under:
            try:
                self.put(stored)
            except InvalidQuery as error:
                refused[stored.id] = error
        return refused

    def remove_mapping(self, name: str) -> None:
        """Take a mapping out, and its queries with it."""
        for stored in [stored for stored in self._stored.values() if stored.mapping == name]:
            self._take_out(stored.id)
        self._mappings.pop(name, None)
        self._indexes.pop(name, None)

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
        return list(self.percolate_each(read, mapping, with_highlights=with_highlights))

    def percolate_each(
        self, documents: Sequence[Document], mapping: str = "default", *, with_highlights: bool = True
    ) -> Iterator[list[Hit]]:
        """The hits of one document after the other, worked out as they are asked for: however many queries each
        matches, those of few are held at once. The queries are to stay as they are until the last one."""
        index = self._indexes[mapping]
        most = max(_FEWEST_TOGETHER, _MOST_PAIRS // (len(self._by_number) + 1))
        at = 0
        while at < len(documents):
            some = documents[at : at + min(self._together, most)]
            at += len(some)
            row, count, hits = 0, 0, list[Hit]()
            for place, number, worth in index.pairs(some, self._tree):
                while row < place:
                    yield _in_order(hits)
                    row, hits = row + 1, []
                stored = self.numbered(number)
                words = highlights(self._tree(number), some[row]) if with_highlights else ()
                hits.append(Hit(stored.id, worth * stored.boost, stored.tags, stored.owner, stored.version, words))
                count += 1
            while row < len(some):
                yield _in_order(hits)
                row, hits = row + 1, []
            # Where each document has many hits, fewer documents are taken together.
            self._together = min(2 * self._together, _MOST_TOGETHER) if count < _MANY else max(1, self._together // 8)

    def percolate_batch(self, batch: Any, mapping: str = "default") -> "Percolated":
        """The same for an Arrow batch, as arrays of rows and numbers (see `numbered`); scores without boosts.

        Rows that do not fit the mapping are in `refused`, and the others are none the worse.
        """
        index = self._indexes[mapping] if self._mapping(mapping, "a batch") else None
        if not isinstance(index, Compiled):
            raise TypeError("a batch needs the compiled index")
        percolated: Percolated = load("headrace.percolation.index").percolate_batch(
            index.index, batch, self._tree, self._mappings[mapping]
        )
        return percolated

    def with_highlights(self, hit: Hit, document: Document) -> Hit:
        """A hit of a query that is still as it was, with the words for which the document matches."""
        return replace(hit, highlights=self.highlights(self._numbers[hit.id], document))

    def highlights(self, number: int, document: Document) -> tuple[Highlight, ...]:
        """The words of a document for which it matches the query that has a number now."""
        return highlights(self._tree(number), document)

    def explain(self, query_id: str, document: Map[str, Any] | Document) -> Explanation:
        """Why the document matches the query, or why not."""
        stored = self.get(query_id)
        if not isinstance(document, Document):
            document = read_document(document, self._mappings[stored.mapping])
        return explain(self.read(stored), document)

    def _mapping(self, name: str, what: str) -> Mapping:
        mapping = self._mappings.get(name)
        if mapping is None:
            raise InvalidMapping(f"{what} names mapping {name!r}, which is unknown; {nearest(name, self._mappings)}")
        return mapping


def warm_up() -> None:
    """Have the compiled loops made, or loaded, before the first document comes."""
    percolator = Percolator({"default": DYNAMIC})
    percolator.add("one", 'text:"two words" AND number:<2')
    percolator.add("two", "place:within(1, 1, 1km)")
    percolator.percolate({"text": "two words", "number": 1, "place": {"lat": 1, "lon": 1}})
