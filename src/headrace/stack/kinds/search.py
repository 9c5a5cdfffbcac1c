"""`[search.NAME]`: documents of a topic held against stored queries, with the keys of `headrace search run`."""

from collections.abc import Iterable

from headrace.model import check_topic_name
from headrace.searches.settings import QUERIES, SECTION, from_section
from headrace.section_keys import Complaint, Key, complaints
from headrace.stack.kind import Kind, Member, Section, Stack, members_by_section
from headrace.stack.kinds.topics import needs


def _check(section: Section) -> Iterable[Complaint]:
    return complaints(
        section.values, lambda values: from_section(section.name, values), where=section.where, needed=("documents",)
    )


def _members(stack: Stack) -> Iterable[Member]:
    # It waits by itself for a topic that is not there yet.
    return members_by_section(stack, SECTION, ("search", "run"), needs(stack), is_ready_at_once=True)


KIND = Kind(
    SECTION,
    "Documents of a topic, held against stored queries as they come.",
    """
# [search.listings]
# documents = "listings"     # queries come from topic searches: headrace search add bikes 'title:bike'
""",
    (
        Key("documents", str, "The topic of documents, JSON objects.", is_needed=True, check=check_topic_name),
        Key("queries", str, "The compacted topic of stored queries.", QUERIES, check=check_topic_name),
        Key("hits", str, "Where hits go; by default NAME.hits.", check=check_topic_name),
        Key("mapping", str, "What the documents' fields mean; queries of other mappings are left alone.", "default"),
        Key("from", str, "Where the first start of all begins.", "end", choices=("start", "end")),
        Key("highlights", bool, "Whether hits say for which words.", default=True),
        Key("document", bool, "Whether hits carry the document.", default=False),
    ),
    is_named=True,
    check=_check,
    members=_members,
)
