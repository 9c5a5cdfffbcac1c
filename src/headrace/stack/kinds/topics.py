"""`[topics.NAME]`: topics that are there before anything else starts."""

from collections.abc import Iterable
from typing import Final

from headrace.broker.settings.setting import check_settings
from headrace.broker.settings.topics import TOPIC_SETTINGS
from headrace.errors import HeadraceError
from headrace.model import check_topic_name
from headrace.section_keys import Complaint, Key
from headrace.stack.kind import CONFIG, Command, Kind, Member, Section, Stack
from headrace.stack.kinds.broker import as_text, first_needs, is_embedded

NAME: Final = "topics"


def _check(section: Section) -> Iterable[Complaint]:
    try:
        check_topic_name(section.name)
    except HeadraceError as error:
        yield (), str(error)
    for name, value in section.values.get("configs", {}).items():
        try:
            check_settings(TOPIC_SETTINGS, {name: as_text(value)})
        except HeadraceError as error:
            yield ("configs", name), f"[{section.where}] configs: {error}"


def _members(stack: Stack) -> Iterable[Member]:
    wanted = {
        name: {**values, "configs": {key: as_text(value) for key, value in values.get("configs", {}).items()}}
        for name, values in stack.several(NAME).items()
    }

    def command(bootstrap: str) -> Command:
        return Command(("headrace.stack.topics_task", bootstrap, CONFIG), {NAME: wanted})

    # Also without topics to make: it waits for a Kafka that is not ours.
    if wanted or not is_embedded(stack):
        yield Member(NAME, NAME, command, first_needs(stack), is_task=True, is_vital=True)


def needs(stack: Stack) -> tuple[str, ...]:
    """What has to be done before anything reads or writes topics."""
    return tuple(member.name for member in _members(stack)) or first_needs(stack)


KIND = Kind(
    NAME,
    "Topics that are there before anything else starts.",
    """
[topics.orders]
partitions = 2
# configs = { "retention.ms" = 604800000 }
""",
    (
        Key("partitions", int, "How many partitions a new topic gets.", 1, least=1),
        Key("replication_factor", int, "How many brokers hold each; by default as many as the cluster says.", least=1),
        Key("configs", dict, "Settings of the topic under Kafka's names; set also where the topic is there already."),
    ),
    is_named=True,
    check=_check,
    members=_members,
)
