"""SaslAuthenticate (API 36): carry one step of the SASL exchange.

Since 1 the answer tells when the client has to authenticate again (KIP-368); 2 is flexible.
"""

from headrace.protocol import schema as wire


class SaslAuthenticateRequest(wire.Message, api_key=36, versions=range(3), flexible_since=2):
    """The client's token, in the mechanism's own bytes."""

    auth_bytes: bytes = wire.blob()


class SaslAuthenticateResponse(wire.Message, api_key=36, versions=range(3), flexible_since=2):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    auth_bytes: bytes = wire.blob()
    session_lifetime_ms: int = wire.int64(since=1, ignorable=True)
