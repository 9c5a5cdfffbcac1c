"""SaslHandshake (API 17): choose the SASL mechanism.

What follows a handshake of version 0 is the mechanism's bare tokens; after version 1 they travel in SaslAuthenticate
(KIP-152). Neither version is flexible.
"""

from headrace.protocol import schema as wire


class SaslHandshakeRequest(wire.Message, api_key=17, versions=range(2)):
    mechanism: str = wire.string()


class SaslHandshakeResponse(wire.Message, api_key=17, versions=range(2)):
    """The mechanisms that the broker offers; an error if the wanted one is not among them."""

    error_code: int = wire.int16()
    mechanisms: list[str] = wire.array(wire.STRING)
