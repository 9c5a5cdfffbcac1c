"""Ports that a stack is going to listen at, looked at before anything starts."""

import errno
import socket
from collections.abc import Collection, Iterator
from typing import Final

from headrace.stack.kind import Stack
from headrace.stack.kinds.broker import is_embedded
from headrace.stack.registry import KINDS

_LOOPBACK: Final = "127.0.0.1"


def taken_ports(stack: Stack, kinds: Collection[str]) -> list[str]:
    """A sentence for each port of these kinds at which somebody else listens already."""
    return [
        f"{host}:{number} is taken by another program: choose another {key} for [{where}], or end that program"
        for where, key, host, number in _wanted(stack, kinds)
        if _is_taken(host, number)
    ]


def _wanted(stack: Stack, kinds: Collection[str]) -> Iterator[tuple[str, str, str, int]]:
    for kind in KINDS:
        if kind.name not in kinds or (kind.name == "broker" and not is_embedded(stack)):
            continue
        for name, values in stack.several(kind.name).items():
            where = f"{kind.name}.{name}" if name else kind.name
            for key in kind.keys:
                if key.is_port and values.get(key.name):
                    yield where, key.name, values.get("host", _LOOPBACK), values[key.name]


def _is_taken(host: str, number: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, number))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
