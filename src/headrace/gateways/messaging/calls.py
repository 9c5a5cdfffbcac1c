"""What requests and replies say beside their values, on ZeroMQ and nng alike. Pure.

A request carries its deadline in the header of queues' requests (`headrace-deadline`, ms since the epoch); a reply that
is an error says in the header `headrace-error` what kind it is, and its value is the text.
"""

from typing import Any, Final, NamedTuple

from headrace.delivery.headers import DEADLINE
from headrace.gateways.errors import GatewayError
from headrace.gateways.messaging.message import (
    IS_REPLY,
    IS_REQUEST,
    GivenHeaders,
    Headers,
    Message,
    encode,
    headers_of,
    topic_prefix,
)

ERROR: Final = "headrace-error"
_MOST_ERROR: Final = 4096
MOST_OPEN: Final = 10_000


class RemoteError(GatewayError):
    """The function failed where it ran: the name of its error, and what that said."""

    def __init__(self, where: str, kind: str, text: str) -> None:
        super().__init__(f"the responder at {where} failed with {kind}: {text}")
        self.kind = kind
        self.text = text


class Request(NamedTuple):
    """A request, and the way back to whoever sent it, which belongs to the library."""

    message: Message
    route: Any = None

    @property
    def deadline_ms(self) -> int | None:
        return deadline_of(self.message)


def deadline_of(message: Message) -> int | None:
    """When its sender gives a request up; None if it does not say so."""
    said = message.header(DEADLINE)
    if said is None or not said.isdigit() or len(said) > 18:
        return None
    return int(said)


def encode_request(
    value: bytes | None,
    key: bytes | None,
    topic: str,
    headers: GivenHeaders | None,
    *,
    session: int,
    number: int,
    deadline_ms: int,
) -> bytes:
    held = (*(headers_of(headers) if headers else ()), (DEADLINE, str(deadline_ms).encode()))
    return encode(value, key, topic_prefix(topic), held, None, session, number, IS_REQUEST)


def encode_reply(request: Message, value: bytes | None, headers: GivenHeaders | None = None) -> bytes:
    held: Headers = headers_of(headers) if headers else ()
    return encode(
        value, request.key, topic_prefix(request.topic), held, None, request.session, request.sequence, IS_REPLY
    )


def encode_error(request: Message, kind: str, text: str) -> bytes:
    return encode_reply(request, text[:_MOST_ERROR].encode(errors="replace"), ((ERROR, kind.encode(errors="replace")),))


def raise_remote(where: str, reply: Message) -> None:
    """Raise what a reply says has failed, if it does."""
    kind = reply.header(ERROR)
    if kind is not None:
        raise RemoteError(where, kind.decode(errors="replace"), (reply.value or b"").decode(errors="replace"))
