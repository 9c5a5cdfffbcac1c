"""SaslHandshake and SaslAuthenticate where there is nothing to log in to: a listener without SASL, or a login too soon.

A login itself is answered by the connection, which alone knows how far it is (`security/login.py`).
"""

from headrace.broker.handler import Context
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def refuse_handshake(_ctx: Context, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def refuse_token(_ctx: Context, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
