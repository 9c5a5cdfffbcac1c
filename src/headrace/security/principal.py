"""Who a client is, once it has logged in: a kind and a name, written `User:alice` as in Kafka; and where it has to."""

import ipaddress
from typing import NamedTuple, Self

from headrace.errors import HeadraceError


class InvalidPrincipal(HeadraceError):
    """A text that names nobody."""


class Principal(NamedTuple):
    name: str
    kind: str = "User"

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `KIND:NAME`; the name may hold colons of its own."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise InvalidPrincipal(f"principal {text!r} is not KIND:NAME: write for example User:alice")
        return cls(name, kind)


ANONYMOUS = Principal("ANONYMOUS")  # whoever did not log in, or came where nobody has to
EVERYONE = Principal("*")  # in an ACL: holds for every user


def is_public(host: str) -> bool:
    """Whether others than this machine can reach what listens there; a host's name but `localhost` is taken for one."""
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host != "localhost"
