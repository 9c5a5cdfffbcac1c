"""Search on streams: searches at work, the queries that are stored, what they found, hits as they come, mails."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.client.offsets import Start, StartKind, bounds, find_stretch
from headrace.client.reader import ReadRecord, read_records
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page
from headrace.dashboard.statuses import row
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.percolation.catalog import Catalog
from headrace.percolation.errors import PercolationError
from headrace.percolation.percolator import AllQueries
from headrace.percolation.reading import is_selective
from headrace.searches.hits import Piece, SearchHit, read_hit
from headrace.status import SEARCHES, Status

SHOWN_HITS: Final = 12
SHOWN_QUERIES: Final = 200
MOST_READ: Final = 5_000  # records of a topic of queries that is longer are not read for a page
SECONDS: Final = 2.0
_MAIL: Final = "mail"
_SERVED: Final = "http"


async def view_searches(desk: Desk, _: Asked) -> Model:
    """What searches report, and what is in the topics that they read and write."""
    state = desk.state
    found = [each for _, each in sorted(state.statuses.get(SEARCHES, {}).items())]
    searches = [each for each in found if each.text("kind") not in (_MAIL, _SERVED)]
    queries, hits, problem = await _topics(desk, searches)
    counted: Counter[str] = Counter()
    for each in searches:
        counted.update(_counts(each.facts.get("top")))
    listed: list[Mapping[str, Any]] = [
        {**query, "hits": counted.get(query["id"])} for each in queries for query in each["queries"]
    ]
    listed.sort(key=lambda query: (-(query["hits"] or 0), query["id"]))
    refused = {key: reason for each in searches for key, reason in _texts(each.facts.get("refused")).items()}
    refused |= {key: reason for each in queries for key, reason in each["refused"].items()}
    return {
        "rows": [_search(each, state.at_ms) for each in searches],
        "mails": [_mail(each, state.at_ms) for each in found if each.text("kind") == _MAIL],
        "served": [_served(each, state.at_ms) for each in found if each.text("kind") == _SERVED],
        "queries": listed[:SHOWN_QUERIES],
        "more": max(len(listed) - SHOWN_QUERIES, 0),
        "too_many": [each["topic"] for each in queries if each["is_too_long"]],
        "top": counted.most_common(SHOWN_HITS),
        "refused": sorted(refused.items())[:SHOWN_QUERIES],
        "hits": [_hit(each) for each in hits],
        "topics_problem": problem,
    }


def _search(status: Status, now_ms: int) -> dict[str, Any]:
    numbers = {name: status.number(name) for name in ("hits", "queries", "unselective", "records")}
    return {**row(status, now_ms), **numbers, "backfills": _counts(status.facts.get("backfills"))}


def _served(status: Status, now_ms: int) -> dict[str, Any]:
    names = ("queries", "listeners", "records", "unanswered")
    topic = {"queries_topic": status.text("queries_topic")}
    return {**row(status, now_ms), **{name: status.number(name) for name in names}, **topic}


def _mail(status: Status, now_ms: int) -> dict[str, Any]:
    names = ("hits", "sent", "owners", "without_address", "given_up")
    return {**row(status, now_ms), **{name: status.number(name) for name in names}}


def _counts(value: object) -> dict[str, int]:
    found = value if isinstance(value, dict) else {}
    return {str(key): count for key, count in found.items() if isinstance(count, int)}


def _texts(value: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}


def _hit(hit: SearchHit) -> dict[str, Any]:
    return {
        "key": f"{hit.query}/{hit.topic}/{hit.partition}/{hit.offset}",
        "hit": hit,
        "pieces": [{"field": piece.field, "parts": _parts(piece)} for piece in hit.highlights[:3]],
    }


def _parts(piece: Piece) -> list[tuple[str, bool]]:
    """The text cut at its marks, each part with whether it is marked."""
    found, at = list[tuple[str, bool]](), 0
    for start, end in piece.marks:
        if at <= start < end:
            found += [(piece.text[at:start], False), (piece.text[start:end], True)]
            at = end
    return [part for part in (*found, (piece.text[at:], False)) if part[0]]


# --- asked of the cluster


async def _topics(
    desk: Desk, searches: Sequence[Status]
) -> tuple[Sequence[Mapping[str, Any]], Sequence[SearchHit], str]:
    """The queries of each topic that is read, and the latest hits of all."""
    there = () if desk.state.snapshot is None or desk.state.problem else desk.snapshot.topics
    queries = sorted({each.text("queries_topic") or "searches" for each in searches} | {"searches"} & set(there))
    hits = sorted({each.text("target") for each in searches} & set(there))
    queries = [topic for topic in queries if topic in there]

    def look(cluster: Cluster) -> tuple[list[Mapping[str, Any]], list[SearchHit]]:
        latest = [hit for topic in hits for hit in _latest(cluster, topic)]
        latest.sort(key=lambda found: found[0], reverse=True)
        return [_queries(cluster, topic) for topic in queries], [hit for _, hit in latest[:SHOWN_HITS]]

    try:
        found = await desk.ask_seldom(("searches", *queries, *hits), SECONDS, look) if queries or hits else ([], [])
    except HeadraceError as error:
        return (), (), str(error)
    return *found, ""


def _latest(cluster: Cluster, topic: str) -> list[tuple[tuple[int, int], SearchHit]]:
    partitions = cluster.partitions(topic)
    stretch = find_stretch(cluster, partitions, Start(StartKind.LAST, 2 * SHOWN_HITS), committed=True)
    reading = read_records(cluster, stretch.starts, until=stretch.ends)
    return [(_age(read), hit) for group in reading for read in group if (hit := read_hit(None, read.record.value))]


def _age(read: ReadRecord) -> tuple[int, int]:
    return read.record.timestamp, read.record.offset


def _queries(cluster: Cluster, topic: str) -> Mapping[str, Any]:
    where = TopicPartition(topic, 0)
    held = bounds(cluster, [where], committed=True)[where]
    if held.end - held.start > MOST_READ:
        return {"topic": topic, "is_too_long": True, "queries": [], "refused": {}}
    catalog = Catalog(index=AllQueries)
    if held.end > held.start:
        for group in read_records(cluster, {where: held.start}, until={where: held.end}):
            for _, record in group:
                catalog.apply(record.offset, record.key, record.value)
    percolator = catalog.percolator
    found = []
    for stored in percolator:
        try:
            selective = is_selective(percolator.read(stored))
        except PercolationError:
            selective = True
        found.append({"id": stored.id, "stored": stored, "is_selective": selective, "topic": topic})
    refused = {key: change.reason for key, change in catalog.refused.items()}
    return {"topic": topic, "is_too_long": False, "queries": found, "refused": refused}


SEARCHES_PAGE = Page(
    "/searches", "Searches", "searches.html", view_searches, Menu("Processing", "Searches", "s", "searches")
)
