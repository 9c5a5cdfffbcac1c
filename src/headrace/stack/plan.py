"""The members of a stack: all of them in the order of their start, or some and what they need; and their ports."""

import errno
import socket
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from headrace.errors import nearest
from headrace.section_keys import ports_of
from headrace.stack.errors import NoSuchMember
from headrace.stack.kind import Member, Stack
from headrace.stack.kinds.broker import is_embedded
from headrace.stack.machine import Post
from headrace.stack.registry import KINDS


def members_of(stack: Stack) -> list[Member]:
    return [member for kind in KINDS for member in kind.members(stack)]


def choose_members(members: Sequence[Member], names: Collection[str]) -> list[Member]:
    """Those called so, by their whole name, their own, or their kind, and all that they need."""
    if not names:
        return list(members)
    wanted = {member.name for name in names for member in _find_members(members, name)}
    by_name = {member.name: member for member in members}
    while more := {need for name in wanted for need in by_name[name].needs} - wanted:
        wanted |= more
    return [member for member in members if member.name in wanted]


def _find_members(members: Sequence[Member], name: str) -> list[Member]:
    found = [member for member in members if name in (member.name, member.kind)]
    found = found or [member for member in members if member.name.partition(".")[2] == name]
    if not found:
        raise NoSuchMember(f"there is no {name!r} in the stack: {nearest(name, [one.name for one in members])}")
    if len({member.kind for member in found}) > 1:
        both = " and ".join(member.name for member in found)
        raise NoSuchMember(f"{name!r} may mean {both}: give the whole name")
    return found


def posts_of(members: Sequence[Member]) -> tuple[Post, ...]:
    """What the machine has to know of them."""
    ranks = {kind.name: rank for rank, kind in enumerate(KINDS)}
    return tuple(
        Post(
            member.name,
            ranks[member.kind],
            member.needs,
            member.is_task,
            member.may_end,
            member.is_vital,
        )
        for member in members
    )


_LOOPBACK: Final = "127.0.0.1"


def taken_ports(stack: Stack, kinds: Collection[str]) -> list[str]:
    """A sentence for each port of these kinds at which somebody else listens already."""
    return [
        f"{host}:{number} is taken by another program: choose another {key} for [{where}], or end that program"
        for where, key, host, number, transport in _ports(stack, kinds)
        if _is_taken(host, number, transport)
    ]


def _ports(stack: Stack, kinds: Collection[str]) -> Iterator[tuple[str, str, str, int, str]]:
    for kind in KINDS:
        if kind.name not in kinds or (kind.name == "broker" and not is_embedded(stack)):
            continue
        for name, values in stack.several(kind.name).items():
            where = f"{kind.name}.{name}" if name else kind.name
            for key, number, transport in ports_of(kind.keys_of(values), values):
                yield where, key.name, values.get("host", _LOOPBACK), number, transport


def _is_taken(host: str, number: int, transport: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM) as attempt:
        if transport == "tcp":  # of UDP it would have two programs share the port
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, number))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
