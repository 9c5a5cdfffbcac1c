"""The queries that stand now, for whoever asks: the topic is read to its end before each answer. For one thread."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from headrace.client.cluster import Cluster
from headrace.errors import HeadraceError, nearest
from headrace.percolation.catalog import Catalog
from headrace.percolation.documents import Document, read_document
from headrace.percolation.errors import InvalidDocument, InvalidStoredQuery, UnknownQuery
from headrace.percolation.percolator import Hit, Percolator
from headrace.percolation.snippets import snippets
from headrace.percolation.stored import StoredQuery, from_parts
from headrace.serving.answers import as_json
from headrace.stores.compacted_topic import CompactedTopic

_MOST_PIECES: Final = 32
MOST_ANSWER_BYTES: Final = 64 * 1024 * 1024


class QueryChanged(HeadraceError):
    """Somebody else changed a query since it was looked at."""


class Answers(NamedTuple):
    """What some documents match, each as JSON, and up to where queries were known."""

    queries_offset: int
    documents: list[bytes]


class TooManyHits(HeadraceError):
    """An answer that would be larger than any client takes."""

    def __init__(self) -> None:
        super().__init__(
            f"the hits are more than {MOST_ANSWER_BYTES // 2**20} MiB: ask with a smaller limit, with highlights=no, "
            "or send fewer documents"
        )


@dataclass(slots=True)
class Standing:
    """What stands in the queries' topic of a cluster, and the way to change it."""

    cluster: Cluster
    name: str
    catalog: Catalog = field(default_factory=Catalog)
    _topic: CompactedTopic = field(init=False)

    def __post_init__(self) -> None:
        self._topic = CompactedTopic(self.cluster, self.name, forget=self._forget, is_for_others=True)

    def _forget(self) -> None:
        self.catalog = Catalog()

    def refresh(self) -> Catalog:
        """What stands now."""
        for record in self._topic.read_news():
            key, value = record.key, record.value
            self.catalog.apply(
                record.offset, None if key is None else bytes(key), None if value is None else bytes(value)
            )
        return self.catalog

    # --- looking

    def percolate(
        self,
        documents: Sequence[Mapping[str, Any]],
        mapping: str,
        *,
        with_highlights: bool,
        most: int,
        first: int | None = None,
    ) -> Answers:
        """The hits of each document, in the order of the queries' ids, and how many there are in all. `first` is the
        number of the first document, where they have numbers."""
        catalog = self.refresh()
        percolator = catalog.percolator
        read = self._read(documents, percolator, mapping, first)
        answers, room_bytes = [], MOST_ANSWER_BYTES
        # What is not shown need not be highlighted, which costs most.
        for document, hits in zip(read, percolator.percolate_each(read, mapping, with_highlights=False), strict=True):
            parts = []
            for hit in hits[:most]:
                parts.append(
                    as_json(shown(percolator.with_highlights(hit, document) if with_highlights else hit, document))
                )
                room_bytes -= len(parts[-1])
                if room_bytes < 0:
                    raise TooManyHits
            answers.append(
                b'{"hits":[%s],"total":%d,"queries_offset":%d}' % (b",".join(parts), len(hits), catalog.offset)
            )
        return Answers(catalog.offset, answers)

    def explain(self, query_id: str, documents: Sequence[Mapping[str, Any]], *, first: int | None = None) -> Answers:
        """Why each document matches a query, or why not."""
        catalog = self.refresh()
        percolator = catalog.percolator
        self._refuse_refused(query_id)
        read = self._read(documents, percolator, percolator.get(query_id).mapping, first)
        about = {"query": query_id} | ({"queries_offset": catalog.offset} if first is None else {})
        found = [as_json({**percolator.explain(query_id, each).as_json(), **about}) for each in read]
        return Answers(catalog.offset, found)

    def _read(
        self, documents: Sequence[Mapping[str, Any]], percolator: Percolator, mapping: str, first: int | None
    ) -> list[Document]:
        described = percolator.mappings.get(mapping)
        if described is None:
            raise UnknownQuery(f"mapping {mapping!r} is unknown; {nearest(mapping, percolator.mappings)}")
        read = []
        for number, each in enumerate(documents, first or 0):
            try:
                read.append(read_document(each, described))
            except InvalidDocument as error:
                raise InvalidDocument(str(error) if first is None else f"document {number}: {error}") from None
        return read

    def listed(self, owner: str | None, tag: str | None, after: str, most: int) -> dict[str, Any]:
        """The queries whose ids come after one, and what could not be taken."""
        catalog = self.refresh()
        found = [
            each
            for each in catalog.percolator
            if each.id > after and (owner is None or each.owner == owner) and (tag is None or tag in each.tags)
        ]
        refused = sorted(catalog.refused.items())[:most]
        return {
            "queries": [_query(each) for each in found[:most]],
            "next": found[most - 1].id if len(found) > most else None,
            "count": len(catalog.percolator),
            "refused": {key: change.reason for key, change in refused},
            "unselective": catalog.percolator.unselective,
            "queries_offset": catalog.offset,
        }

    def one(self, query_id: str) -> dict[str, Any]:
        """A query as it is stored."""
        catalog = self.refresh()
        if query_id in catalog.refused:
            return {"id": query_id, "refused": catalog.refused[query_id].reason}
        return _query(catalog.percolator.get(query_id))

    # --- changing

    def put(self, query_id: str, parts: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Store a query, and whether it is a new one; with a `version`, only over the one that has it."""
        catalog = self.refresh()
        known = catalog.percolator.get(query_id) if query_id in catalog.percolator else None
        stored = from_parts(query_id, parts)
        if known is not None:
            if "version" in parts and stored.version != known.version:
                raise QueryChanged(
                    f"query {query_id!r} has version {known.version} by now, not {stored.version}: look at it again, "
                    "then change it"
                )
            stored = replace(stored, version=known.version + 1)
        elif "version" in parts:
            raise QueryChanged(
                f"no query is stored as {query_id!r} by now: somebody has removed it; leave out 'version' to store it"
            )
        else:
            stored = replace(stored, version=1)
        self._check(stored)
        self._topic.write(query_id, stored.as_json())
        return _query(stored), known is None

    def pause(self, query_id: str, *, paused: bool) -> dict[str, Any]:
        """Let no document match a query, or let them again."""
        catalog = self.refresh()
        self._refuse_refused(query_id)
        stored = catalog.percolator.get(query_id)
        if stored.paused != paused:
            stored = replace(stored, version=stored.version + 1, paused=paused)
            self._topic.write(query_id, stored.as_json())
        return _query(stored)

    def remove(self, query_id: str) -> None:
        """Take a query out, or a record that was refused."""
        catalog = self.refresh()
        if query_id not in catalog.refused:
            catalog.percolator.get(query_id)
        self._topic.write(query_id, None)

    def _check(self, stored: StoredQuery) -> None:
        """Refuse what would not stand, before anybody sees it."""
        known = self.catalog.percolator
        known.read(stored)
        Percolator({stored.mapping: known.mappings[stored.mapping]}).put(stored)

    def _refuse_refused(self, query_id: str) -> None:
        if query_id in self.catalog.refused:
            raise InvalidStoredQuery(self.catalog.refused[query_id].reason)


def shown(hit: Hit, document: Document) -> dict[str, Any]:
    """A hit of a document in hand: as in the topic of hits, without the coordinates that it does not have."""
    pieces = snippets(document, hit.highlights)[:_MOST_PIECES]
    return {
        "query": hit.id,
        "version": hit.version,
        "owner": hit.owner,
        "tags": list(hit.tags),
        "score": hit.score,
        "highlights": [
            {"field": each.field, "text": each.text, "marks": [list(mark) for mark in each.marks]} for each in pieces
        ],
    }


def _query(stored: StoredQuery) -> dict[str, Any]:
    return {"id": stored.id, "version": stored.version, **json.loads(stored.as_json())}
