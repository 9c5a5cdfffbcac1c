"""`[cdc.NAME]`: a database whose changes go into topics, with the keys of `headrace cdc`."""

from collections.abc import Iterable

from headrace.connect.capture.settings import SECTION, from_section
from headrace.connect.references import escaped
from headrace.stack.blame import complaints
from headrace.stack.keys import Complaint, Key
from headrace.stack.kind import COMMAND, CONFIG, Command, Kind, Member, Section, Stack
from headrace.stack.kinds.topics import needs
from headrace.stack.lines import read_condition


def _check(section: Section) -> Iterable[Complaint]:
    return complaints(
        section.values, lambda values: from_section(section.name, values), where=section.where, needed=("url",)
    )


def _members(stack: Stack) -> Iterable[Member]:
    for name, values in stack.several(SECTION).items():

        def command(bootstrap: str, name: str = name, values: object = values) -> Command:
            arguments = (*COMMAND, "cdc", "start", name, "--config", CONFIG, "--bootstrap", bootstrap, "--json")
            return Command(arguments, {SECTION: {name: escaped(values)}})

        yield Member(f"{SECTION}.{name}", SECTION, command, needs(stack), may_end=True, read=read_condition)


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
