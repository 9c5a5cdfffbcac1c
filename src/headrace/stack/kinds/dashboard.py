"""`[dashboard]`: pages that show the stack live, in a browser."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from headrace import extras
from headrace.dashboard.errors import NotSafe
from headrace.dashboard.settings import DEFAULT_PORT, Settings
from headrace.stack.keys import Complaint, Key, port
from headrace.stack.kind import COMMAND, Command, Kind, Member, Section, Stack
from headrace.stack.kinds.broker import first_needs
from headrace.stack.lines import read_server

NAME: Final = "dashboard"
_TOKEN_BYTES: Final = 24
_MADE_LATER: Final = "a token is made when it starts"


def _check(section: Section) -> Iterable[Complaint]:
    if missing := extras.look_for("starlette", f"[{section.where}]"):
        yield (), f"{missing}, or remove the section"
    values = section.values
    token = values.get("token") or (_MADE_LATER if values["allow_writes"] else None)
    try:
        Settings((), cast(Any, None), values["host"], allow_writes=values["allow_writes"], token=token)
    except NotSafe as error:
        yield ("token",) if "token" in values else ("host",), f"[{section.where}] {error}"


def _members(stack: Stack) -> Iterable[Member]:
    values = stack.one(NAME)
    if values is None:
        return
    # Made here once, so that a dashboard which starts again still lets in who has it open.
    token = values.get("token") or (secrets.token_urlsafe(_TOKEN_BYTES) if values["allow_writes"] else "")
    yield Member(NAME, NAME, lambda bootstrap: _command(values, token, bootstrap), first_needs(stack), read=read_server)


def _command(values: Mapping[str, Any], token: str, bootstrap: str) -> Command:
    arguments = ["dashboard", "start", "--json", "--bootstrap", bootstrap]
    arguments += ["--port", str(values["port"]), "--host", values["host"], "--every", str(values["every_s"])]
    arguments += ["--allow-writes"] if values["allow_writes"] else []
    arguments += ["--registry", values["registry"]] if values.get("registry") else []
    for name in values.get("host_names", ()):
        arguments += ["--host-name", name]
    return Command((*COMMAND, *arguments), environment={"HEADRACE_DASHBOARD_TOKEN": token} if token else {})


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
        Key("host", str, "Where to listen; another than loopback needs a token.", "127.0.0.1"),
        Key("allow_writes", bool, "Let it produce records and reset groups; a token is made for it.", False),
        Key("token", str, "Let in only who has this, 16 characters or more: best as ${VARIABLE}.", is_secret=True),
        Key("host_names", list, "Further names under which it answers."),
        Key("registry", str, "The URL of a schema registry, to show the schemas of Avro topics."),
        Key("every_s", float, "How often to look at the cluster, in seconds.", 2.0, least=0.2, most=60),
    ),
    check=_check,
    members=_members,
)
