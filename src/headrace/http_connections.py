"""Connections of the HTTP client that go only where they may, and requests that end in time.

What always holds: the address that was asked about is the one that the connection is made to, so no answer of a name
server that comes later changes anything; and a request is over by its deadline, however slowly its answer drips.

Loaded with the first request, as urllib3 is.
"""

import contextlib
import math
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, LocationParseError, NameResolutionError, NewConnectionError

from headrace.http_client import AddressRefused
from headrace.reach import Reach


class _Deadline(threading.local):
    """When the request of this thread has to be over, by the monotonic clock."""

    at: float = math.inf

    def left_s(self) -> float:
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


_deadline = _Deadline()


@contextlib.contextmanager
def over_within(seconds: float) -> Iterator[None]:
    """Whatever this thread asks in the block takes no longer than this, name look-ups left out."""
    _deadline.at = time.monotonic() + seconds
    try:
        yield
    finally:
        _deadline.at = math.inf


def _limit(connection: socket.socket) -> None:
    if _deadline.at != math.inf:
        connection.settimeout(_deadline.left_s())


class _Socket(socket.socket):
    """Each wait takes no longer than the rest of the request may."""

    def recv_into(self, *values: Any, **named: Any) -> int:
        _limit(self)
        return super().recv_into(*values, **named)

    def sendall(self, *values: Any, **named: Any) -> None:
        _limit(self)
        super().sendall(*values, **named)


class TlsSocket(ssl.SSLSocket):
    """The same under TLS."""

    def recv_into(self, *values: Any, **named: Any) -> int:
        _limit(self)
        return super().recv_into(*values, **named)

    def send(self, *values: Any, **named: Any) -> int:
        _limit(self)
        return super().send(*values, **named)


def _connect(self: Any, reach: Reach) -> socket.socket:
    """A connection to the first address of the host that may be connected to and answers."""
    host = self._dns_host.strip("[]")
    try:
        host.encode("idna")
        found = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise LocationParseError("a host whose name cannot be looked up") from None
    except socket.gaierror as error:
        raise NameResolutionError(self.host, self, error) from error
    allowed = [each for each in found if reach.allows(str(each[4][0]))]
    if not allowed:
        raise AddressRefused(self.host)
    failed: OSError = OSError("no address")
    for family, kind, protocol, _, address in allowed:
        made = _Socket(family, kind, protocol)
        try:
            for option in self.socket_options or ():
                made.setsockopt(*option)
            made.settimeout(min(self.timeout, _deadline.left_s()) if self.timeout else None)
            made.connect(address)
        except OSError as error:
            made.close()
            failed = error
        else:
            sys.audit("http.client.connect", self, self.host, self.port)
            return made
    if isinstance(failed, TimeoutError):
        raise ConnectTimeoutError(self, "timed out") from failed
    raise NewConnectionError(self, str(failed)) from failed


class _Connection(HTTPConnection):
    def __init__(self, *values: Any, reach: Reach, **named: Any) -> None:
        super().__init__(*values, **named)
        self._reach = reach

    def _new_conn(self) -> socket.socket:
        return _connect(self, self._reach)


class _TlsConnection(HTTPSConnection):
    def __init__(self, *values: Any, reach: Reach, **named: Any) -> None:
        super().__init__(*values, **named)
        self._reach = reach

    def _new_conn(self) -> socket.socket:
        return _connect(self, self._reach)


class _Pool(HTTPConnectionPool):
    def __init__(self, *values: Any, reach: Reach, **named: Any) -> None:
        super().__init__(*values, **named)
        self.ConnectionCls = partial(_Connection, reach=reach)  # type: ignore[assignment]


class _TlsPool(HTTPSConnectionPool):
    def __init__(self, *values: Any, reach: Reach, **named: Any) -> None:
        super().__init__(*values, **named)
        self.ConnectionCls = partial(_TlsConnection, reach=reach)  # type: ignore[assignment]


def pool_manager(reach: Reach, **options: Any) -> urllib3.PoolManager:
    """As urllib3's, whose connections go where `reach` allows and keep to deadlines."""
    context = options.get("ssl_context")
    if context is not None:
        context.sslsocket_class = TlsSocket
    made = urllib3.PoolManager(**options)
    pools: Any = {"http": partial(_Pool, reach=reach), "https": partial(_TlsPool, reach=reach)}
    made.pool_classes_by_scheme = pools
    return made
