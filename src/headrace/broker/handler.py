"""What every handler is given besides the request, and what it may answer."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.broker.config import Address
from headrace.broker.runtime import Runtime
from headrace.broker.turns import Deferred, Steps
from headrace.protocol.schema import Message
from headrace.security.principal import ANONYMOUS, Principal

DEFAULT_LISTENER = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Context:
    broker: Runtime
    version: int
    client_id: str | None
    served: Mapping[int, range]  # every API that is served, and its versions
    client_host: str
    local: Address  # where the client reached us, and so where it can come back to
    principal: Principal = ANONYMOUS  # who the client is
    listener: str = DEFAULT_LISTENER  # the name of the listener that it came through

    @property
    def advertised(self) -> Address:
        """The address that this client is told for this broker."""
        return self.broker.config.advertised or self.local


# A handler answers at once, later, or (Produce with acks=0) not at all. A None that comes later hangs up on the client.
Answer = Message | Deferred[Message] | Deferred[Message | None] | Coroutine[Any, Any, Message | None] | None

# One that goes through an array of the request does so in steps: it yields after each entry, since there may be many.
Handled = Answer | Steps[Answer]


class Handler(NamedTuple):
    run: Callable[[Context, Any], Handled]
    versions: range
