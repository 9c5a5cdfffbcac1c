"""A section `[search.NAME]` of `headrace.toml`: which documents are held against which queries, and where hits go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.model import check_topic_name

SECTION: Final = "search"
QUERIES: Final = "searches"
"""The topic of stored queries, if none is named."""


class SearchError(HeadraceError):
    """A search that cannot run as it is set up."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    name: str
    documents: str
    queries: str = QUERIES
    hits: str = ""
    mapping: str = "default"
    from_start: bool = False
    """Whether the first start of all begins at the first document instead of the next one."""
    with_highlights: bool = True
    with_document: bool = False


def from_section(name: str, section: Mapping[str, Any]) -> SearchSettings:
    """What a section says; raises the first thing that is wrong with a value."""
    documents = section.get("documents")
    if not documents:
        raise SearchError(f'[{SECTION}.{name}] has no documents: write documents = "…", the topic that they come from')
    settings = SearchSettings(
        name,
        documents,
        section.get("queries") or QUERIES,
        section.get("hits") or f"{name}.hits",
        section.get("mapping") or "default",
        section.get("from") == "start",
        bool(section.get("highlights", True)),
        bool(section.get("document", False)),
    )
    for topic in (settings.documents, settings.queries, settings.hits):
        check_topic_name(topic)
    if len({settings.documents, settings.queries, settings.hits}) < 3:
        raise SearchError(
            f"[{SECTION}.{name}] reads and writes one topic: documents, queries and hits each have a topic of their own"
        )
    return settings
