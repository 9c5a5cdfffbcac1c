"""`[dashboard]`: pages that show the stack live, in a browser."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace import extras
from headrace.connect.sections import escaped
from headrace.dashboard.settings import DEFAULT_PORT
from headrace.eventsourcing.flow import SECTION as EVENTS
from headrace.section_keys import Complaint, Key, port
from headrace.serving.access_keys import ACCESS_KEYS, access_arguments, check_access
from headrace.serving.sessions import fresh_key
from headrace.stack.kind import COMMAND, CONFIG, Command, Kind, Member, Section, Stack
from headrace.stack.kinds.broker import NAME as BROKER
from headrace.stack.kinds.broker import first_needs, with_audit
from headrace.stack.lines import read_server

NAME: Final = "dashboard"


def _check(section: Section) -> Iterable[Complaint]:
    if missing := extras.look_for("starlette", f"[{section.where}]"):
        yield (), f"{missing}, or remove the section"
    yield from check_access(section.values, section.where)


def _members(stack: Stack) -> Iterable[Member]:
    values = stack.one(NAME)
    if values is None:
        return
    values = with_audit(stack, NAME, values)
    # Made here once, so that a dashboard which starts again still lets in who has it open.
    asks = values.get("tokens") or (stack.one(BROKER) or {}).get("security") == "on"
    token = values.get("token") or (fresh_key() if values["allow_writes"] and not asks else "")
    stores = {name: escaped(section) for name, section in stack.several(EVENTS).items()}
    yield Member(
        NAME, NAME, lambda bootstrap: _command(values, token, stores, bootstrap), first_needs(stack), read=read_server
    )


def _command(values: Mapping[str, Any], token: str, stores: Mapping[str, Any], bootstrap: str) -> Command:
    arguments = ["dashboard", "start", "--json", "--bootstrap", bootstrap]
    arguments += ["--port", str(values["port"]), "--every", str(values["every_s"]), *access_arguments(values)]
    arguments += ["--allow-writes"] if values["allow_writes"] else []
    arguments += ["--registry", values["registry"]] if values.get("registry") else []
    environment = {"HEADRACE_DASHBOARD_TOKEN": token} if token else {}
    if not stores:
        return Command((*COMMAND, *arguments), environment=environment)
    return Command((*COMMAND, *arguments, "--config", CONFIG), {EVENTS: stores}, environment)


KIND = Kind(
    NAME,
    "Pages that show the stack live, in a browser.",
    f"""
[dashboard]
port = {DEFAULT_PORT}
# allow_writes = true             # produce records and reset groups from the browser; a token is made for it
""",
    (
        port("port", "Where to listen; 0 takes a free one.", DEFAULT_PORT),
        *ACCESS_KEYS,
        Key(
            "allow_writes",
            bool,
            "Let admins produce records and reset groups; a token is made if nobody has to log in otherwise.",
            False,
        ),
        Key("token", str, "Let in who has this, 16 characters or more: best as ${VARIABLE}.", is_secret=True),
        Key("registry", str, "The URL of a schema registry, to show the schemas of Avro topics."),
        Key("every_s", float, "How often to look at the cluster, in seconds.", 2.0, least=0.2, most=60),
    ),
    check=_check,
    members=_members,
)
