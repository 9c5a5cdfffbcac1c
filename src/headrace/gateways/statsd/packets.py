"""Datagrams in batches: one system call for hundreds, into memory that is there already.

What always holds: the wait and the copy need no lock of the interpreter; a datagram of any size is whole; and what the
kernel dropped because a socket's buffer was full is known (`SO_MEMINFO`), in all since the socket was opened.
"""

import ctypes
import errno
import os
import socket
import struct
from typing import Final

from headrace.gateways.errors import GatewayError
from headrace.gateways.streams import unix_socket

BATCH: Final = 256
_LARGEST: Final = 64 * 1024
# Not a power of two: beginnings of datagrams would all compete for the same lines of the processor's cache.
_STRIDE: Final = _LARGEST + 17 * 64
_DONTWAIT, _WAITFORONE, _TRUNC, _MEMINFO, _DROPS = 0x40, 0x10000, 0x20, 55, 8
_RCVBUFFORCE: Final = 33
_TURN_S: Final = 0.25  # after so long without a packet a receiver looks whether it is to end


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Message(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p), ("name_size", ctypes.c_uint), ("parts", ctypes.c_void_p), ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_size", ctypes.c_size_t), ("flags", ctypes.c_int),
    )  # fmt: skip


class _Slot(ctypes.Structure):
    """What the kernel calls `mmsghdr`."""

    _fields_ = (("message", _Message), ("size", ctypes.c_uint))


class Batch:
    """Room for datagrams, and those that came last."""

    SLOT: Final = ctypes.sizeof(_Slot)
    SIZE_AT: Final = _Slot.size.offset
    FLAGS_AT: Final = _Message.flags.offset
    TRUNCATED: Final = _TRUNC

    def __init__(self) -> None:
        self.data = bytearray(BATCH * _STRIDE)
        self.starts = [number * _STRIDE for number in range(BATCH)]
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.data))
        self._parts = (_Part * BATCH)(*(_Part(base + start, _LARGEST) for start in self.starts))
        self.slots = (_Slot * BATCH)()
        at = ctypes.addressof(self._parts)
        for number, slot in enumerate(self.slots):
            slot.message.parts, slot.message.count = at + number * ctypes.sizeof(_Part), 1
        self._receive = ctypes.CDLL(None, use_errno=True).recvmmsg

    def receive(self, bound: socket.socket, *, wait: bool = True) -> int:
        """Wait for a datagram and take all that are there, up to the batch; how many came, none after a while."""
        count: int = self._receive(bound.fileno(), self.slots, BATCH, _WAITFORONE if wait else _DONTWAIT, None)
        if count >= 0:
            return count
        number = ctypes.get_errno()
        if number in (errno.EAGAIN, errno.EINTR, errno.ECONNREFUSED):
            return 0
        raise OSError(number, os.strerror(number))


def open_udp(host: str, port: int, receivers: int, buffer_bytes: int) -> list[socket.socket]:
    """Sockets that share a port: each sender's packets come to one of them, in their order."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise GatewayError(
            f"host {host!r} is no address that this machine knows: write 127.0.0.1, or its own"
        ) from error
    found: list[socket.socket] = []
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as alone:  # who shares a port is not told that others have it
            alone.bind(address)
            address = alone.getsockname()
        for _ in range(receivers):
            found.append(socket.socket(family, socket.SOCK_DGRAM))
            if receivers > 1:
                found[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found[-1].bind(address)
            prepare(found[-1], buffer_bytes)
    except OSError as error:
        for one in found:
            one.close()
        raise GatewayError(f"cannot listen on udp {host}:{port} ({error.strerror}): choose another port") from error
    return found


def open_unix(path: str, mode: int | None, buffer_bytes: int) -> socket.socket:
    """A socket in the file system; one that a gateway left behind when it was killed is replaced."""
    bound = unix_socket(path, socket.SOCK_DGRAM)
    if mode is not None:
        os.chmod(path, mode)
    prepare(bound, buffer_bytes)
    return bound


def prepare(bound: socket.socket, buffer_bytes: int) -> None:
    """A buffer as large as it may be, and waits that end."""
    try:
        bound.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, buffer_bytes)
    except OSError:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    wait = struct.pack("ll", int(_TURN_S), int(_TURN_S % 1 * 1e6))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)


def buffer_of(bound: socket.socket) -> int:
    return bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def drops_of(bound: socket.socket) -> int:
    """How many datagrams the kernel dropped at this socket, modulo 2^32."""
    told = bound.getsockopt(socket.SOL_SOCKET, _MEMINFO, 36)
    return int(struct.unpack_from("I", told, 4 * _DROPS)[0])
