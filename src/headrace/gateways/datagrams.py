"""Datagrams with their senders, from UDP and Unix sockets, in the batches in which they come.

What always holds: a datagram is whole or counted as cut; what the kernel dropped because nobody took it in time is
counted too, by the kernel itself; and a receiver that has to wait for room reads nothing meanwhile.
"""

import contextlib
import os
import select
import socket
import struct
from typing import Final

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Progress
from headrace.gateways.streams import unix_socket

BATCH: Final = 256
_BATCH_BYTES: Final = 1024 * 1024
_LARGEST: Final = 64 * 1024
_MEMINFO, _DROPS = 55, 8
_RCVBUFFORCE: Final = 33
_TURN_MS: Final = 200
BUFFER_BYTES: Final = 8 * 1024 * 1024


class Datagrams:
    """One socket; takes its port or its path when it is made. For one thread."""

    def __init__(self, bound: socket.socket, progress: Progress, path: str = "") -> None:
        self._bound = bound
        self._path = path
        self._progress = progress
        self._dropped = 0
        self._address = bound.getsockname()  # which is asked for when the socket is closed as well
        try:
            bound.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, BUFFER_BYTES)
        except OSError:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        bound.setblocking(False)
        self._poll = select.poll()
        self._poll.register(bound, select.POLLIN)

    @classmethod
    def udp(cls, host: str, port: int, progress: Progress) -> "Datagrams":
        """Raises one sentence if the port cannot be had; 0 takes a free one."""
        bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            bound.bind((host, port))
        except OSError as error:
            bound.close()
            raise GatewayError(f"cannot listen on udp {host}:{port} ({error.strerror}): choose another port") from error
        return cls(bound, progress)

    @classmethod
    def unix(cls, path: str, progress: Progress) -> "Datagrams":
        """Raises one sentence if the path cannot be had."""
        return cls(unix_socket(path, socket.SOCK_DGRAM), progress, path)

    @property
    def source(self) -> str:
        """Where it listens, for people."""
        if self._path:
            return f"unix:{self._path}"
        host, port = self._address[:2]
        return f"udp://[{host}]:{port}" if ":" in host else f"udp://{host}:{port}"

    @property
    def port(self) -> int | None:
        return None if self._path else int(self._address[1])

    def receive(self, *, wait: bool = True) -> list[tuple[bytes, str]]:
        """What came meanwhile, up to a batch; waits a moment for the first. Each with its sender."""
        found: list[tuple[bytes, str]] = []
        if wait and not self._poll.poll(_TURN_MS):
            return found
        size = 0
        with contextlib.suppress(BlockingIOError):
            while len(found) < BATCH and size < _BATCH_BYTES:
                data, _, flags, sender = self._bound.recvmsg(_LARGEST)
                if flags & socket.MSG_TRUNC:
                    self._progress.more["cut"] = self._progress.more.get("cut", 0) + 1
                found.append((data, sender[0] if isinstance(sender, tuple) else "unix"))
                size += len(data)
        self._count_drops()
        return found

    def _count_drops(self) -> None:
        said = self._bound.getsockopt(socket.SOL_SOCKET, _MEMINFO, 36)
        dropped = int(struct.unpack_from("I", said, 4 * _DROPS)[0])
        if dropped != self._dropped:
            more = self._progress.more
            more["kernel_drops"] = more.get("kernel_drops", 0) + (dropped - self._dropped) % 2**32
            self._dropped = dropped

    def close(self) -> None:
        self._bound.close()
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


__all__ = ["BATCH", "Datagrams"]
