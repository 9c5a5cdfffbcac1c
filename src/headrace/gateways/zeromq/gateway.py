"""Gateways of ZeroMQ: how each of their sockets is opened, and requests that are answered when they are durable."""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from headrace.client.address import Address
from headrace.errors import HeadraceError
from headrace.extras import load
from headrace.gateways.bad_input import BadInput
from headrace.gateways.gateway import Gateway, Overload, Progress
from headrace.gateways.inlet import Inlet, Overloaded
from headrace.gateways.inward import inlet_of
from headrace.gateways.messaging.calls import Request
from headrace.gateways.messaging.forms import subscriptions
from headrace.gateways.messaging.inward import Incoming, answer_of, close_inlet, entry_of, error_body, offer
from headrace.gateways.messaging.outward import Outgoing
from headrace.gateways.messaging.settings import OUTWARD, PUB, PULL, PUSH, SUB, SocketSettings
from headrace.gateways.messaging.system import wait_readable
from headrace.gateways.writing import Lot, Placed
from headrace.gateways.zeromq.curve import (
    Curve,
    CurveClient,
    CurveServer,
    InvalidKey,
    Keys,
    check_key,
    read_public_keys,
)
from headrace.gateways.zeromq.requests import Responder
from headrace.gateways.zeromq.wire import Options, PublishingWire, ZmqWire

if TYPE_CHECKING:
    import zmq
else:
    zmq = load("zmq", "a gateway of kind zeromq")

_TICK_S: Final = 0.2
_TOGETHER: Final = 256  # requests that are taken before replies are looked after


@dataclass(frozen=True, slots=True)
class ZmqSettings:
    """One gateway; keys are files, and read when it starts."""

    sockets: SocketSettings
    options: Options
    keys: str | None
    clients: str | None
    server_key: str | None

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> "ZmqSettings":
        """From a section with its defaults; raises the first thing that is wrong."""
        sockets = SocketSettings.of(name, values)
        keys, clients, server_key = (values.get(each) or None for each in ("keys", "clients", "server_key"))
        where = f"gateways.{name}"
        if server_key is not None:
            check_key(server_key, f"[{where}] server_key")
        if keys is None and (clients or server_key):
            raise InvalidKey(f"[{where}] has clients or server_key and no keys of its own: add keys, a file of them")
        if server_key is not None and sockets.listen:
            raise InvalidKey(
                f"[{where}] listens and has a server_key, which is for who connects: leave one of them out"
            )
        if keys is not None and sockets.connect and server_key is None:
            raise InvalidKey(f"[{where}] connects with keys and does not know its listener's: add server_key")
        placeholder = "0" * 40  # files are not opened yet, and only whether there are keys is asked
        curve: Curve | None = None
        if keys is not None:
            pair = Keys(placeholder, placeholder)
            curve = CurveClient(pair, server_key) if server_key is not None else CurveServer(pair)
        options = Options(
            sockets.listen, sockets.connect, sockets.high_water_mark, curve=curve, is_insecure=sockets.is_insecure,
            is_multipart=sockets.form.is_multipart,
        )  # fmt: skip
        options.check()
        if sockets.acks is not None:
            Options((sockets.acks,), curve=curve, is_insecure=sockets.is_insecure).check()
        return cls(sockets, options, keys, clients, server_key)

    def opened(self) -> Options:
        """The options with the keys, read from their files."""
        return self._with(self.options.listen, self.options.connect, self.options.is_multipart)

    def for_acks(self) -> Options:
        return self._with((self.sockets.acks or "",), (), is_multipart=False)

    def _with(self, listen: tuple[str, ...], connect: tuple[str, ...], is_multipart: bool) -> Options:
        curve: Curve | None = None
        if self.keys is not None:
            pair = Keys.read(self.keys)
            if listen:
                curve = CurveServer(pair, None if self.clients is None else read_public_keys(self.clients))
            else:
                curve = CurveClient(pair, self.server_key or "")
        return Options(
            listen, connect, self.options.high_water_mark, curve=curve, is_insecure=self.options.is_insecure,
            is_multipart=is_multipart,
        )  # fmt: skip


def make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    settings = ZmqSettings.of(name, values)
    sockets = settings.sockets
    if sockets.socket in OUTWARD:
        return Outgoing(
            sockets, tuple(bootstrap), stopping, partial(_open_outward, settings),
            partial(_open_acks, settings) if sockets.acks is not None else None,
        )  # fmt: skip
    values = {**values, "overload": sockets.overload.value}
    inlet = inlet_of(name, values, [sockets.topic, *sorted(sockets.topics)], bootstrap, Progress())
    if sockets.socket in (PULL, SUB):
        return Incoming(sockets, inlet, stopping, partial(_open_inward, settings))
    return Answering(sockets, inlet, stopping, partial(_open_responder, settings))


def _open_inward(settings: ZmqSettings) -> ZmqWire:
    sockets = settings.sockets
    if sockets.socket == PULL:
        return ZmqWire(zmq.PULL, settings.opened(), is_watched=True)
    chosen = subscriptions(sockets.subscribe, sockets.form)
    return ZmqWire(zmq.SUB, settings.opened(), [(int(zmq.SUBSCRIBE), each) for each in chosen], is_watched=True)


def _open_outward(settings: ZmqSettings) -> ZmqWire:
    sockets = settings.sockets
    if sockets.socket == PUSH:
        return ZmqWire(zmq.PUSH, settings.opened(), is_watched=True)
    assert sockets.socket == PUB
    is_lossy = sockets.overload is not Overload.BLOCK
    return PublishingWire(settings.opened(), is_lossy=is_lossy, is_watched=True)


def _open_acks(settings: ZmqSettings) -> ZmqWire:
    return ZmqWire(zmq.PULL, settings.for_acks(), is_watched=True)


def _open_responder(settings: ZmqSettings) -> Responder:
    options = settings.opened()
    return Responder(
        listen=options.listen, high_water_mark=options.high_water_mark, form=settings.sockets.form, curve=options.curve,
        insecure=options.is_insecure, watched=True,
    )  # fmt: skip


class Answering:
    """A gateway for requests, each answered with where its record is once that is durable."""

    def __init__(
        self, settings: SocketSettings, inlet: Inlet, stopping: Event, open_responder: Callable[[], Responder]
    ) -> None:
        self.name = settings.name
        self.source = settings.end
        self.target = ", ".join([settings.topic, *sorted(settings.topics - {settings.topic})])
        self.progress = inlet.progress
        self._settings = settings
        self._inlet = inlet
        self._stopping = stopping
        self._open_responder = open_responder
        self._bad = BadInput(settings.name, inlet.progress)
        self._open = 0  # requests that are not answered yet
        self._done: deque[tuple[Request, str, Future[list[Placed]]]] = deque()

    def run(self) -> None:
        responder = self._open_responder()
        bell, self._ringer = os.pipe()
        os.set_blocking(bell, False)
        os.set_blocking(self._ringer, False)
        self._inlet.start()
        try:
            while not self._stopping.is_set():
                if self._inlet.failure is not None:
                    raise self._inlet.failure
                with suppress(BlockingIOError):
                    os.read(bell, 65_536)
                self._answer_all(responder)
                is_idle = self._take_some(responder)
                self._count(responder)
                if is_idle and not self._done:
                    wait_readable(_TICK_S, responder.fd, bell)
        finally:
            close_inlet(self._inlet, self.progress)
            self._answer_all(responder)
            responder.close()
            os.close(bell)
            os.close(self._ringer)

    def _take_some(self, responder: Responder) -> bool:
        """Whether there was nothing to take, or no room for it."""
        for _ in range(_TOGETHER):
            if self._open >= self._settings.high_water_mark:
                return True
            request = responder.try_receive()
            if request is None:
                return True
            self._take(responder, request)
        return False

    def _take(self, responder: Responder, request: Request) -> None:
        self.progress.received += 1
        topic, entry = entry_of(request.message, self._settings)
        try:
            future = offer(self._inlet, Lot(topic, [entry]), self._stopping)
        except Overloaded as error:
            self.progress.dropped += 1
            self._refuse(responder, request, error)
            return
        if future is None:  # it is time to stop: whoever asked asks again
            return
        self._open += 1
        future.add_done_callback(lambda done: self._note(request, topic, done))

    def _note(self, request: Request, topic: str, future: "Future[list[Placed]]") -> None:
        self._done.append((request, topic, future))
        with suppress(BlockingIOError, OSError):  # full: it rings already
            os.write(self._ringer, b"\0")

    def _answer_all(self, responder: Responder) -> None:
        while self._done:
            request, topic, future = self._done.popleft()
            self._open -= 1
            body, error = answer_of(topic, future)
            if error is None:
                responder.reply(request, body)
            else:
                self._refuse(responder, request, error)

    def _refuse(self, responder: Responder, request: Request, error: HeadraceError) -> None:
        if self._settings.form.is_multipart:
            responder.reply(request, error_body(error))
        else:
            responder.reply_error(request, error)

    def _count(self, responder: Responder) -> None:
        if responder.invalid:
            self.progress.received += responder.invalid
            self._bad.refuse("a request that is not in the form that is read", count=responder.invalid)
            responder.invalid = 0
        self.progress.connections = responder.connections()
        for name, count in (("expired", responder.expired), ("undelivered", responder.undelivered)):
            if count:
                self.progress.more[name] = count
