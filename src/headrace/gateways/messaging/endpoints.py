"""Where an end listens or connects, as users write it: what is wrong with that, and what would be unsafe. Pure.

    tcp://127.0.0.1:5555    ipc:///run/app/orders.ipc    tls+tcp://host:5555 (nng)

Whoever can reach a port can read and write there: another host than loopback may be listened at only with keys that say
who may, or if the user says that it is meant so.
"""

import ipaddress
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from headrace.gateways.errors import GatewayError

LONGEST_PATH: Final = 107  # of a Unix socket, in bytes
_TCP: Final = re.compile(r"(?:\[([^\]]+)\]|([^:/\[\]]+)):(\d{1,5})")


class InvalidEndpoint(GatewayError):
    """A text that names no place to listen at or to connect to, or one that is not safe."""


class Endpoint(NamedTuple):
    scheme: str
    host: str  # "" for a path
    port: int
    path: str

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_endpoint(text: str, schemes: Collection[str]) -> Endpoint:
    """An endpoint; raises the first thing wrong with it."""
    scheme, mark, rest = text.partition("://")
    if not mark or scheme not in schemes:
        raise InvalidEndpoint(
            f"{text!r} is no endpoint of {', '.join(schemes)}: write for example tcp://127.0.0.1:5555 or "
            "ipc:///run/app/orders.ipc"
        )
    if scheme == "ipc":
        if not rest or "\0" in rest or len(rest.encode(errors="surrogateescape")) > LONGEST_PATH:
            raise InvalidEndpoint(
                f"{text!r} has no path, or one of more than {LONGEST_PATH} bytes, which is all that a Unix socket may "
                "have: choose a shorter one"
            )
        return Endpoint(scheme, "", 0, rest)
    match = _TCP.fullmatch(rest)
    if match is None or int(match[3]) > 65535:
        raise InvalidEndpoint(f"{text!r} is not {scheme}://HOST:PORT: write for example {scheme}://127.0.0.1:5555")
    return Endpoint(scheme, match[1] or match[2], int(match[3]), "")


def check_listening(
    text: str, schemes: Collection[str], *, is_protected: bool, is_insecure: bool, how: str
) -> Endpoint:
    """An endpoint to listen at; `how` says what would protect it."""
    found = parse_endpoint(text, schemes)
    if found.host in ("*", "") and not found.path:
        raise InvalidEndpoint(
            f"{text!r} does not say where to listen: write an address, 127.0.0.1 for this machine alone"
        )
    if not (found.is_local or is_protected or is_insecure):
        raise InvalidEndpoint(
            f"{text!r} can be reached from other machines, and anybody there could read and write: {how}, or say "
            "insecure=True if that is meant"
        )
    return found
