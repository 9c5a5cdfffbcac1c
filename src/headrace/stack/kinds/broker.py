"""`[broker]`: our own broker, or with `bootstrap` any Kafka that runs already."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.broker.config import Address as Listener
from headrace.broker.settings import BROKER_SETTINGS, check_settings
from headrace.client.address import parse_bootstrap
from headrace.errors import HeadraceError
from headrace.stack.keys import Complaint, Key, port
from headrace.stack.kind import COMMAND, Command, Kind, Member, Section, Stack
from headrace.stack.lines import Said, json_object, read_line

NAME: Final = "broker"
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to know it, not to listen there

KEYS: Final = (
    Key(
        "bootstrap",
        str,
        "The addresses of a Kafka to use instead of a broker of our own; then the other keys have no effect.",
        check=parse_bootstrap,
    ),
    port("port", "Where to listen; 0 takes a free one.", 9092),
    Key("host", str, "Where to listen; another than loopback lets other machines in.", "127.0.0.1"),
    Key("data_dir", str, "Where the logs are kept.", ".headrace/broker"),
    Key(
        "durability",
        str,
        "When acks=all is answered: after fsync, or after the write.",
        "fsync",
        choices=("fsync", "os"),
    ),
    Key("advertise", str, "Where clients are told to come back to, if not where they came.", check=Listener.parse),
    Key("settings", dict, "Settings of the broker under Kafka's names."),
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


def is_embedded(stack: Stack) -> bool:
    """Whether the broker is ours to run."""
    return not bootstrap_of(stack)


def bootstrap_of(stack: Stack) -> str:
    """The Kafka that is there already; empty if there is none."""
    return str((stack.one(NAME) or {}).get("bootstrap", ""))


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
# settings = { "num.partitions" = 4 }
""",
    KEYS,
    check=_check,
    members=_members,
)
