"""Questions over nng: to one of several responders, or to everybody at once.

A `Requester` asks one responder, and another one if that goes away before it answers: the library sees to that. A
`Surveyor` asks all respondents that are connected, and has until a deadline what they say.

    with Respondent(lambda question: b"here", connect="tcp://127.0.0.1:5560") as respondent:
        respondent.run()

    with Surveyor(listen="tcp://127.0.0.1:5560") as surveyor:
        for answer in surveyor.ask(b"who is there?", deadline=0.5):
            print(answer.value)
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from headrace.gateways.errors import GatewayError
from headrace.gateways.messaging.calls import (
    Request,
    deadline_of,
    encode_error,
    encode_reply,
    encode_request,
    raise_remote,
)
from headrace.gateways.messaging.ends import HIGH_WATER_MARK, LARGEST_BYTES, End, TimedOut
from headrace.gateways.messaging.forms import Form
from headrace.gateways.messaging.message import GivenHeaders, InvalidMessage, Message, decode, new_session, now_ms
from headrace.gateways.nng.sockets import Endpoints, checked_form
from headrace.gateways.nng.wire import NngWire, Options, Tls, endpoints, pynng
from headrace.telemetry.logs import RareLines, get_logger

_log = RareLines(get_logger(__name__), 1.0)
_TICK_S: Final = 0.2
_RESEND_MS: Final = 60_000  # of what was not answered, to the same or another one
Function = Callable[[Message], bytes | None]


class _Asking(End):
    """What asks: its questions are numbered, and answers to others are left out."""

    _wire: NngWire

    def __init__(self, wire: NngWire, where: str, form: Form) -> None:
        super().__init__(wire, where, 0.0)
        self._form = form
        self._session = new_session()
        self._number = 0
        self.invalid = 0

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint

    @property
    def connections(self) -> int:
        """How many are connected."""
        return self._wire.connections()

    def _ask(
        self, value: bytes | None, key: bytes | None, topic: str, headers: GivenHeaders | None, timeout_s: float
    ) -> int:
        self._check_mine()
        number = self._number
        if self._form is Form.RAW:
            frame = value or b""
        else:
            deadline_ms = now_ms() + int(timeout_s * 1000)
            frame = encode_request(
                value, key, topic, headers, session=self._session, number=number, deadline_ms=deadline_ms
            )
        self._number += 1
        until = time.monotonic() + timeout_s
        while not self._wire.try_send(frame):
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise self._nobody(timeout_s)
            self._wire.wait_writable(min(left_s, _TICK_S))
        return number

    def _answer(self, frame: Any, number: int) -> Message | None:
        if self._form is Form.RAW:
            return Message(frame)
        try:
            reply = decode(frame)
        except InvalidMessage as error:
            self.invalid += 1
            _log.warning("an invalid answer", at=self._where, error=str(error))
            return None
        return reply if (reply.session, reply.sequence) == (self._session, number) else None

    def _nobody(self, timeout_s: float) -> TimedOut:
        return TimedOut(
            f"no answer came from {self._where} within {timeout_s:g} s, with {self._wire.connections()} connected: see "
            "whether anybody runs there, or give a longer timeout"
        )


class Requester(_Asking):
    """Asks one of the responders that are connected, one question at a time."""

    def __init__(
        self,
        *,
        connect: Endpoints = (),
        listen: Endpoints = (),
        timeout: float = 30.0,
        largest_bytes: int = LARGEST_BYTES,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
    ) -> None:
        options = Options(
            endpoints(listen), endpoints(connect), HIGH_WATER_MARK, largest_bytes, tls=tls, is_insecure=insecure
        )

        def open_socket(**settings: Any) -> Any:
            return pynng.Req0(resend_time=_RESEND_MS, **settings)

        super().__init__(NngWire(open_socket, options), options.where, checked_form(form))
        self._timeout_s = timeout

    def call(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str = "",
        headers: GivenHeaders | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Ask, and wait for the reply; raises `RemoteError` if it failed there, `TimedOut` if none came in time.

        What answers in another form raises `InvalidMessage`.
        """
        timeout_s = self._timeout_s if timeout is None else timeout
        until = time.monotonic() + timeout_s
        number = self._ask(value, key, topic, headers, timeout_s)
        while (left_s := until - time.monotonic()) > 0:
            frame = self._wire.receive(left_s)
            if frame is None:
                continue
            reply = self._answer(frame, number)
            if reply is None:  # the library takes it for the answer, and waits for no other one
                raise InvalidMessage(
                    f"what answers at {self._where} is not in our form: see what runs there, or set form='raw' for "
                    "programs that send values alone"
                )
            raise_remote(self._where, reply)
            return reply
        raise self._nobody(timeout_s)


class Surveyor(_Asking):
    """Asks everybody that is connected; a new survey ends the one before."""

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
        """At most as many answers as the high-water mark wait to be read."""
        options = Options(
            endpoints(listen), endpoints(connect), high_water_mark, largest_bytes, tls=tls, is_insecure=insecure
        )
        wire = NngWire(pynng.Surveyor0, options, send_buffer=high_water_mark, receive_buffer=high_water_mark)
        super().__init__(wire, options.where, checked_form(form))

    def ask(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str = "",
        headers: GivenHeaders | None = None,
        deadline: float = 1.0,
        most: int | None = None,
    ) -> Iterator[Message]:
        """Answers as they come, until `deadline` seconds are over or `most` have come.

        An answer that is an error is among them, with the header `headrace-error`.
        """
        self._check_mine()
        self._wire.socket.survey_time = max(1, int(deadline * 1000))
        until = time.monotonic() + deadline
        number = self._ask(value, key, topic, headers, deadline)
        return self._answers(number, until, most)

    def _answers(self, number: int, until: float, most: int | None) -> Iterator[Message]:
        came = 0
        while (most is None or came < most) and (left_s := until - time.monotonic()) > 0:
            if number != self._number - 1:
                return
            try:
                frame = self._wire.receive(left_s)
            except (pynng.BadState, pynng.Timeout, pynng.Canceled):  # the library's own clock has ended it
                return
            if frame is not None and (reply := self._answer(frame, number)) is not None:
                came += 1
                yield reply


class _Answering(End):
    """What answers: with a function, or one by one (`receive`, `reply`)."""

    _wire: NngWire

    def __init__(self, wire: NngWire, where: str, form: Form, function: Function | None, linger_s: float) -> None:
        super().__init__(wire, where, linger_s)
        self._form = form
        self._function = function
        self.received = 0
        self.invalid = 0
        self.expired = 0

    @property
    def endpoint(self) -> str:
        return self._wire.endpoint

    def connections(self) -> int:
        """How many are connected."""
        return self._wire.connections()

    def receive(self, timeout: float | None = None) -> Request | None:
        """The next question; the one before, if it was not answered, is not answered any more."""
        self._check_mine()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            frame = self._wire.receive(None if until is None else max(until - time.monotonic(), 0))
            if frame is None:
                return None
            request = self._read(frame)
            if request is not None:
                self.received += 1
                return request

    def _read(self, frame: Any) -> Request | None:
        if self._form is Form.RAW:
            return Request(Message(frame))
        try:
            message = decode(frame)
        except InvalidMessage as error:
            self.invalid += 1
            _log.warning("an invalid question", at=self._where, error=str(error))
            return None
        deadline_ms = deadline_of(message)
        if deadline_ms is not None and deadline_ms <= now_ms():
            self.expired += 1
            return None
        return Request(message)

    def reply(self, request: Request, value: bytes | None, *, headers: GivenHeaders | None = None) -> bool:
        """Answer; false if whoever asked does not read its answers."""
        self._check_mine()
        frame = (value or b"") if self._form is Form.RAW else encode_reply(request.message, value, headers)
        return self._say(frame)

    def reply_error(self, request: Request, error: Exception) -> bool:
        """Answer that it has failed."""
        self._check_mine()
        frame = b"" if self._form is Form.RAW else encode_error(request.message, type(error).__name__, str(error))
        return self._say(frame)

    def _say(self, frame: bytes) -> bool:
        try:
            self._wire.socket.send(frame)  # for as long as a wire waits at a time: who does not read gets nothing
        except pynng.Timeout:
            return False
        except pynng.BadState:
            raise GatewayError(
                f"there is no question at {self._where} that waits for an answer: answer each once, before the next"
            ) from None
        return True

    def run(self, stopping: threading.Event | None = None) -> None:
        """Answer with the function until `stopping` is set; a respondent's None is no answer."""
        if self._function is None:
            raise GatewayError(f"a {type(self).__name__} without a function cannot run: give it one, or use receive")
        while stopping is None or not stopping.is_set():
            request = self.receive(None if stopping is None else _TICK_S)
            if request is None:
                continue
            try:
                value = self._function(request.message)
                if value is not None and not isinstance(value, bytes):
                    raise InvalidMessage(f"the function returned a {type(value).__name__}: return bytes, or None")
            except Exception as error:  # noqa: BLE001 - it is raised where the question was asked
                self.reply_error(request, error)
            else:
                if value is not None or self._answers_none:
                    self.reply(request, value)

    _answers_none = True


class Responder(_Answering):
    """Answers requests, one at a time; run several for more at a time."""

    def __init__(
        self,
        function: Function | None = None,
        *,
        listen: str | Sequence[str] = (),
        connect: str | Sequence[str] = (),
        largest_bytes: int = LARGEST_BYTES,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
        linger: float = 1.0,
    ) -> None:
        """The function is given the request and returns the value of the reply; what it raises is raised at the caller.

        With `form="raw"` values alone go both ways, and an error is answered with an empty value.
        """
        options = Options(
            endpoints(listen), endpoints(connect), HIGH_WATER_MARK, largest_bytes, tls=tls, is_insecure=insecure
        )
        super().__init__(NngWire(pynng.Rep0, options), options.where, checked_form(form), function, linger)


class Respondent(_Answering):
    """Answers surveys; a function that returns None says nothing."""

    _answers_none = False

    def __init__(
        self,
        function: Function | None = None,
        *,
        connect: str | Sequence[str] = (),
        listen: str | Sequence[str] = (),
        largest_bytes: int = LARGEST_BYTES,
        form: Form | str = Form.MESSAGE,
        tls: Tls | None = None,
        insecure: bool = False,
        linger: float = 1.0,
    ) -> None:
        options = Options(
            endpoints(listen), endpoints(connect), HIGH_WATER_MARK, largest_bytes, tls=tls, is_insecure=insecure
        )
        super().__init__(NngWire(pynng.Respondent0, options), options.where, checked_form(form), function, linger)
