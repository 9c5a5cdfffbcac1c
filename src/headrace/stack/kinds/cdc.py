"""`[cdc.NAME]`: a database whose changes go into topics, with the keys of `headrace cdc`."""

from collections.abc import Iterable

from headrace.connect.capture.settings import SECTION, from_section
from headrace.section_keys import Complaint, Key, complaints
from headrace.stack.kind import Kind, Member, Section, Stack, members_by_section
from headrace.stack.kinds.forgetting import for_members
from headrace.stack.kinds.topics import needs


def _check(section: Section) -> Iterable[Complaint]:
    return complaints(
        section.values, lambda values: from_section(section.name, values), where=section.where, needed=("url",)
    )


def _members(stack: Stack) -> Iterable[Member]:
    return members_by_section(stack, SECTION, ("cdc", "start"), needs(stack), for_members(stack), may_end=True)


KIND = Kind(
    SECTION,
    "A database whose changes go into topics; further keys are those of its kind of database.",
    """
# [cdc.shop]
# url = "postgresql://headrace:${SHOP_PASSWORD}@127.0.0.1/shop"
# tables = ["public.orders", "public.customers"]
""",
    (Key("url", str, "The database: postgresql://…, mysql://…, mariadb://… or sqlite:///path.", is_needed=True),),
    is_named=True,
    is_open=True,
    check=_check,
    members=_members,
)
