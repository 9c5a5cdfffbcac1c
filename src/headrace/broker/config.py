"""How a broker is set up: what was given at its start, under Kafka's names.

What always holds: a listener that others than this machine can reach asks who they are, unless `is_insecure` allows it
to let in anybody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from headrace.broker.settings.broker import BROKER_SETTINGS, check_broker_settings
from headrace.broker.settings.listeners import LISTENER_SETTINGS, PREFIX_OF_LISTENERS
from headrace.broker.settings.setting import InvalidSetting
from headrace.security.principal import is_public


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `HOST:PORT`; an IPv6 host stands in brackets."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise InvalidSetting(f"address {text!r} is not HOST:PORT: write for example 127.0.0.1:9092")
        return cls(host.strip("[]") or "127.0.0.1", int(port))


LOOPBACK = Address("127.0.0.1", 0)


PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the broker listens, how it is spoken to there, and where its clients are told to come back to."""

    address: Address
    name: str = PLAINTEXT
    protocol: str = PLAINTEXT
    advertised: Address | None = None  # else where a client came

    def __str__(self) -> str:
        return str(self.address) if self.name == PLAINTEXT else f"{self.name}://{self.address}"

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def is_public(self) -> bool:
        return is_public(self.address.host)


def parse_listeners(
    listeners: Sequence[str], advertised: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> tuple[Listener, ...]:
    """From `HOST:PORT` (plaintext) or `NAME://HOST:PORT`, where the name is a protocol or is mapped to one.

    An advertised address with a name is that listener's; one without is for all that have none of their own.
    """
    protocols = _protocol_map((settings or {}).get("listener.security.protocol.map", ""))
    named: dict[str, Address] = {}
    shared = None
    for text in advertised:
        name, scheme, address = text.rpartition("://")
        if scheme:
            named[name.upper()] = Address.parse(address)
        else:
            shared = Address.parse(text)
    parsed: list[Listener] = []
    for text in listeners:
        name, scheme, address = text.rpartition("://")
        name = name.upper() if scheme else PLAINTEXT
        protocol = protocols.get(name)
        if protocol is None:
            raise InvalidSetting(
                f"listener {text!r} has an unknown protocol: begin with one of "
                f"{', '.join(f'{known}://' for known in PROTOCOLS)} or name one in listener.security.protocol.map"
            )
        if scheme and any(other.name == name for other in parsed):
            raise InvalidSetting(f"two listeners are named {name}: give one of them another name, and map it")
        parsed.append(Listener(Address.parse(address), name, protocol, named.pop(name, shared)))
    if named:
        raise InvalidSetting(f"{next(iter(named))} is advertised, but there is no such listener: name one of them")
    return tuple(parsed)


def _protocol_map(text: str) -> dict[str, str]:
    protocols = {name: name for name in PROTOCOLS}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, _, protocol = pair.partition(":")
        if protocol.upper() not in PROTOCOLS:
            raise InvalidSetting(
                f"listener.security.protocol.map: {pair!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.upper()
    return protocols


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Where a broker keeps its data, where it listens, and the settings that differ from Kafka's defaults."""

    data_dir: str
    listeners: tuple[Listener, ...] = (Listener(LOOPBACK),)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)  # a key's password may be among them
    is_insecure: bool = False

    def __post_init__(self) -> None:
        check_broker_settings(self.settings)
        for listener in self.listeners:
            if listener.is_public and not self.is_insecure and not self.authenticates(listener):
                raise InvalidSetting(
                    f"listener {listener} lets in anybody who can reach this machine: make it a SASL_SSL:// listener "
                    "(or SSL:// with ssl.client.auth=required), or allow it with --insecure"
                )

    def authenticates(self, listener: Listener) -> bool:
        """Whether a client has to show who it is."""
        return listener.has_sasl or (listener.has_tls and self.client_auth(listener) == "required")

    def client_auth(self, listener: Listener) -> str:
        """Whether clients show a certificate; where they log in besides, only if the listener itself says so."""
        name = "ssl.client.auth"
        if listener.has_sasl:
            return self.settings.get(f"{PREFIX_OF_LISTENERS}{listener.name.lower()}.{name}", "none")
        return self.text_for(listener, name)

    def text_for(self, listener: Listener, name: str) -> str:
        """A setting that a listener may have for itself, as `listener.name.NAME.SETTING`."""
        assert name in LISTENER_SETTINGS
        return self.settings.get(f"{PREFIX_OF_LISTENERS}{listener.name.lower()}.{name}") or self.text(name)

    def text(self, name: str) -> str:
        return self.settings.get(name, BROKER_SETTINGS[name].default)

    def number(self, name: str) -> int:
        return int(self.text(name))

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"


def read_properties(text: str, path: str) -> dict[str, str]:
    """The settings in a file of `name=value` lines, as Kafka's `server.properties` is one."""
    values = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            name, equals, value = stripped.partition("=")
            if not equals:
                raise InvalidSetting(f"{path}:{number}: {stripped!r} is not name=value")
            values[name.strip()] = value.strip()
    try:
        check_broker_settings(values)
    except InvalidSetting as error:
        raise InvalidSetting(f"{path}: {error}") from None
    return values
