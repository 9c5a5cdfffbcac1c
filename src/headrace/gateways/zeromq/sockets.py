"""Two programs that speak to each other without a broker, over ZeroMQ.

    with Pusher(connect="tcp://127.0.0.1:5555") as pusher:
        pusher.send(b"value", b"key", headers={"kind": "order"})

    with Puller(listen="tcp://127.0.0.1:5555") as puller:
        for message in puller:
            print(message.key, message.value)

Either side may listen and either may connect, in any order: who connects tries again until somebody listens, and after
every interruption. How many messages wait for a receiver that does not keep up, or is not there, is the high-water
mark; what happens beyond it, the overload policy.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from headrace.extras import load
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.messaging.ends import (
    HIGH_WATER_MARK,
    LARGEST_BYTES,
    LINGER_S,
    LossyReceiver,
    Receiver,
    Sender,
)
from headrace.gateways.messaging.forms import Form, subscriptions
from headrace.gateways.zeromq.curve import Curve
from headrace.gateways.zeromq.wire import Options, PublishingWire, ZmqWire, endpoints

if TYPE_CHECKING:
    import zmq
else:
    zmq = load("zmq", "a socket of ZeroMQ")

Endpoints = str | Sequence[str]


class Pusher(Sender):
    """Hands each message to one of the pullers, in turn.

    What was handed over waits in this process and in the puller's, at most the high-water mark in each; what waits in a
    process that dies is lost.
    """

    _wire: ZmqWire

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
        curve: Curve | None = None,
        insecure: bool = False,
    ) -> None:
        """`timeout` is how long `send` waits for room, in seconds; `linger`, how long `close` does."""
        policy = Overload(overload)
        options = Options(
            endpoints(listen), endpoints(connect), 1 if policy is Overload.DROP_OLDEST else high_water_mark,
            timeout_s=timeout, curve=curve, is_insecure=insecure,
        )  # fmt: skip
        super().__init__(
            ZmqWire(zmq.PUSH, options), options.where, form=Form(form), overload=policy,
            high_water_mark=high_water_mark, timeout_s=timeout, linger_s=linger,
        )  # fmt: skip

    @property
    def endpoint(self) -> str:
        """Where it listens; with port 0 a free one is chosen."""
        return self._wire.endpoint


class Puller(Receiver):
    """Receives what pushers hand it; while it does not, they wait or do what their policy says."""

    _wire: ZmqWire

    def __init__(
        self,
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        high_water_mark: int = HIGH_WATER_MARK,
        largest_bytes: int = LARGEST_BYTES,
        form: Form | str = Form.MESSAGE,
        curve: Curve | None = None,
        insecure: bool = False,
    ) -> None:
        """Who sends a message of more than `largest_bytes` is cut off."""
        form = Form(form)
        options = Options(
            endpoints(listen), endpoints(connect), high_water_mark, largest_bytes, curve=curve, is_insecure=insecure,
            is_multipart=form.is_multipart,
        )  # fmt: skip
        super().__init__(ZmqWire(zmq.PULL, options), options.where, form=form)

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint


class Publisher(Sender):
    """Sends each message to all subscribers to its topic.

    By default (`drop-newest`) a subscriber that does not keep up misses messages, alone, and knows how many
    (`Subscriber.missed`). With `block` and `fail` all wait for the slowest; with `drop-oldest` the oldest messages are
    dropped for all of them, and counted here.
    """

    is_numbered_by_topic = True
    _wire: PublishingWire

    def __init__(
        self,
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        overload: Overload | str = Overload.DROP_NEWEST,
        high_water_mark: int = HIGH_WATER_MARK,
        timeout: float | None = None,
        linger: float = LINGER_S,
        form: Form | str = Form.MESSAGE,
        curve: Curve | None = None,
        insecure: bool = False,
    ) -> None:
        policy = Overload(overload)
        options = Options(
            endpoints(listen), endpoints(connect), 1 if policy is Overload.DROP_OLDEST else high_water_mark,
            timeout_s=timeout, curve=curve, is_insecure=insecure,
        )  # fmt: skip
        wire = PublishingWire(options, is_lossy=policy is Overload.DROP_NEWEST)
        super().__init__(
            wire, options.where, form=Form(form), overload=policy, high_water_mark=high_water_mark, timeout_s=timeout,
            linger_s=linger,
        )  # fmt: skip

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint

    def wait_for_subscriptions(self, count: int = 1, timeout: float = 10.0) -> Self:
        """Wait until so many topics were subscribed to: what is published before goes to nobody."""
        self._check_mine()
        if self._outbox is not None and self._outbox.waiting:
            raise GatewayError("subscriptions are waited for after messages were published: do it before the first")
        if not self._wire.wait_for_subscriptions(count, timeout):
            raise self._timed_out_waiting(count, timeout)
        return self


class Subscriber(LossyReceiver):
    """Receives what is published of some topics: `orders`, all that begin as `orders.*` says, or `*`."""

    _wire: ZmqWire

    def __init__(
        self,
        topics: str | Sequence[str] = "*",
        *,
        listen: Endpoints = (),
        connect: Endpoints = (),
        high_water_mark: int = HIGH_WATER_MARK,
        largest_bytes: int = LARGEST_BYTES,
        form: Form | str = Form.MESSAGE,
        curve: Curve | None = None,
        insecure: bool = False,
    ) -> None:
        form = Form(form)
        options = Options(
            endpoints(listen), endpoints(connect), high_water_mark, largest_bytes, curve=curve, is_insecure=insecure,
            is_multipart=form.is_multipart,
        )  # fmt: skip
        chosen = subscriptions(topics, form)
        super().__init__(
            ZmqWire(zmq.SUB, options, [(int(zmq.SUBSCRIBE), each) for each in chosen]), options.where, form=form
        )

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint
