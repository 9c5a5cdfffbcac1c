"""What can go wrong on the way to a broker that wants to know who speaks: none of it holds a password in its text."""

from headrace.client.address import Address
from headrace.client.errors import ClientError, ConnectionClosed, UnsupportedSecurity


class BadSecurity(UnsupportedSecurity):
    """A security setting that does not exist, cannot be had, or does not fit the others."""


class TlsRefused(ClientError):
    """One side did not accept the other's certificate, or what listens there speaks no TLS."""

    def __init__(self, address: Address, reason: str, remedy: str) -> None:
        super().__init__(f"no TLS connection to {address} ({reason}): {remedy}")
        self.address = address
        self.reason = reason


class AuthenticationFailed(ClientError):
    """The broker did not accept who we say we are, or could not show that it knows our password."""

    def __init__(self, address: Address, mechanism: str, reason: str, remedy: str) -> None:
        super().__init__(f"{address} does not let us in by {mechanism} ({reason}): {remedy}")
        self.address = address
        self.mechanism = mechanism
        self.reason = reason


class SecureConnectionClosed(ConnectionClosed):
    """The broker ended a connection that was not a plain one: the listener may be of another kind."""

    def __init__(self, address: Address, doing: str, protocol: str, reason: str = "") -> None:
        why = f" ({reason})" if reason else ""
        # Past the parent's own sentence, which sends the reader to look for a plaintext listener.
        super(ConnectionClosed, self).__init__(
            f"{address} closed the connection during {doing}{why}: see the broker's log, and check that this listener "
            f"takes {protocol} connections"
        )
        self.address = address
        self.doing = doing
