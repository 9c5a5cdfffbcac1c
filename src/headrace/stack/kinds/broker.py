"""`[broker]`: our own broker, or with `bootstrap` any Kafka that runs already.

With `security = "on"` the broker of a stack lets in nobody who does not log in, and asks ACLs what users may do. The
stack's own parts log in as a super user with a password that `headrace up` makes, in a folder that nobody else reads;
on loopback they need no TLS, and others come by a `SASL_SSL` listener if the broker has a certificate.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.broker.config import Address as Listener
from headrace.broker.settings.broker import check_broker_settings, is_secret
from headrace.client.address import parse_bootstrap
from headrace.client.security import settings_from
from headrace.client.surroundings import BOOTSTRAP, VARIABLE
from headrace.errors import HeadraceError
from headrace.secret_files import check_private, write_private
from headrace.section_keys import Complaint, Key, find_blamed_key, port
from headrace.security.principal import is_public
from headrace.stack.errors import InvalidStack
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
    Key(
        "security",
        str,
        "Whether clients log in and ACLs decide what they may do; the stack's own parts log in by themselves.",
        "off",
        choices=("on", "off"),
    ),
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
            check_broker_settings({name: as_text(value)})
        except HeadraceError as error:
            yield ("settings", name), f"[{section.where}] settings: {error}"
    yield from _check_access(section)
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


def _check_access(section: Section) -> Iterable[Complaint]:
    values = section.values
    is_secure = values.get("security") == "on"
    if values.get("bootstrap"):
        if is_secure:
            sentence = (
                "security is for a broker of our own: leave it out, and say how this Kafka is reached by connection"
            )
            yield ("security",), f"[{section.where}] {sentence}"
        return
    settings = values.get("settings", {})
    if is_secure and "users.file" in settings:
        sentence = (
            f"users.file is the stack's own with security on: add users with headrace user add, or as lines of "
            f"{_SECRETS / _USERS}"
        )
        yield ("settings", "users.file"), f"[{section.where}] settings: {sentence}"
    host = values.get("host", "127.0.0.1")
    if not isinstance(host, str) or not is_public(host):
        return
    if is_secure and not values.get("settings", {}).get(_KEYSTORE):
        sentence = f"{host} is reached from other machines, so logins need TLS: set {_KEYSTORE!r} in settings"
        yield ("host",), f"[{section.where}] {sentence}"
    elif not is_secure and not values.get("insecure"):
        sentence = f'{host} lets in anybody who can reach this machine: set security = "on", or insecure = true'
        yield ("host",), f"[{section.where}] {sentence}"


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: as_text(value) for name, value in values.items()}


def is_embedded(stack: Stack) -> bool:
    """Whether the broker is ours to run."""
    return not bootstrap_of(stack)


def bootstrap_of(stack: Stack) -> str:
    """The Kafka that is there already; empty if there is none."""
    return str((stack.one(NAME) or {}).get("bootstrap", ""))


def connection_environment(stack: Stack, bootstrap: str = "") -> dict[str, str]:
    """What every process of the stack is told about reaching its Kafka, where others cannot see it.

    `bootstrap` is where our own broker listens, once that is known.
    """
    section = stack.one(NAME) or {}
    connection = section.get("connection")
    if connection:
        return {VARIABLE: json.dumps({BOOTSTRAP: bootstrap_of(stack), **_texts(connection)})}
    if section.get("security") == "on" and bootstrap:
        return {VARIABLE: json.dumps({BOOTSTRAP: bootstrap, **_own_login(stack.folder)})}
    return {}


def with_audit(stack: Stack, name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section of something that answers HTTP, with where it records who did what: by default, if logins are on."""
    if (stack.one(NAME) or {}).get("security") != "on":
        return values
    return {"audit": str(stack.folder / _AUDIT / f"{name}.log"), **values}


# --- the login of the stack's own parts

_KEYSTORE: Final = "ssl.keystore.location"
_PROTOCOL_MAP: Final = "listener.security.protocol.map"
_INTERNAL: Final = "INTERNAL"
_OWN_USER: Final = "headrace"
_SECRETS: Final = Path(".headrace/security")
_AUDIT: Final = Path(".headrace/audit")
_USERS, _CLIENT, _BROKER_SECRETS = "users", "client.properties", "broker.properties"


def _own_login(folder: Path) -> dict[str, str]:
    """How a part of the stack logs in; with a password that is made if there is none."""
    users = folder / _SECRETS / _USERS
    if not users.exists():
        write_private(users, f"{_OWN_USER}={secrets.token_urlsafe(32)}\n")
    check_private(users, "the stack's file of users")
    for line in users.read_text(encoding="utf-8").splitlines():
        name, _, password = line.partition("=")
        if name.strip() == _OWN_USER and password:
            return {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": _OWN_USER,
                "sasl.password": password,
            }
    raise InvalidStack([f"{users} has no user {_OWN_USER!r}, whom the stack's parts log in as: remove the file"])


def _secure(folder: Path, given: Mapping[str, Any], settings: dict[str, str], number: int) -> list[str]:
    """The listeners of a broker that asks for logins, and what it needs to know for that."""
    login = _own_login(folder)
    write_private(folder / _SECRETS / _CLIENT, "".join(f"{name}={value}\n" for name, value in login.items()))
    settings.setdefault("authorization", "on")
    settings.setdefault("audit.file", str(folder / _AUDIT / f"{NAME}.log"))
    settings["users.file"] = str(folder / _SECRETS / _USERS)
    settings["super.users"] = ";".join(filter(None, (f"User:{_OWN_USER}", settings.get("super.users", ""))))
    if _KEYSTORE not in settings:
        return ["--listen", f"SASL_PLAINTEXT://{Listener(given['host'], number)}"]
    inside = f"{_INTERNAL}:SASL_PLAINTEXT"
    settings[_PROTOCOL_MAP] = ",".join(filter(None, (inside, settings.get(_PROTOCOL_MAP, ""))))
    internal = 0 if number == given["port"] else number  # the parts' own, a free one that is kept
    outside = str(Listener(given["host"], given["port"]))
    return ["--listen", f"{_INTERNAL}://127.0.0.1:{internal}", "--listen", f"SASL_SSL://{outside}"]


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
        settings = _texts(given.get("settings", {}))
        advertised = given.get("advertise")
        if given["security"] == "on":
            listeners = _secure(stack.folder, given, settings, number)
            advertised = advertised and (f"SASL_SSL://{advertised}" if _KEYSTORE in settings else advertised)
        else:
            listeners = ["--listen", str(Listener(given["host"], number))]
        arguments += [*listeners, "--durability", given["durability"]]
        arguments += ["--advertise", advertised] if advertised else []
        arguments += ["--insecure"] if given["insecure"] else []
        if hidden := {name: value for name, value in settings.items() if is_secret(name)}:
            file = stack.folder / _SECRETS / _BROKER_SECRETS
            write_private(file, "".join(f"{name}={value}\n" for name, value in hidden.items()))
            arguments += ["--config", str(file)]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"] if name not in hidden else []
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
# Clients log in, and ACLs decide what they may do, with security = "on".
# bootstrap = "kafka-1:9092"      # a Kafka that runs already, instead of a broker of our own
# connection = { "security.protocol" = "SSL", "ssl.ca.location" = "ca.pem" }   # and how it is reached
# settings = { "num.partitions" = 4 }
""",
    KEYS,
    check=_check,
    members=_members,
)
