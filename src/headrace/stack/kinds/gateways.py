"""`[gateways.NAME]`: what stands between programs that speak no Kafka and topics, with the keys of its kind."""

from collections.abc import Iterable

from headrace.gateways.section import KIND_KEY, SECTION, check_section, keys_of
from headrace.section_keys import Complaint, complaints
from headrace.stack.kind import Kind, Member, Section, Stack, members_by_section
from headrace.stack.kinds.topics import needs


def _check(section: Section) -> Iterable[Complaint]:
    needed = {"kind", *(key.name for key in keys_of(section.values) if key.is_needed)}
    if needed <= section.values.keys():
        yield from complaints(
            section.values, lambda values: check_section(section.name, values), where=section.where, needed=needed
        )


def _members(stack: Stack) -> Iterable[Member]:
    return members_by_section(stack, SECTION, ("gateway", "start"), needs(stack))


KIND = Kind(
    SECTION,
    "What stands between programs that speak no Kafka and topics; further keys are those of its kind.",
    """
# [gateways.access]
# kind = "file"
# paths = ["/var/log/nginx/access.log"]   # also patterns: /var/log/nginx/*.log
# topic = "access"
""",
    (KIND_KEY,),
    is_named=True,
    further_keys=keys_of,
    check=_check,
    members=_members,
)
