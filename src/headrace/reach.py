"""Which addresses a request may go to that somebody else chose the URL of. Pure.

What is asked is always about an address, as a connection is made to it, and never about a name: a name says today that
it is here and tomorrow that it is there.

What always holds: only addresses of the public Internet are allowed, unless a network is named that has more. An IPv4
address inside an IPv6 one (mapped, translated, 6to4) counts as what it is inside, and what cannot be read is refused.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from headrace.errors import HeadraceError

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # all that is given out of IPv6
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_NEVER_PUBLIC: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        # Said here too, for what the library takes for global is another list in each version of Python.
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "2001::/23", "2001:db8::/32", "3fff::/20",
    )
)  # fmt: skip
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]*|\d+", re.ASCII)


class InvalidNetwork(HeadraceError):
    """A text that names no network."""


class InvalidHost(HeadraceError):
    """A host that different programs would read as different addresses."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where requests may go: to the public Internet, and to these networks besides."""

    networks: tuple[Network, ...] = ()
    is_everywhere: bool = False

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """From networks such as `10.1.0.0/16`, or a single address; `any` allows them all."""
        networks: list[Network] = []
        for text in texts:
            if text == "any":
                return cls(is_everywhere=True)
            try:
                networks.append(ipaddress.ip_network(text.strip()))
            except ValueError:
                raise InvalidNetwork(
                    f"{text[:80]!r} is not a network: write for example 10.1.0.0/16, 127.0.0.1 or any"
                ) from None
        return cls(tuple(networks))

    def and_host(self, host: str) -> "Reach":
        """And to this host, if it is an address in figures or `localhost`, because who wrote it can only mean that."""
        if host.lower().rstrip(".") == "localhost":
            return Reach((*self.networks, *_LOOPBACK), self.is_everywhere)
        address = _read(host.strip("[]"))
        return self if address is None else Reach((*self.networks, ipaddress.ip_network(address)), self.is_everywhere)

    def allows(self, text: str) -> bool:
        """Whether a connection may be made to this address."""
        if self.is_everywhere:
            return True
        address = _read(text)
        if address is None:
            return False
        inside = _innermost(address)
        named = (network for network in self.networks if network.version == inside.version)
        return is_public(inside) or any(inside in network for network in named)


_LOOPBACK: Final[tuple[Network, ...]] = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))
EVERYWHERE: Final = Reach(is_everywhere=True)
PUBLIC: Final = Reach()


def is_public(address: Address) -> bool:
    """Whether it is an address of one host in the public Internet."""
    inside = _innermost(address)
    if inside != address:
        return is_public(inside)
    if any(address in network for network in _NEVER_PUBLIC if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    return address.is_global and not address.is_multicast


def check_host(host: str) -> None:
    """Refuse a host that looks like an address and is written otherwise than as one: `0x7f.1`, `2130706433`.

    What the resolver makes of such figures differs; whatever it is, `allows` is asked about it before a connection is
    made. This sentence only comes earlier.
    """
    name = host.strip("[]").rstrip(".")
    if not name or any(each.isspace() or not each.isprintable() or each in "\\/?#@%<>^|`{}\"'" for each in name):
        raise InvalidHost("names no host that can be read: write http://HOST:PORT/…")
    last = name.rpartition(".")[2]
    if ":" not in name and _NUMBER.fullmatch(last) and _read(name) is None:
        raise InvalidHost("has an address in a form that can be misread: write it as four decimal numbers")


def _read(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _innermost(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one; itself if there is none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.scope_id is not None:  # link-local by its nature: an interface of this machine
        return ipaddress.IPv6Address("fe80::")
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address
