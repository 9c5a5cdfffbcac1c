"""`[search_server]`: stored queries over HTTP, with the keys of `headrace search serve`."""

from collections.abc import Iterable
from typing import Final

from headrace import extras
from headrace.model import check_topic_name
from headrace.searches.settings import QUERIES
from headrace.section_keys import Complaint, Key, port
from headrace.serving.access_keys import ACCESS_KEYS, access_arguments, check_access
from headrace.stack.kind import COMMAND, Command, Kind, Member, Section, Stack
from headrace.stack.kinds.broker import with_audit
from headrace.stack.kinds.topics import needs
from headrace.stack.lines import read_server

NAME: Final = "search_server"
DEFAULT_PORT: Final = 8400


def _check(section: Section) -> Iterable[Complaint]:
    if missing := extras.look_for("starlette", f"[{section.where}]"):
        yield (), f"{missing}, or remove the section"
    yield from check_access(section.values, section.where)


def _members(stack: Stack) -> Iterable[Member]:
    values = stack.one(NAME)
    if values is None:
        return

    def serve(bootstrap: str) -> Command:
        arguments = ["search", "serve", "--json", "--bootstrap", bootstrap, "--queries", values["queries"]]
        arguments += ["--hits", values["hits"]] if values.get("hits") else []
        arguments += ["--allow-writes"] if values["allow_writes"] else []
        access = access_arguments(with_audit(stack, NAME, values))
        return Command((*COMMAND, *arguments, "--port", str(values["port"]), *access))

    yield Member(NAME, NAME, serve, needs(stack), read=read_server)


KIND = Kind(
    NAME,
    "Stored queries over HTTP: documents in hand, queries changed, hits as they come.",
    f"""
# [search_server]
# hits = "listings.hits"
# port = {DEFAULT_PORT}
""",
    (
        Key("queries", str, "The compacted topic of stored queries.", QUERIES, check=check_topic_name),
        Key(
            "hits", str, "The topic of hits that browsers may listen to; without it nobody can.", check=check_topic_name
        ),
        Key("allow_writes", bool, "Whether admins may add, change, pause and remove queries.", default=False),
        port("port", "Where they are served; 0 takes a free one.", DEFAULT_PORT),
        *ACCESS_KEYS,
    ),
    check=_check,
    members=_members,
)
