"""Request and reply over ZeroMQ: a requester, and as many responders as are wanted.

    with Responder(lambda request: request.value.upper(), listen="ipc:///run/app/upper-1.ipc") as responder:
        responder.run()

    with Requester(["ipc:///run/app/upper-1.ipc", "ipc:///run/app/upper-2.ipc"]) as requester:
        requester.call(b"hello", timeout=2).value

A requester has a connection to each responder, and gives a request to the one that has the fewest. When a responder
dies, or says nothing for six seconds, its requests go to others: so a function may run more than once for a request,
unless `repeat=False`. Many threads and coroutines may use a requester; plain DEALER and REQ sockets may ask a
responder, and with `form="raw"` neither has to know our form.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakSet

from headrace.extras import load
from headrace.gateways.errors import GatewayError
from headrace.gateways.messaging.calls import (
    ERROR,
    MOST_OPEN,
    Request,
    deadline_of,
    encode_error,
    encode_reply,
    encode_request,
    raise_remote,
)
from headrace.gateways.messaging.dispatch import Dispatch
from headrace.gateways.messaging.ends import HIGH_WATER_MARK, LARGEST_BYTES, End, NotYours, Overfull, TimedOut
from headrace.gateways.messaging.forms import Form
from headrace.gateways.messaging.message import GivenHeaders, InvalidMessage, Message, decode, new_session, now_ms
from headrace.gateways.zeromq.curve import Curve
from headrace.gateways.zeromq.wire import Options, ZmqWire, endpoints
from headrace.telemetry.logs import RareLines, get_logger

if TYPE_CHECKING:
    import zmq
else:
    zmq = load("zmq", "a socket of ZeroMQ")

_log = RareLines(get_logger(__name__), 1.0)
_TICK_S: Final = 0.2
_REQUESTING: Final = (
    # A connection that is not there takes nothing: what it would take might be done hours later.
    (int(zmq.IMMEDIATE), 1),
    # A responder that says nothing for six seconds is cut off. Its replies, no more than its requests, are always read:
    # see `wire.py` on heartbeats where they are not.
    (int(zmq.RCVHWM), 0),
    (int(zmq.HEARTBEAT_IVL), 2_000),
    (int(zmq.HEARTBEAT_TIMEOUT), 6_000),
    (int(zmq.HEARTBEAT_TTL), 6_000),
)
_MOST_EACH: Final = 1000
Function = Callable[[Message], bytes | None]


class _Call:
    """A request that is open."""

    __slots__ = ("frame", "future", "timeout_s")

    def __init__(self, frame: bytes, timeout_s: float) -> None:
        self.frame = frame
        self.timeout_s = timeout_s
        self.future: Future[Message] = Future()


_requesters: "WeakSet[Requester]" = WeakSet()


class Requester:
    """Sends requests to responders; a thread of its own has the sockets."""

    def __init__(
        self,
        connect: str | Sequence[str],
        *,
        timeout: float = 30.0,
        repeat: bool = True,
        most_each: int = 100,
        most_open: int = MOST_OPEN,
        largest_bytes: int = LARGEST_BYTES,
        curve: Curve | None = None,
    ) -> None:
        """A responder has at most `most_each` requests at a time; of more than `most_open` in all, `Overfull`.

        `largest_bytes` is of requests and of replies: a responder cuts off who sends it more than its own.
        """
        self._addresses = endpoints(connect)
        self._where = ", ".join(self._addresses)
        if not 1 <= most_each <= _MOST_EACH:
            raise GatewayError(f"most_each={most_each} is not possible: a responder has 1 to {_MOST_EACH} requests")
        self._timeout_s = timeout
        self._most_open = most_open
        self._largest_bytes = largest_bytes
        self._session = new_session()
        self._lock = threading.Lock()
        self._number = 0
        self._calls: dict[int, _Call] = {}
        self._fresh: list[int] = []
        self._unwanted: list[int] = []
        self._dispatch: Dispatch[int] = Dispatch(most_each=most_each, is_repeated=repeat)
        self._is_closing = False
        self._why_not = ""
        self.invalid = 0
        self.late = 0  # replies that nobody waits for any more
        self._wires: list[ZmqWire] = []
        try:
            for address in self._addresses:
                options = Options(connect=(address,), high_water_mark=HIGH_WATER_MARK, largest_bytes=largest_bytes,
                                  curve=curve)  # fmt: skip
                self._wires.append(ZmqWire(zmq.DEALER, options, _REQUESTING, is_watched=True))
            if not self._wires:
                raise GatewayError("a requester has nothing to connect to: name the addresses of its responders")
        except BaseException:
            for wire in self._wires:
                wire.close(0)
            raise
        self._bell, self._ringer = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ringer, False)
        self._thread = threading.Thread(target=self._run, name="headrace-requester", daemon=True)
        self._thread.start()
        _requesters.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for callers

    def submit(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str = "",
        headers: GivenHeaders | None = None,
        timeout: float | None = None,
    ) -> "Future[Message]":
        """Send a request; the future has the reply, `RemoteError` or `TimedOut`. Cancelling it gives the request up."""
        timeout_s = self._timeout_s if timeout is None else timeout
        with self._lock:
            if self._why_not:
                raise NotYours(self._why_not)
            if len(self._calls) >= self._most_open:
                raise Overfull(
                    f"{self._most_open:,} requests to {self._where} are open: wait for replies before sending more"
                )
            number = self._number
            frame = encode_request(
                value, key, topic, headers, session=self._session, number=number,
                deadline_ms=now_ms() + int(timeout_s * 1000),
            )  # fmt: skip
            if len(frame) > self._largest_bytes:
                # The responder would cut this connection off, and so would every other one that has it after that.
                raise InvalidMessage(
                    f"a request of {len(frame):,} bytes is larger than the {self._largest_bytes:,} that are sent to "
                    f"{self._where}: send less, or give the requester and its responders a larger largest_bytes"
                )
            self._number += 1
            call = self._calls[number] = _Call(frame, timeout_s)
            self._fresh.append(number)
        call.future.add_done_callback(lambda future: self._give_up(number) if future.cancelled() else None)
        self._ring()
        return call.future

    def call(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str = "",
        headers: GivenHeaders | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a request, and wait for its reply."""
        return self.submit(value, key, topic=topic, headers=headers, timeout=timeout).result()

    async def call_async(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str = "",
        headers: GivenHeaders | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it goes with the request, as its deadline
    ) -> Message:
        return await asyncio.wrap_future(self.submit(value, key, topic=topic, headers=headers, timeout=timeout))

    @property
    def responders(self) -> int:
        """How many responders are connected."""
        return len(self._dispatch.workers)

    def close(self) -> None:
        """Cancel what is not replied to."""
        with self._lock:
            if self._is_closing:
                return
            self._why_not = self._why_not or f"the requester of {self._where} is closed: make another one"
            self._is_closing = True
        self._ring()
        self._thread.join()
        for call in list(self._calls.values()):
            call.future.cancel()
        os.close(self._bell)
        os.close(self._ringer)
        _requesters.discard(self)

    def abandon(self) -> None:
        """In a process that was forked."""
        self._lock = threading.Lock()
        self._is_closing = True
        self._why_not = (
            f"the requester of {self._where} was made before this process was forked, and sockets do not outlive that: "
            "make it in the new process, or start that by multiprocessing's spawn"
        )

    def _give_up(self, number: int) -> None:
        with self._lock:
            self._unwanted.append(number)
        self._ring()

    def _ring(self) -> None:
        with suppress(BlockingIOError, OSError):  # full: it rings already
            os.write(self._ringer, b"\0")

    # --- in the thread

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._bell, zmq.POLLIN)
        for wire in self._wires:
            poller.register(wire.socket, zmq.POLLIN)
            poller.register(wire.monitor, zmq.POLLIN)
        try:
            while not self._is_closing:
                deadline = self._dispatch.next_deadline()
                left_s = _TICK_S if deadline is None else min(_TICK_S, deadline - time.monotonic())
                poller.poll(max(int(left_s * 1000) + 1, 0))
                self._step()
        except Exception as error:  # noqa: BLE001 - callers must not wait for ever for a defect of ours
            with self._lock:
                self._why_not = (
                    f"the requester of {self._where} has ended ({type(error).__name__}: {error}): make another"
                )
                calls, self._calls = self._calls, {}
            _log.warning("a requester has ended", at=self._where, error=repr(error))
            for call in calls.values():
                _settle(call.future, NotYours(self._why_not))
        finally:
            for wire in self._wires:
                wire.close(0)

    def _step(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._bell, 65_536)
        with self._lock:
            fresh, self._fresh = self._fresh, []
            unwanted, self._unwanted = self._unwanted, []
        dispatch, now = self._dispatch, time.monotonic()
        for number in fresh:
            dispatch.submit(number, now + self._calls[number].timeout_s)
        for number in unwanted:
            self._finish(number)
        for index, wire in enumerate(self._wires):
            # Replies before farewells: what came before somebody went counts.
            while (frame := wire.try_receive()) is not None:
                self._take(frame)
            for has_come in wire.changes():
                if has_come:
                    dispatch.come(index)
                else:
                    for number in dispatch.go(index):
                        self._fail(number, self._lost())
        for number in dispatch.expire(now):
            self._fail(number, self._too_late(number))
        for number, index in dispatch.assign():
            if not self._wires[index].try_send(self._calls[number].frame):
                dispatch.take_back(number)  # it has no room now: later, or to another

    def _take(self, frame: bytes | list[bytes]) -> None:
        if frame == b"":  # what REP and our responders send before a reply to REQ
            return
        try:
            reply = decode(frame) if isinstance(frame, bytes) else None
        except InvalidMessage as error:
            self.invalid += 1
            _log.warning("an invalid reply", at=self._where, error=str(error))
            return
        if reply is None or reply.session != self._session:
            self.invalid += 1
            return
        call = self._finish(reply.sequence)
        if call is None:
            self.late += 1
            return
        try:
            raise_remote(self._where, reply)
        except GatewayError as error:
            _settle(call.future, error)
        else:
            _settle(call.future, reply)

    def _finish(self, number: int) -> _Call | None:
        self._dispatch.finish(number)
        with self._lock:
            return self._calls.pop(number, None)

    def _fail(self, number: int, error: GatewayError) -> None:
        call = self._finish(number)
        if call is not None:
            _settle(call.future, error)

    def _too_late(self, number: int) -> TimedOut:
        call = self._calls.get(number)
        return TimedOut(
            f"no reply came from {self._where} within {call.timeout_s if call else 0:g} s, with {self.responders} "
            "responders connected: see whether they run, or give a longer timeout"
        )

    def _lost(self) -> GatewayError:
        return GatewayError(
            f"the responder that had the request went away ({self._where}), and it may have been handled or not: "
            "ask again if that does no harm, or allow repeat=True"
        )


def _settle(future: "Future[Message]", outcome: Message | Exception) -> None:
    with suppress(InvalidStateError):  # cancelled meanwhile
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _after_fork() -> None:
    for requester in list(_requesters):
        requester.abandon()


os.register_at_fork(after_in_child=_after_fork)


class Responder(End):
    """Answers requests: with a function, or one by one (`receive`, `reply`)."""

    _wire: ZmqWire

    def __init__(
        self,
        function: Function | None = None,
        *,
        listen: str | Sequence[str],
        high_water_mark: int = HIGH_WATER_MARK,
        largest_bytes: int = LARGEST_BYTES,
        form: Form | str = Form.MESSAGE,
        curve: Curve | None = None,
        insecure: bool = False,
        linger: float = 1.0,
        watched: bool = False,
    ) -> None:
        """The function is given the request and returns the value of the reply; what it raises is raised at the caller.

        With `form="raw"` values alone go both ways, and an error is answered with an empty value.
        """
        options = Options(
            endpoints(listen), (), high_water_mark, largest_bytes, curve=curve, is_insecure=insecure, is_multipart=True
        )
        # It reads what requesters may send at once, or they would take it for dead while it is busy.
        further = [(int(zmq.ROUTER_MANDATORY), 1), (int(zmq.RCVHWM), max(high_water_mark, _MOST_EACH + 1))]
        wire = ZmqWire(zmq.ROUTER, options, further, is_watched=watched)
        super().__init__(wire, options.where, linger)
        self._function = function
        self._is_raw = Form(form) is not Form.MESSAGE
        self.received = 0
        self.invalid = 0
        self.expired = 0  # requests that came after their deadline
        self.undelivered = 0  # replies to those who went, or do not read
        self._stopping = threading.Event()

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint

    def receive(self, timeout: float | None = None) -> Request | None:
        """The next request that is to be answered; None if none came within `timeout` seconds."""
        self._check_mine()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            parts = self._wire.receive(None if until is None else max(until - time.monotonic(), 0))
            if parts is None:
                return None
            request = self._read(parts)
            if request is not None:
                self.received += 1
                return request

    def try_receive(self) -> Request | None:
        """The next request, if one has come already."""
        self._check_mine()
        while (parts := self._wire.try_receive()) is not None:
            request = self._read(parts)
            if request is not None:
                self.received += 1
                return request
        return None

    @property
    def fd(self) -> int:
        """What is readable when something has happened since `try_receive` answered None."""
        return self._wire.receive_fd

    def connections(self) -> int:
        """How many are connected, for one that was made `watched`."""
        return self._wire.connections()

    def _read(self, parts: bytes | list[bytes]) -> Request | None:
        """A route, an empty frame where REQ asks, and the request."""
        if isinstance(parts, bytes) or len(parts) not in (2, 3) or (len(parts) == 3 and parts[1]):
            self.invalid += 1
            _log.warning("an invalid request", at=self._where, error="it is not one frame: send one")
            return None
        route, frame = parts[:-1], parts[-1]
        if self._is_raw:
            return Request(Message(frame), route)
        try:
            message = decode(frame)
        except InvalidMessage as error:
            self.invalid += 1
            _log.warning("an invalid request", at=self._where, error=str(error))
            return None
        deadline_ms = deadline_of(message)
        if deadline_ms is not None and deadline_ms <= now_ms():
            self.expired += 1
            return None
        return Request(message, route)

    def reply(self, request: Request, value: bytes | None, *, headers: GivenHeaders | None = None) -> bool:
        """Answer a request; false if whoever asked has gone, or does not read its replies."""
        frame = (value or b"") if self._is_raw else encode_reply(request.message, value, headers)
        return self._send(request, frame)

    def reply_error(self, request: Request, error: Exception) -> bool:
        """Answer that a request has failed: it is raised as `RemoteError` where it was made."""
        frame = b"" if self._is_raw else encode_error(request.message, type(error).__name__, str(error))
        return self._send(request, frame)

    def _send(self, request: Request, frame: bytes) -> bool:
        self._check_mine()
        try:
            if self._wire.try_send([*request.route, frame]):
                return True
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        self.undelivered += 1
        return False

    def run(self, stopping: threading.Event | None = None) -> None:
        """Answer with the function until `stopping` is set."""
        if self._function is None:
            raise GatewayError("a responder without a function cannot run: give it one, or use receive and reply")
        while stopping is None or not stopping.is_set():
            request = self.receive(None if stopping is None else _TICK_S)
            if request is None:
                continue
            try:
                value = self._function(request.message)
                if value is not None and not isinstance(value, bytes):
                    raise InvalidMessage(f"the function returned a {type(value).__name__}: return bytes, or None")
            except Exception as error:  # noqa: BLE001 - it is raised where the request was made
                self.reply_error(request, error)
            else:
                self.reply(request, value)


__all__ = ["ERROR", "Function", "Requester", "Responder"]
