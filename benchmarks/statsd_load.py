"""Packets of StatsD at a given rate, many in one system call, so that the sender is not what is measured."""

import ctypes
import socket
import time
from typing import NamedTuple

_BURST = 64
_AT_ONCE_S = 0.0005  # what is due is sent this often at the most


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Message(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p), ("name_size", ctypes.c_uint), ("parts", ctypes.c_void_p), ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_size", ctypes.c_size_t), ("flags", ctypes.c_int),
    )  # fmt: skip


class _Slot(ctypes.Structure):
    _fields_ = (("message", _Message), ("size", ctypes.c_uint))


class Sent(NamedTuple):
    packets: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.packets / self.seconds


class Sender:
    """Sends the same packets again and again."""

    def __init__(self, port: int, packets: list[bytes]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(("127.0.0.1", port))
        self._data = [ctypes.create_string_buffer(packet, len(packet)) for packet in packets]
        self._count = len(packets)
        self._parts = (_Part * self._count)(
            *(_Part(ctypes.addressof(data), len(packet)) for data, packet in zip(self._data, packets, strict=True))
        )
        self._slots = (_Slot * self._count)()
        for number, slot in enumerate(self._slots):
            slot.message.parts = ctypes.addressof(self._parts) + number * ctypes.sizeof(_Part)
            slot.message.count = 1
        self._send = ctypes.CDLL(None, use_errno=True).sendmmsg
        self._at = 0

    def send(self, count: int, rate: float) -> Sent:
        """So many, evenly, as far as the machine lets it."""
        base, size = ctypes.addressof(self._slots), ctypes.sizeof(_Slot)
        began = time.perf_counter()
        sent = 0
        while sent < count:
            due = min(int((time.perf_counter() - began) * rate) + 1, count) - sent
            if due <= 0:
                time.sleep(min(_AT_ONCE_S, 1 / rate))
                continue
            burst = min(due, _BURST, self._count - self._at)
            done = self._send(self._socket.fileno(), ctypes.c_void_p(base + self._at * size), burst, 0)
            assert done > 0, f"the packets are not taken: errno {ctypes.get_errno()}"
            sent += done
            self._at = (self._at + done) % self._count
        return Sent(sent, time.perf_counter() - began)

    def send_all(self, rate: float) -> Sent:
        """Each once, from the first."""
        self._at = 0
        return self.send(self._count, rate)

    def close(self) -> None:
        self._socket.close()
