"""`[sync.NAME]`: a derived system kept in step with a topic, with the keys of `headrace sync`."""

import importlib
import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from headrace.connect.capture.settings import SECTION as CAPTURES
from headrace.connect.capture.settings import from_section as captured
from headrace.connect.capture.verification import table_behind
from headrace.connect.sync.registry import NEED_KEYS, SINKS, make_sink
from headrace.connect.sync.settings import OWN_KEYS, SECTION, from_section
from headrace.errors import HeadraceError, nearest
from headrace.model import check_topic_name
from headrace.section_keys import Complaint, Key, complaints
from headrace.stack.kind import Kind, Member, Section, Sections, Stack, members_by_section
from headrace.stack.kinds.forgetting import for_members
from headrace.stack.kinds.topics import needs

_SOMEWHERE: Final = "127.0.0.1:9092"  # only to make a sink, which opens nothing


def _check(section: Section) -> Iterable[Complaint]:
    sink = section.values["sink"]
    options = _options(sink)
    known = {*OWN_KEYS, *options}
    values = {}
    for key, value in section.values.items():
        if key in known:
            values[key] = value
        else:
            yield (key,), f"[{section.where}] has no key {key!r}: {nearest(key, known)}"

    needed = ("topic", "sink", *(name for name, is_needed in options.items() if is_needed))
    missing = [name for name in needed if name not in section.values]
    yield from (((), f"[{section.where}] has no {name!r}: add {name} = …, sink {sink!r} needs it") for name in missing)

    def attempt(given: Mapping[str, Any]) -> object:
        settings = from_section(section.name, given)
        return settings if missing else make_sink(settings, _SOMEWHERE)

    yield from complaints(values, attempt, where=section.where, needed=needed)


def _explore(section: Section, others: Sections) -> Iterable[Complaint]:
    """Whether a table behind the topic has the key that the sink needs; a database that is away is no mistake."""
    if section.values["sink"] not in NEED_KEYS:
        return
    topic, sink = section.values["topic"], section.values["sink"]
    with suppress(HeadraceError):
        captures = [captured(one.name, one.values) for one in others.get(CAPTURES, ())]
        found = table_behind(captures, topic)
        if found is not None and not found[1].is_keyed:
            capture, table = found
            name = f"{table.schema}.{table.name}"
            mend = f'key_columns = {{ "{name}" = ["…"] }} in [{CAPTURES}.{capture.name}]'
            sentence = f"table {name} behind topic {topic} has no key, by which {sink} finds rows"
            yield ("topic",), f"[{section.where}] {sentence}: choose one with {mend}, or another sink"


def _options(sink: str) -> dict[str, bool]:
    """What a sink takes besides its name and its topic, and whether it must be given."""
    module, _, function = SINKS[sink].partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError:
        return {}  # its driver is not installed: told when it is tried
    parameters = list(inspect.signature(make).parameters.values())[2:]
    return {one.name: one.default is one.empty for one in parameters if one.name != "bootstrap"}


def _members(stack: Stack) -> Iterable[Member]:
    # It waits by itself for a topic or a target that is not there yet.
    return members_by_section(stack, SECTION, ("sync", "run"), needs(stack), for_members(stack), is_ready_at_once=True)


KIND = Kind(
    SECTION,
    "A derived system kept in step with a topic; further keys are those of its sink.",
    """
# [sync.orders-cache]
# topic = "shop.public.orders"
# sink = "redis"
# url = "redis://127.0.0.1:6379/0"
# prefix = "orders:"
""",
    (
        Key("topic", str, "The topic to follow.", is_needed=True, check=check_topic_name),
        Key("sink", str, "The kind of target.", is_needed=True, choices=tuple(sorted(SINKS))),
    ),
    is_named=True,
    is_open=True,
    check=_check,
    explore=_explore,
    members=_members,
)
