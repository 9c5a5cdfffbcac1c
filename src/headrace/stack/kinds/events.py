"""`[events.NAME]`: a store of events; what is stored in a database flows into a topic, if one is named."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from headrace.errors import HeadraceError
from headrace.eventsourcing.flow import SECTION
from headrace.eventsourcing.opening import check_address
from headrace.model import check_topic_name
from headrace.records import Codec
from headrace.section_keys import Complaint, Key
from headrace.stack.kind import Kind, Member, Section, Sections, Stack, members_by_section
from headrace.stack.kinds.queues import try_importing
from headrace.stack.kinds.topics import needs

_FOLLOWERS: Final = ("projections", "processes")
_CODE: Final = {"projections": "projection", "processes": "process", "aggregates": "aggregate"}


def _check(section: Section) -> Iterable[Complaint]:
    try:
        check_address(section.values["url"])  # not by its key, which would show it: it may hold a password
    except HeadraceError as error:
        yield ("url",), f"[{section.where}] url: {error}"


def _explore(section: Section, _others: Sections) -> Iterable[Complaint]:
    """Whether the code that the section names is there."""
    for key, kind in _CODE.items():
        if targets := section.values.get(key):
            arguments = [word for target in targets for word in (kind, target)]
            yield from try_importing(section, key, "headrace.eventsourcing.followers", arguments)


def _members(stack: Stack) -> Iterable[Member]:
    for words, suffix, keys in ((("events", "flow"), "", ("topic",)), (("events", "run"), ".run", _FOLLOWERS)):
        wanted = {f"{SECTION}.{name}" for name, values in stack.several(SECTION).items() if any(map(values.get, keys))}
        for member in members_by_section(stack, SECTION, words, needs(stack)):
            if member.name in wanted:
                yield replace(member, name=member.name + suffix)


KIND = Kind(
    SECTION,
    "A store of events, for the dashboard to show, and for a topic to have what is stored in a database.",
    """
# [events.shop]
# url = "postgresql://headrace:${SHOP_PASSWORD}@127.0.0.1/shop"
# topic = "shop.events"           # each stored event goes there, once
# projections = ["shop:orders"]   # orders of shop.py, a view of the events
# aggregates = ["shop:account"]   # account of shop.py, whose states the dashboard shows
""",
    (
        Key(
            "url",
            str,
            "The store: postgresql://…, sqlite:///path, or kafka://host:port/topic, which is a topic already.",
            is_needed=True,
        ),
        Key("topic", str, "The topic that every stored event goes to; without it none does.", check=check_topic_name),
        Key("partitions", int, "Of a topic that is made; the events of a stream are in one.", 1, least=1),
        Key("compression", str, "Of the records.", "none", choices=tuple(codec.name.lower() for codec in Codec)),
        Key("projections", list, "Projections, as MODULE:NAME, that are kept in step with the events."),
        Key("processes", list, "Processes, as MODULE:NAME, that lead from events to commands."),
        Key("views", str, "Where projections are kept: sqlite:///path or postgresql://…; by default with the events."),
        Key(
            "on_change",
            str,
            "What becomes of a projection whose code has changed: it fails, is rebuilt beside, or goes on as it is.",
            "fail",
            choices=("fail", "rebuild", "keep"),
        ),
        Key("aggregates", list, "Aggregates, as MODULE:NAME, whose states the dashboard shows."),
    ),
    is_named=True,
    check=_check,
    members=_members,
    explore=_explore,
)
