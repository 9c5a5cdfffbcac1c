"""`[gateways.NAME]`: what comes from programs that speak no Kafka, with the keys of `headrace gateway`."""

from collections.abc import Iterable

from headrace.gateways.files.following import LINE_BYTES
from headrace.gateways.section import KINDS, SECTION, from_section
from headrace.model import check_topic_name
from headrace.records import Codec
from headrace.section_keys import Complaint, Key, complaints
from headrace.stack.kind import Kind, Member, Section, Stack, members_by_section
from headrace.stack.kinds.topics import needs


def _check(section: Section) -> Iterable[Complaint]:
    return complaints(
        section.values, lambda values: from_section(section.name, values), where=section.where, needed=("kind", "paths")
    )


def _members(stack: Stack) -> Iterable[Member]:
    return members_by_section(stack, SECTION, ("gateway", "start"), needs(stack))


KIND = Kind(
    SECTION,
    "What comes from programs that speak no Kafka: log files that are followed.",
    """
# [gateways.access]
# kind = "file"
# paths = ["/var/log/nginx/access.log"]   # also patterns: /var/log/nginx/*.log
# topic = "access"
""",
    (
        Key("kind", str, "What it is: file.", is_needed=True, choices=KINDS),
        Key("paths", list, "The files that are followed, also as patterns; rotated ones are found beside them.",
            is_needed=True),
        Key("topic", str, "Where lines go; by default a topic with the section's name.", check=check_topic_name),
        Key("from", str, "Where the first start of all begins in files that are there.", "start",
            choices=("start", "end")),
        Key("key", str, "The key of a record: none, or the path.", "none", choices=("none", "path")),
        Key("header", str, "The name of a header with the path, if one is wanted."),
        Key("max_line", int, "How many bytes of a line are kept.", LINE_BYTES, least=1, most=16 * 1024 * 1024),
        Key("compression", str, "How batches are compressed.", "none",
            choices=tuple(codec.name.lower() for codec in Codec)),
    ),
    is_named=True,
    check=_check,
    members=_members,
)  # fmt: skip
