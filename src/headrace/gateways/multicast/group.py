"""A group's address, and the sockets on it.

Data goes to the group's port. NAKs go to the port above it, so that publishers need not read each other's data and
their own. TTL 1 keeps datagrams on the network that an interface is on; loopback keeps them on the machine.
"""

import contextlib
import ipaddress
import socket
import struct
from dataclasses import dataclass
from typing import Final

from headrace.gateways.errors import GatewayError
from headrace.gateways.multicast.wire import Seal

LOOPBACK: Final = "127.0.0.1"
_MULTICAST_ALL: Final = 49  # IP_MULTICAST_ALL of Linux: groups that other sockets have joined are not ours
_RCVBUFFORCE: Final = 33
_BUFFER_BYTES: Final = 8 * 1024 * 1024
_LEAST_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Group:
    """Where publishers and subscribers meet."""

    address: str
    port: int
    interface: str = LOOPBACK  # the name of one, or an IPv4 address that it has
    ttl: int = 1

    def __post_init__(self) -> None:
        try:
            is_group = ipaddress.IPv4Address(self.address).is_multicast
        except ValueError:
            is_group = False
        if not is_group:
            raise GatewayError(
                f"{self.address!r} is not an IPv4 multicast group: choose one from 239.0.0.0 to 239.255.255.255"
            )
        if not 0 < self.port < 65535:
            raise GatewayError(f"port {self.port} cannot be: a group takes its port and the one above, up to 65535")
        if not 0 <= self.ttl <= 255:
            raise GatewayError(
                f"ttl = {self.ttl} cannot be: 0 stays on this machine, 1 on this network, 255 is the most"
            )

    @classmethod
    def parse(cls, text: str, *, interface: str = LOOPBACK, ttl: int = 1) -> "Group":
        """A group from `239.255.0.1:7400`."""
        address, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit():
            raise GatewayError(f"{text!r} is not a group and a port: write it like 239.255.0.1:7400")
        return cls(address, int(port), interface, ttl)

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    # --- sockets

    def open_data_sender(self) -> socket.socket:
        return self._sender()

    def open_data_receiver(self) -> socket.socket:
        return self._receiver(self.port)

    def open_nak_receiver(self) -> socket.socket:
        return self._receiver(self.port + 1)

    @property
    def data_address(self) -> tuple[str, int]:
        return self.address, self.port

    @property
    def nak_address(self) -> tuple[str, int]:
        return self.address, self.port + 1

    def _request(self) -> bytes:
        """What Linux calls an ip_mreqn: the group, an address, an interface."""
        address, index = "0.0.0.0", 0  # noqa: S104 - no address: the index says which
        try:
            address = str(ipaddress.IPv4Address(self.interface))
        except ValueError:
            try:
                index = socket.if_nametoindex(self.interface)
            except OSError as error:
                raise GatewayError(
                    f"there is no interface {self.interface!r} on this machine: name one of "
                    f"{', '.join(name for _, name in socket.if_nameindex())}, or an IPv4 address of one"
                ) from error
        return struct.pack("@4s4si", socket.inet_aton(self.address), socket.inet_aton(address), index)

    def _sender(self) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self.ttl)
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, self._request())
            opened.setblocking(False)
        except OSError as error:
            opened.close()
            raise self._unusable(error) from error
        except BaseException:
            opened.close()
            raise
        return opened

    def _receiver(self, port: int) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                opened.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _BUFFER_BYTES)
            except OSError:  # only root may have more than net.core.rmem_max
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.IPPROTO_IP, _MULTICAST_ALL, 0)
            opened.bind((self.address, port))
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, self._request())
            opened.setblocking(False)
        except OSError as error:
            opened.close()
            raise self._unusable(error) from error
        except BaseException:
            opened.close()
            raise
        return opened

    def _unusable(self, error: OSError) -> GatewayError:
        return GatewayError(
            f"group {self} cannot be joined on interface {self.interface} ({error.strerror or error}): name an "
            "interface that is up and may multicast"
        )


def seal_of(key: bytes | None, window_s: float = 30.0) -> Seal | None:
    """The seal of a shared key; raises if it is too short to be one."""
    if key is None:
        return None
    if len(key) < _LEAST_KEY_BYTES:
        raise GatewayError(
            f"a key of {len(key)} bytes is too short: take {_LEAST_KEY_BYTES} random bytes or more, for example of "
            "`openssl rand -hex 32`"
        )
    return Seal(key, window_s)
