"""`[views]`: a file of materialized views, kept by a pipeline and served over HTTP."""

from collections.abc import Iterable
from typing import Final

from headrace import extras
from headrace.errors import nearest
from headrace.section_keys import Complaint, Key, port
from headrace.serving.access_keys import ACCESS_KEYS, access_arguments, check_access
from headrace.stack.kind import COMMAND, Command, Kind, Member, Names, Section, Stack
from headrace.stack.kinds.broker import with_audit
from headrace.stack.kinds.pipelines import NAME as PIPELINES
from headrace.stack.kinds.pipelines import check_file, explore, read, run_arguments, spark_environment, topics_read
from headrace.stack.kinds.topics import needs
from headrace.stack.lines import read_server

NAME: Final = "views"
KEEPER, SERVER = f"{NAME}.keep", f"{NAME}.serve"
DEFAULT_PORT: Final = 8300


def _check(section: Section) -> Iterable[Complaint]:
    if missing := extras.look_for("starlette", f"[{section.where}]"):
        yield (), f"{missing}, or remove the section"
    yield from check_file(section)
    yield from check_access(section.values, section.where)


def _members(stack: Stack) -> Iterable[Member]:
    values = stack.one(NAME)
    if values is None:
        return

    def keep(bootstrap: str) -> Command:
        return Command(
            (*COMMAND, *run_arguments(stack, [values["file"]], bootstrap)), environment=spark_environment(stack)
        )

    def serve(bootstrap: str) -> Command:
        arguments = ["view", "serve", values["file"], "--json", "--bootstrap", bootstrap]
        access = access_arguments(with_audit(stack, SERVER, values))
        return Command((*COMMAND, *arguments, "--port", str(values["port"]), *access))

    if "kept_by" not in values:
        yield Member(KEEPER, NAME, keep, needs(stack), topics_read(stack.folder, values), may_end=True, read=read)
    # The server answers for a store that is not filled yet, so it does not wait for the keeper.
    yield Member(SERVER, NAME, serve, needs(stack), read=read_server)


def _relate(section: Section, names: Names) -> Iterable[Complaint]:
    host, there = section.values.get("kept_by"), names.get(PIPELINES, ())
    if host is not None and host not in there:
        hint = nearest(host, there, "there are") if there else "leave kept_by out, and views have their own session"
        yield ("kept_by",), f"[{section.where}] kept_by: there is no section [{PIPELINES}.{host}]: {hint}"


KIND = Kind(
    NAME,
    "A file of materialized views, kept up to date and served over HTTP.",
    f"""
# [views]
# file = "views.py"
# port = {DEFAULT_PORT}
# kept_by = "revenue"             # in the Spark session of that pipeline, which saves one
""",
    (
        Key("file", str, "The Python file that declares the views.", is_needed=True),
        Key(
            "kept_by",
            str,
            "The name of a pipeline whose Spark session keeps the views too; by default they have one of their own.",
        ),
        port("port", "Where they are served; 0 takes a free one.", DEFAULT_PORT),
        *ACCESS_KEYS,
    ),
    check=_check,
    members=_members,
    explore=explore,
    relate=_relate,
)
