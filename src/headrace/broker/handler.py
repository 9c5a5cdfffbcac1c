"""The one shape of all handlers."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from headrace.broker.context import Context
from headrace.broker.deferred import Deferred
from headrace.broker.turns import Steps
from headrace.protocol.schema import Message

# A handler answers at once, later, or (Produce with acks=0) not at all. A deferred None hangs up on the client.
Answer = Message | Deferred[Message] | Deferred[Message | None] | Coroutine[Any, Any, Message] | None

# One that goes through an array of the request does so in steps: it yields after each entry, since there may be many.
Handled = Answer | Steps[Answer]


class Handler(NamedTuple):
    """Which versions of an API are served, and by what."""

    run: Callable[[Context, Any], Handled]
    versions: range
