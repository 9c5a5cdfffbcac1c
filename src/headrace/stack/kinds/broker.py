"""`[broker]`: our own broker, or with `bootstrap` any Kafka that runs already."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.broker.config import Address as Listener
from headrace.broker.settings import BROKER_SETTINGS, check_settings
from headrace.client.address import parse_bootstrap
from headrace.client.security import settings_from
from headrace.client.surroundings import BOOTSTRAP, VARIABLE
from headrace.errors import HeadraceError
from headrace.stack.keys import Complaint, Key, find_blamed_key, port
from headrace.stack.kind import COMMAND, Command, Kind, Member, Section, Stack
from headrace.stack.lines import Said, json_object, read_line

NAME: Final = "broker"
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to know it, not to listen there

KEYS: Final = (
    Key(
        "bootstrap",
        str,
        "The addresses of a Kafka to use instead of a broker of our own; then only connection goes with it.",
        check=parse_bootstrap,
    ),
    port("port", "Where to listen; 0 takes a free one.", 9092),
    Key("host", str, "Where to listen; another than loopback lets other machines in.", "127.0.0.1"),
    Key("insecure", bool, "Let anybody in who can reach another host than loopback.", False),
    Key("data_dir", str, "Where the logs are kept.", ".headrace/broker"),
    Key(
        "durability",
        str,
        "When acks=all is answered: after fsync, or after the write.",
        "fsync",
        choices=("fsync", "os"),
    ),
    Key(
        "advertise", str, "The address that clients are given, if not the one they connected to.", check=Listener.parse
    ),
    Key("settings", dict, "Settings of the broker under Kafka's names."),
    Key(
        "connection",
        dict,
        "With bootstrap: how that Kafka is reached, TLS and SASL, under the names of Kafka's clients.",
        is_secret=True,
    ),
)


def as_text(value: Any) -> str:
    """A value of TOML as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(section: Section) -> Iterable[Complaint]:
    for name, value in section.values.get("settings", {}).items():
        try:
            check_settings(BROKER_SETTINGS, {name: as_text(value)})
        except HeadraceError as error:
            yield ("settings", name), f"[{section.where}] settings: {error}"
    connection = section.values.get("connection", {})
    if connection and not section.values.get("bootstrap"):
        yield (
            ("connection",),
            f"[{section.where}] connection is for a Kafka that runs already: name it with bootstrap, or leave it out",
        )
        return
    nested = [name for name, value in connection.items() if isinstance(value, (dict, list))]
    if nested:
        yield (
            ("connection", nested[0]),
            f"[{section.where}] connection: {nested[0]} must be in quotes, as {nested[0]!r}",
        )
        return
    try:
        settings_from(_texts(connection))
    except HeadraceError as error:
        key = find_blamed_key(str(error), connection)
        yield ("connection", *filter(None, [key])), f"[{section.where}] connection: {error}"


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: as_text(value) for name, value in values.items()}


def is_embedded(stack: Stack) -> bool:
    """Whether the broker is ours to run."""
    return not bootstrap_of(stack)


def bootstrap_of(stack: Stack) -> str:
    """The Kafka that is there already; empty if there is none."""
    return str((stack.one(NAME) or {}).get("bootstrap", ""))


def connection_environment(stack: Stack) -> dict[str, str]:
    """What every process of the stack is told about reaching its Kafka, where others cannot see it."""
    connection = (stack.one(NAME) or {}).get("connection")
    if not connection:
        return {}
    return {VARIABLE: json.dumps({BOOTSTRAP: bootstrap_of(stack), **_texts(connection)})}


def first_needs(stack: Stack) -> tuple[str, ...]:
    """What has to run before anything can talk to the cluster."""
    return (NAME,) if is_embedded(stack) else ()


def _members(stack: Stack) -> Iterable[Member]:
    if not is_embedded(stack):
        return
    given: Mapping[str, Any] = {key.name: key.default for key in KEYS if key.default is not None}
    given = {**given, **(stack.one(NAME) or {})}

    def command(bootstrap: str) -> Command:
        # A free port that was taken once is kept when the broker starts again: others know it by now.
        number = parse_bootstrap(bootstrap)[0].port if bootstrap else given["port"]
        arguments = ["broker", "start", "--json", "--data-dir", given["data_dir"]]
        arguments += ["--listen", str(Listener(given["host"], number)), "--durability", given["durability"]]
        arguments += ["--advertise", given["advertise"]] if "advertise" in given else []
        arguments += ["--insecure"] if given["insecure"] else []
        for name, value in given.get("settings", {}).items():
            arguments += ["--set", f"{name}={as_text(value)}"]
        return Command((*COMMAND, *arguments))

    yield Member(NAME, KIND.name, command, is_vital=True, read=read)


def read(text: str) -> Said:
    """The broker's one line of JSON says where it listens."""
    found = json_object(text)
    if found is None or "listeners" not in found:
        return read_line(text)
    listener = Listener.parse(found["listeners"][0])
    reached = Listener(_EVERYWHERE.get(listener.host, listener.host), listener.port)
    return Said(
        f"ready on {', '.join(found['listeners'])} (data in {found['data_dir']})",
        facts={"bootstrap": str(reached)},
        is_ready=True,
    )


KIND = Kind(
    NAME,
    "Our own broker, or with bootstrap any Kafka that runs already.",
    """
[broker]
port = 9092
data_dir = ".headrace/broker"
# bootstrap = "kafka-1:9092"      # a Kafka that runs already, instead of a broker of our own
# connection = { "security.protocol" = "SSL", "ssl.ca.location" = "ca.pem" }   # and how it is reached
# settings = { "num.partitions" = 4 }
""",
    KEYS,
    check=_check,
    members=_members,
)
