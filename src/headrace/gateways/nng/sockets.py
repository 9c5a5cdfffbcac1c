"""Two programs that speak to each other without a broker, over nng (the successor of nanomsg).

The same faces as those of ZeroMQ: `Pusher` and `Puller`, `Publisher` and `Subscriber`; besides a `Pair`, which is one
end of two, and a `Bus`, of which everybody hears everybody that is connected to it. Either side may listen and either
may connect, in any order.
"""

from collections.abc import Sequence
from typing import Any

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.messaging.ends import (
    HIGH_WATER_MARK,
    LARGEST_BYTES,
    LINGER_S,
    LossyReceiver,
    Receiver,
    Sender,
    Wire,
)
from headrace.gateways.messaging.forms import Form, subscriptions
from headrace.gateways.messaging.message import InvalidMessage
from headrace.gateways.nng.wire import NngWire, Options, Tls, endpoints, pynng

Endpoints = str | Sequence[str]


def checked_form(form: Form | str) -> Form:
    found = Form(form)
    if found is Form.TOPIC:
        raise InvalidMessage("nng has no second frame for a topic: use form='message', or 'raw'")
    return found


class Pusher(Sender):
    """Hands each message to one of the pullers, in turn.

    With `block` a message waits in this process only until a puller's connection has room; with the other policies as
    many as the high-water mark. The puller holds as many as its own. What waits in a process that dies is lost.
    """

    _wire: NngWire

    def __init__(
        self,
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        overload: Overload | str = Overload.BLOCK,
        high_water_mark: int = HIGH_WATER_MARK,
        timeout: float | None = None,
        linger: float = LINGER_S,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        """`timeout` is how long `send` waits for room, in seconds; `linger`, how long `close` does."""
        policy = Overload(overload)
        options = Options(
            endpoints(listen), endpoints(connect), high_water_mark, timeout_s=timeout, tls=tls, is_insecure=insecure
        )
        # The library's own queue is forgotten when it is closed, and nobody can ask whether it is empty.
        super().__init__(
            NngWire(pynng.Push0, options), options.where, form=checked_form(form), overload=policy,
            high_water_mark=high_water_mark, timeout_s=timeout, linger_s=linger, is_queued=True,
        )  # fmt: skip

    @property
    def endpoint(self) -> str:
        """Where it listens; with port 0 a free one is chosen."""
        return self._wire.endpoint


class Puller(Receiver):
    """Receives what pushers hand it; while it does not, they wait or do what their policy says."""

    _wire: NngWire

    def __init__(
        self,
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        high_water_mark: int = HIGH_WATER_MARK,
        largest_bytes: int = LARGEST_BYTES,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        """Who sends a message of more than `largest_bytes` is cut off."""
        options = Options(
            endpoints(listen), endpoints(connect), high_water_mark, largest_bytes, tls=tls, is_insecure=insecure
        )
        wire = NngWire(pynng.Pull0, options, receive_buffer=high_water_mark)
        super().__init__(wire, options.where, form=checked_form(form))

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint


class Publisher(Sender):
    """Sends each message to all subscribers.

    nng's publishers never wait: for a subscriber that does not keep up, the oldest of as many messages as the
    high-water mark are dropped, and it knows how many (`Subscriber.missed`). Topics are chosen by the subscriber.
    """

    is_numbered_by_topic = True
    _wire: NngWire

    def __init__(
        self,
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        overload: Overload | str = Overload.DROP_OLDEST,
        high_water_mark: int = HIGH_WATER_MARK,
        linger: float = LINGER_S,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        if Overload(overload) is not Overload.DROP_OLDEST:
            raise GatewayError(
                f"a publisher of nng cannot have overload={str(overload)!r}: the library drops the oldest for a "
                "subscriber that does not keep up; push, or publish over ZeroMQ"
            )
        options = Options(endpoints(listen), endpoints(connect), high_water_mark, tls=tls, is_insecure=insecure)
        wire = NngWire(pynng.Pub0, options, send_buffer=high_water_mark)
        # The library itself drops: a message is always handed over.
        super().__init__(
            wire, options.where, form=checked_form(form), overload=Overload.BLOCK, high_water_mark=high_water_mark,
            timeout_s=None, linger_s=linger,
        )  # fmt: skip
        self.overload = Overload.DROP_OLDEST

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint


class Subscriber(LossyReceiver):
    """Receives what is published of some topics: `orders`, all that begin as `orders.*` says, or `*`."""

    _wire: NngWire

    def __init__(
        self,
        topics: str | Sequence[str] = "*",
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        high_water_mark: int = HIGH_WATER_MARK,
        largest_bytes: int = LARGEST_BYTES,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        """With `form="raw"` a topic is what values begin with."""
        form = checked_form(form)
        chosen = subscriptions(topics, form)
        options = Options(
            endpoints(listen), endpoints(connect), high_water_mark, largest_bytes, tls=tls, is_insecure=insecure
        )

        def open_socket(**settings: Any) -> Any:
            return pynng.Sub0(topics=chosen, **settings)

        super().__init__(NngWire(open_socket, options, receive_buffer=high_water_mark), options.where, form=form)

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint


class _Both(Sender):
    """A sender that receives as well, over the same socket."""

    _wire: NngWire

    def __init__(
        self,
        open_socket: Any,
        listen: Endpoints,
        connect: Endpoints,
        policy: Overload,
        high_water_mark: int,
        largest_bytes: int,
        timeout: float | None,
        linger: float,
        form: Form | str,
        tls: Tls | None,
        *,
        is_insecure: bool,
        waits: bool,
    ) -> None:
        options = Options(
            endpoints(listen), endpoints(connect), high_water_mark, largest_bytes, timeout, tls, is_insecure
        )
        # As for a pusher: what is in the library's own queue is forgotten at the end.
        buffer = 0 if waits else high_water_mark
        wire: Wire = NngWire(open_socket, options, send_buffer=buffer, receive_buffer=high_water_mark)
        super().__init__(
            wire, options.where, form=checked_form(form), overload=policy if waits else Overload.BLOCK,
            high_water_mark=high_water_mark, timeout_s=timeout, linger_s=linger, is_queued=waits,
        )  # fmt: skip
        self._receiver = Receiver(wire, options.where, form=self.form)
        self.receive = self._receiver.receive
        self.receive_async = self._receiver.receive_async

    def abandon(self) -> None:
        super().abandon()
        self._receiver.abandon()

    def _close(self) -> None:
        self._receiver._thread, self._receiver._why_not = self._thread, self._why_not  # noqa: SLF001 - it is ours
        super()._close()

    @property
    def received(self) -> int:
        return self._receiver.received

    @property
    def invalid(self) -> int:
        return self._receiver.invalid

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint


class Pair(_Both):
    """One end of two: both send and receive. A third that connects is turned away."""

    def __init__(
        self,
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        overload: Overload | str = Overload.BLOCK,
        high_water_mark: int = HIGH_WATER_MARK,
        largest_bytes: int = LARGEST_BYTES,
        timeout: float | None = None,
        linger: float = LINGER_S,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        policy = Overload(overload)
        if policy is Overload.DROP_OLDEST:
            raise GatewayError("a pair cannot have overload='drop-oldest': choose block, drop-newest or fail")
        super().__init__(
            pynng.Pair0, listen, connect, policy, high_water_mark, largest_bytes, timeout, linger, form, tls,
            is_insecure=insecure, waits=True,
        )  # fmt: skip


class Bus(_Both):
    """Everybody hears everybody that is directly connected; a bus never waits, and what finds no room is dropped."""

    def __init__(
        self,
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        high_water_mark: int = HIGH_WATER_MARK,
        largest_bytes: int = LARGEST_BYTES,
        linger: float = LINGER_S,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        super().__init__(
            pynng.Bus0, listen, connect, Overload.DROP_NEWEST, high_water_mark, largest_bytes, None, linger, form, tls,
            is_insecure=insecure, waits=False,
        )  # fmt: skip
