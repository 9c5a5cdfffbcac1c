"""Where a broker is, as users write it."""

from typing import NamedTuple, Self

from headrace.errors import HeadraceError

DEFAULT_PORT = 9092


class InvalidAddress(HeadraceError):
    """A text that names no host and port."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `HOST:PORT`, or `HOST` for Kafka's own port; an IPv6 host stands in brackets."""
        host, port = _split(text.strip())
        if not host or not port.isdecimal() or not port.isascii() or not 0 < int(port) <= 65535:
            raise InvalidAddress(f"address {text!r} is not HOST:PORT: write for example 127.0.0.1:{DEFAULT_PORT}")
        return cls(host, int(port))


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", ""
        return host, rest[1:] if rest else str(DEFAULT_PORT)
    host, colon, port = text.partition(":")
    return host, port if colon else str(DEFAULT_PORT)


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """The addresses in a comma-separated list, as in Kafka's `bootstrap.servers`."""
    addresses = tuple(Address.parse(part) for part in text.split(",") if part.strip())
    if not addresses:
        raise InvalidAddress(f"no address is given: write for example 127.0.0.1:{DEFAULT_PORT}")
    return addresses
