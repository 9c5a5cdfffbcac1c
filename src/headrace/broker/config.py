"""How a broker is set up: what was given at its start, under Kafka's names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from headrace.broker.settings import BROKER_SETTINGS, InvalidSetting, check_settings


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


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Where a broker keeps its data, where it listens, and the settings that differ from Kafka's defaults."""

    data_dir: str
    listeners: tuple[Address, ...] = (LOOPBACK,)
    advertised: Address | None = None  # where clients are told to come back to; else where they came
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(BROKER_SETTINGS, self.settings)

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
        check_settings(BROKER_SETTINGS, values)
    except InvalidSetting as error:
        raise InvalidSetting(f"{path}: {error}") from None
    return values
