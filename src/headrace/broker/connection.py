"""One client's connection: the socket and the event loop around a `Channel`, and requests handed to their handlers.

What always holds:
- requests are handled as they come, and answered in that order, however long one of them waits; one that is handled in
  several turns is through before the next one begins;
- a request's record batches are used where they were received; nothing of a frame is kept once its handler returned;
- a client that does not read its answers, or has too many requests under way, is not read from until it does: it holds
  up nobody else and costs no more memory; nor is one that has used more than its quota, for as long as that takes;
- one connection holds the loop for a turn at most, whatever it has sent, and is never served within another's turn;
- a client that has to log in is answered nothing before it has, and one request at a time until then;
- once the broker ends, what was begun is answered and nothing is begun; then the client sees an orderly end;
- whatever goes wrong while a request is handled, a malformed frame or a mistake of ours, closes this connection, with a
  log line, and touches nothing else.
"""

import asyncio
import math
import select
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic
from types import GeneratorType
from typing import Any, Protocol

from headrace.broker.channel import MAX_PARTS, SHARED_BUFFER_BYTES, Channel, Sendable, Slot
from headrace.broker.config import PLAINTEXT, Address
from headrace.broker.endpoint import Endpoint
from headrace.broker.file_views import view_of
from headrace.broker.handler import Answer, Context, Handled, Peer
from headrace.broker.handlers.api_versions import fallback
from headrace.broker.limits import MAX_IN_FLIGHT, QUEUED_BYTES
from headrace.broker.load import LARGE_TURNS, Share
from headrace.broker.metrics import ApiStats, Rejected
from headrace.broker.registry import HANDLERS, SERVED
from headrace.broker.runtime import Runtime
from headrace.broker.throttling import Meter
from headrace.broker.turns import COUNTED_S, QUEUED_TURN_S, ROUND_S, TURN_S, Deferred, Steps, run_until
from headrace.errors import HeadraceError
from headrace.protocol.api import ApiKey
from headrace.protocol.codec import decode_prefix, decoding_prefix, releasing
from headrace.protocol.errors import FrameTooLarge, UnsupportedVersion
from headrace.protocol.frame import RequestHeader, decode_request_header, encoding_response_parts
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.protocol.schema import Message, Struct
from headrace.security.login import MAX_TOKEN_BYTES, Login, Outcome, State
from headrace.security.principal import ANONYMOUS, Principal
from headrace.security.scram import HASHES
from headrace.telemetry import audit
from headrace.telemetry.audit import Caller
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)

# A frame up to this size is decoded in one step: less than a turn, if it is nothing but tiny entries.
_DECODED_AT_ONCE_BYTES = 4 * 1024

_DISCARDED_BYTES = 64 * 1024  # at a time
_LOOK_S = 0.5  # for the end of a client that is not read from
_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # where there is none, poll tells of it unasked, as of errors
_LINGER_S = 0.5  # so long a client has to hang up, once it was told that nothing more comes

_FIRST_REQUEST_S = 30.0  # until somebody who need not log in asks for something
_TOO_LATE = "TLS, the login or the first request took too long"
_SILENT_S = 1.0  # in the midst of a request, while others wait for the memory that it holds
_SLOWEST_S = 10.0  # for a whole request, while others wait
_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")  # how its frames begin
_BY_PASSWORD = ("PLAIN", *HASHES)
_TLS_BEGINS = 0x1603  # the first bytes of a TLS handshake, where a frame has its size


def _waits_for_others(slot: Slot) -> bool:
    return not slot.is_ready and slot.stats is not None and slot.stats.waits_for_others


class Stream(Protocol):
    """What a connection needs of a socket, whether it is one or TLS over one."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def sendmsg(self, parts: list[Sendable], /) -> int: ...
    def getsockname(self) -> Any: ...
    def getpeername(self) -> Any: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Connection:
    # Not for the memory: an object of more than thirty attributes loses CPython's quick look-ups, a tenth of a request.
    __slots__ = (
        "_advertised",
        "_began_s",
        "_channel",
        "_client",
        "_endpoint",
        "_evaluated",
        "_fd",
        "_has_place",
        "_holds",
        "_is_draining",
        "_is_parked",
        "_is_queued",
        "_is_reading",
        "_is_taking",
        "_is_through",
        "_is_writing",
        "_load",
        "_login",
        "_loop",
        "_max_under_way",
        "_metrics",
        "_muted",
        "_on_close",
        "_peer",
        "_principal",
        "_runtime",
        "_setup",
        "_share",
        "_socket",
        "_stats",
        "_steps",
        "_steps_bytes",
        "_steps_turns",
        "_tasks",
        "_turns",
        "_view_of",
        "_watch",
        "host",
        "is_closed",
        "last_active",
        "listener",
    )

    max_parts = MAX_PARTS  # in one call that sends

    def __init__(
        self,
        sock: Stream,
        endpoint: Endpoint,
        runtime: Runtime,
        loop: asyncio.AbstractEventLoop,
        shared: bytearray,
        on_close: Callable[["Connection"], None],
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._runtime = runtime
        self._turns = runtime.turns
        self._loop = loop
        self._on_close = on_close
        self._load = runtime.load
        self._share = Share(runtime.load, self)
        max_bytes = runtime.config.number("socket.request.max.bytes")
        self._channel = Channel(shared, max_bytes, self._share, runtime.turns.run)
        self._channel.max_under_way = self._max_under_way = runtime.config.number(MAX_IN_FLIGHT)
        self._endpoint = endpoint
        host, port = sock.getsockname()[:2]
        self._advertised = endpoint.advertise(Address(host.removeprefix("::ffff:"), port))
        client, client_port = sock.getpeername()[:2]
        self._client = (str(client).removeprefix("::ffff:"), client_port)  # ACLs name an IPv4 host as such
        self._peer = Peer(client_port, hold=self._hold)
        self._watch: asyncio.TimerHandle | None = None  # for its end, while it is not read from
        self._holds = 0  # requests that have to be through before the next is taken, whatever they wait for
        self.host = self._client[0]
        self.listener = endpoint.listener.name
        self._metrics = runtime.metrics
        self._stats: ApiStats  # of the request that is being handled, and since when it is
        self._began_s = 0.0
        self._principal = ANONYMOUS
        self._view_of = view_of
        self._login = self._begin_login(endpoint)
        self._evaluated: asyncio.Future[Outcome] | None = None  # the token that a thread looks at
        self._steps: Steps[None] | None = None  # of the request that is being handled
        self._steps_bytes = 0  # how large it is
        self._steps_turns = 0  # how many turns it has had that were not enough
        self._is_parked = False  # until other large requests are through
        self._has_place = False  # among the large requests that are not parked
        self._is_reading = False
        self._is_writing = False
        self._is_taking = False  # frames, just now
        self._is_queued = False  # to take frames when our turn comes
        self._is_draining = False  # the broker ends
        self._is_through = False  # everything is answered, and the client knows that nothing more will come
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self.last_active = time.monotonic()
        self._muted: asyncio.TimerHandle | None = None
        self._setup: asyncio.TimerHandle | None = None
        setup_s = (
            endpoint.setup_s if endpoint.listener.protocol != PLAINTEXT else max(endpoint.setup_s, _FIRST_REQUEST_S)
        )
        self._setup = loop.call_later(setup_s, self._refuse, _TOO_LATE, Rejected.SETUP_TIMEOUT)
        self._read()

    def __repr__(self) -> str:
        return f"{self._client}"

    def _begin_login(self, endpoint: Endpoint) -> Login | None:
        if endpoint.logins is None:
            return None
        self._channel.max_frame_bytes = endpoint.logins.max_request_bytes
        self._channel.max_under_way = 1
        return endpoint.logins.begin()

    # --- in

    def _read(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_ready)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _on_ready(self) -> None:
        if not self._turns.is_over:  # else the loop comes back
            began_s = monotonic()
            self._on_readable()
            spent_s = monotonic() - began_s
            if spent_s >= COUNTED_S:
                self._turns.spend(spent_s)
                if spent_s >= ROUND_S and self._is_reading:
                    # Whoever takes long is read from again in its turn, behind all others that do.
                    self._pause()
                    self._take_later()

    def _on_readable(self) -> None:
        try:
            room = self._channel.room()
            if not room:  # until others have let go of memory
                self._pause()
                return
            count = self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if not count:
            self.close()
            return
        self.last_active = now_s = monotonic()
        self._channel.received(count)
        self._take_frames(now_s, TURN_S)

    def _go_on(self) -> None:
        self._is_queued = False
        if not self.is_closed:
            self._take_frames(monotonic(), QUEUED_TURN_S)

    def _take_frames(self, now_s: float, turn_s: float) -> None:
        end = now_s + turn_s
        channel = self._channel
        was_full = True
        while was_full and (self._steps is not None or not channel.is_full):
            self._is_taking = True  # answers to what came together go together: one system call for all of them
            try:
                is_through = self._handle_until(now_s, end)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this client's alone
                self._fail(error)
                return
            was_full = is_through and channel.is_full  # then more can be handled once this is sent
            if channel.has_unsent and not self._is_writing:
                self._send()
            self._is_taking = False
            if self.is_closed:
                return
            if was_full:
                now_s = monotonic()  # what was sent has made room
        channel.put_away(is_in_use=self._steps is not None)
        is_full = (was_full or not is_through) and channel.is_full  # what is through and was not full has room
        if self._is_parked or (is_full and self._steps is None):
            self._pause()
        elif not is_through:  # what was begun goes on, whether the client takes its answers or not: others wait for it
            self._pause()
            self._take_later()
        elif channel.is_muted:  # but what was begun goes on: it is answered first
            self._pause()
        else:
            self._read()
        if self._is_draining:
            self._end_if_drained()

    def _take_later(self) -> None:
        self._is_queued = True
        self._turns.later(self._go_on)

    def _handle_until(self, now_s: float, end: float) -> bool:
        """Handle one frame after the other; whether all is done that can be done now."""
        channel = self._channel
        while not self.is_closed and not self._is_parked:
            steps = self._steps
            if steps is None:
                frame = channel.next_frame()
                if frame is None:
                    return True
                self._began_s = now_s
                steps = self._handle(frame)
                if steps is not None:
                    self._steps, self._steps_bytes, self._steps_turns = steps, len(frame), 0
                    if self._load.parks(len(frame)):
                        self._take_place()
                        continue
            if steps is not None:
                if run_until(steps, end):
                    self._steps = None
                    if self._steps_turns:
                        self._leave_place()
                elif not self._has_place and not self.is_closed:
                    self._count_turn()
            now_s = monotonic()
            if now_s >= end:
                return False
        return not self._is_parked

    def _count_turn(self) -> None:
        self._load.begun.add(self)
        self._steps_turns += 1
        if self._steps_turns >= LARGE_TURNS:
            self._take_place()

    def _take_place(self) -> None:
        """Have one of the few places of requests that take longer than a few turns, now or later."""
        self._load.begun.discard(self)
        self._steps_turns = LARGE_TURNS
        self._has_place = self._load.enter_large(self._steps_bytes, self._unpark)
        self._is_parked = not self._has_place

    def _unpark(self) -> None:
        if self.is_closed:
            self._load.leave_large()
            return
        self._is_parked, self._has_place = False, True
        self._take_later()

    def _leave_place(self) -> None:
        self._load.begun.discard(self)
        if self._has_place:
            self._has_place = False
            self._load.leave_large()

    # --- requests

    def _handle(self, frame: memoryview) -> Steps[None] | None:
        """Handle a request; what of it is better done in steps is returned."""
        login = self._login
        if login is None:
            if self._setup is not None:
                self._end_setup()
        else:
            is_in = login.is_open and frame[:2] != _HANDSHAKE and self._began_s < login.expires_s
            if not is_in and not self._log_in(login, frame):
                return None
        try:
            api, header, position = decode_request_header(frame)
            handler = HANDLERS.get(api.key)
            version = header.request_api_version
            if handler is None or version not in handler.versions:
                raise UnsupportedVersion(api.key, version, header.correlation_id)
        except UnsupportedVersion as error:
            if error.api_key != ApiKey.API_VERSIONS or error.correlation_id is None:
                raise
            # A client newer than us asks with the newest version it knows, and falls back on this (KIP-511).
            return self._answer(self._channel.open_slot(), fallback(SERVED), 0, error.correlation_id)
        self._stats = stats = self._metrics.apis.get(api.key) or self._metrics.api(api.key)
        stats.request_bytes += len(frame)
        context = Context(
            self._runtime,
            version,
            header.client_id,
            SERVED,
            self._client[0],
            self._advertised,
            self._principal,
            self.listener,
            self._peer,
        )
        run = handler.run
        meter = None
        if self._runtime.quotas is not None:
            meter = context.meter = Meter(
                self._runtime.quotas, api.key, self._principal.name, header.client_id, len(frame), self._mute
            )
            run = partial(meter.handle, run)
        if len(frame) > _DECODED_AT_ONCE_BYTES and (api.key != ApiKey.PRODUCE or len(frame) > SHARED_BUFFER_BYTES):
            decoding = decoding_prefix(api.request, version, frame, position)
            if meter is not None:
                decoding = meter.timed(decoding)
            return self._handle_in_steps(decoding, lambda body: run(context, body), header)
        body, _ = decode_prefix(api.request, version, frame, position)
        answer = run(context, body)
        if isinstance(answer, GeneratorType):
            return self._finish_in_steps(answer, header)
        return self._take_answer(answer, header)  # type: ignore[arg-type]  # no steps

    # --- logins

    def _log_in(self, login: Login, frame: memoryview) -> bool:
        """Take a step of a login; whether the request is to be handled as any other."""
        if login.state is State.BARE_TOKENS:
            self._take_token(login, bytes(frame), None)
            return False
        api, header, position = decode_request_header(frame)
        if api.key == ApiKey.API_VERSIONS and not login.is_open:
            if login.ask_versions():
                return True
        elif api.key == ApiKey.SASL_HANDSHAKE:
            if login.is_open and not login.begin_again(monotonic()):
                return True
            self._channel.max_under_way = 1
            request, _ = decode_prefix(SaslHandshakeRequest, header.request_api_version, frame, position)
            answer = login.choose(request.mechanism, header.request_api_version)
            if answer is not None:
                self._answer_login(answer, header, f"mechanism {request.mechanism!r}" if answer.error_code else "")
                return False
        elif api.key == ApiKey.SASL_AUTHENTICATE and login.state in (State.TOKENS, State.OTHER_MECHANISM):
            token, _ = decode_prefix(SaslAuthenticateRequest, header.request_api_version, frame, position)
            self._take_token(login, bytes(token.auth_bytes), header)
            return False
        self._refuse("the login has expired" if login.is_open else f"{api.key.name} before the login is over")
        return False

    def _take_token(self, login: Login, token: bytes, header: RequestHeader | None) -> None:
        """Evaluate a token, in a thread if that is work; the next request waits until it is answered."""
        logins = self._endpoint.logins
        assert logins is not None
        now_ms = self._runtime.now_ms()
        if len(token) > MAX_TOKEN_BYTES:  # those that wait for a thread are kept until then
            self._refuse(f"a token of {len(token):,} bytes: {MAX_TOKEN_BYTES:,} are the most")
            return
        if not login.is_slow:
            self._end_step(login, login.step(token, now_ms, monotonic()), header)
            return
        slot = self._channel.open_slot()  # keeps the next request waiting
        self._evaluated = future = self._loop.run_in_executor(
            logins.threads_for(login), login.step, token, now_ms, monotonic()
        )

        def done(outcome: asyncio.Future[Outcome]) -> None:
            if self.is_closed or outcome.cancelled():
                return
            if error := outcome.exception():
                self._fail(error)  # type: ignore[arg-type]  # an Exception
            else:
                self._end_step(login, outcome.result(), header, slot)

        future.add_done_callback(done)

    def _end_step(self, login: Login, outcome: Outcome, header: RequestHeader | None, slot: Slot | None = None) -> None:
        if login.is_open and login.principal is not None:
            user, logins = self.password_user, self._endpoint.logins
            if user is not None and logins is not None and not logins.users.has(user):
                self._refuse("the user was removed during the login")  # while a thread looked at the password
                return
            self._principal = login.principal
            self._channel.max_frame_bytes = self._runtime.config.number("socket.request.max.bytes")
            self._channel.max_under_way = self._max_under_way
            self._end_setup()
            self._record_login(login.mechanism)
        self._answer_login(outcome.response, header, outcome.refusal, slot)

    def _answer_login(
        self,
        answer: SaslHandshakeResponse | SaslAuthenticateResponse,
        header: RequestHeader | None,
        refusal: str,
        slot: Slot | None = None,
    ) -> None:
        """Answer; somebody who is refused waits for it a while, so that guessing is slow, and is closed then."""
        slot = slot or self._channel.open_slot()
        parts: list[Any] = []
        if header is not None:
            for _ in encoding_response_parts(answer, header.request_api_version, header.correlation_id, parts):
                pass
        elif isinstance(answer, SaslAuthenticateResponse) and not refusal:
            parts = [len(answer.auth_bytes).to_bytes(4, "big") + bytes(answer.auth_bytes)]
        if not refusal:
            self._fill(slot, parts)
            return
        logins = self._endpoint.logins
        assert logins is not None

        def end() -> None:
            self._fill(slot, parts)
            self._refuse(f"the login failed: {refusal}")

        self._loop.call_later(logins.delay_s, end)

    def _handle_in_steps(
        self, decoding: Steps[tuple[Message, int]], run: Callable[[Message], Handled], header: RequestHeader
    ) -> Steps[None]:
        held: list[Struct] = [(yield from decoding)[0]]
        try:
            steps = self._take_handled(run(held[0]), header)  # type: ignore[arg-type]  # a message
            if steps is not None:
                yield from steps
        finally:
            self._release(held)

    def _take_handled(self, handled: Handled, header: RequestHeader) -> Steps[None] | None:
        if isinstance(handled, GeneratorType):
            return self._finish_in_steps(handled, header)
        return self._take_answer(handled, header)  # type: ignore[arg-type]  # no steps

    def _finish_in_steps(self, handling: Steps[Answer], header: RequestHeader) -> Steps[None]:
        steps = self._take_answer((yield from handling), header)  # without a name: it is let go of in steps, too
        if steps is not None:
            yield from steps

    def _release(self, held: list[Struct]) -> None:
        """Let go of a large request or answer, in turns."""
        self._turns.later(lambda: self._turns.run(releasing(held), QUEUED_TURN_S))

    def _take_answer(self, answer: Answer, header: RequestHeader) -> Steps[None] | None:
        """Send an answer that is there, or see that it is sent when it is."""
        if answer is None:
            now_s = monotonic()
            self._stats.finish(self.last_active, self._began_s, now_s, now_s)
            return None
        slot = self._channel.open_slot()
        slot.stats = self._stats
        slot.received_s = self.last_active
        slot.began_s = self._began_s
        version, correlation_id = header.request_api_version, header.correlation_id
        if isinstance(answer, Message):
            return self._answer(slot, answer, version, correlation_id)
        slot.handled_s = monotonic()
        if isinstance(answer, Deferred):
            slot.promise = answer  # type: ignore[assignment]  # of whatever, it can be abandoned
            answer.then(lambda message: self._answer_later(slot, message, version, correlation_id), self._fail)
        else:
            task = self._loop.create_task(self._await(answer, slot, version, correlation_id))
            self._tasks.add(task)
            task.add_done_callback(lambda task: self._forget_task(task, answer))
        return None

    def _forget_task(self, task: asyncio.Task[None], answer: Coroutine[Any, Any, Message | None]) -> None:
        self._tasks.discard(task)
        answer.close()  # it has not even begun if the client left at once

    async def _await(
        self, answer: Coroutine[Any, Any, Message | None], slot: Slot, version: int, correlation_id: int
    ) -> None:
        try:
            message = await answer
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this client's alone
            self._fail(error)
            return
        self._answer_later(slot, message, version, correlation_id)

    # --- out

    def _answer_later(self, slot: Slot, message: Message | None, version: int, correlation_id: int) -> None:
        """Answer what had to wait; called from anywhere, so nothing is raised."""
        if self.is_closed:
            return
        if message is None:  # what was asked for could not be written down: the client is to ask again
            self.close()
            return
        try:
            steps = self._answer(slot, message, version, correlation_id)
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            return
        if steps is not None:
            self._turns.run(self._guard(steps))

    def _guard(self, steps: Steps[None]) -> Steps[None]:
        try:
            yield from steps
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _answer(self, slot: Slot, message: Message, version: int, correlation_id: int) -> Steps[None] | None:
        """Put an answer in its place, and send what can be sent; what is left of a long one is returned as steps."""
        parts: list[Any] = []
        encoding = encoding_response_parts(message, version, correlation_id, parts)
        for _ in encoding:
            return self._answer_in_steps(slot, [message], encoding, parts)
        if slot.stats is not None:
            slot.stats.count_errors(message)
        self._fill(slot, parts)
        return None

    def _answer_in_steps(self, slot: Slot, held: list[Struct], encoding: Steps[None], parts: list[Any]) -> Steps[None]:
        try:
            yield
            yield from encoding
            if slot.stats is not None:
                yield from slot.stats.count_errors_in_steps(held[0])  # type: ignore[arg-type]  # a message
            self._fill(slot, parts)
        finally:
            self._release(held)

    def _fill(self, slot: Slot, parts: list[Any]) -> None:
        if self.is_closed:
            return
        if self._channel.fill(slot, parts, monotonic()) and not self._is_writing and not self._is_taking:
            self._send()

    def _on_writable(self) -> None:
        if not self._turns.is_over:  # else the loop comes back
            began_s = monotonic()
            self._send()
            self._turns.spend(monotonic() - began_s)

    def _send(self) -> None:
        """Write as much as the socket takes within a turn; the rest when it takes more, and others were served."""
        channel = self._channel
        now_s = monotonic()
        end_s = now_s + TURN_S
        try:
            while channel.has_unsent:
                if now_s >= end_s:
                    self._wait_to_write()
                    return
                parts = channel.gather(self._view_of, self.max_parts)
                try:
                    sent = self._socket.sendmsg(parts)
                except (BlockingIOError, InterruptedError):
                    channel.sent(parts, 0)
                    self._wait_to_write()
                    return
                except OSError:
                    self.close()
                    return
                channel.sent(parts, sent)
                now_s = monotonic()
                if self._is_writing:  # one that takes its answers slowly is not idle
                    self.last_active = now_s
        except Exception as error:  # noqa: BLE001 - a file that cannot be read, or was cut
            self._fail(error)
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        if self._share.unsent_bytes:
            self._channel.hold_unsent()
        if not self._is_taking:
            self._resume()

    def _resume(self) -> None:
        """Go on with the requests that had to wait, if nothing keeps them waiting any more.

        In a turn of their own: we may be within somebody else's request, whose records we waited for, and requests
        within requests end where the stack does.
        """
        if not (self._is_taking or self._is_queued or self._is_parked or self._is_reading or self._channel.is_full):
            self._take_later()  # where it ends, if the broker does

    def _mute(self, throttle_ms: int) -> None:
        """Take no more requests for a while: the client has used more than its quota."""
        if self.is_closed:
            return
        if self._muted is not None:
            if self._muted.when() >= self._loop.time() + throttle_ms / 1000:
                return
            self._muted.cancel()
        self._channel.is_muted = True
        self._pause()
        self._muted = self._loop.call_later(throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._hear()

    def _hold(self) -> Callable[[], None]:
        """Take no more requests until what is returned is called."""
        self._holds += 1
        self._channel.is_muted = True
        self._pause()
        if self._watch is None:
            self._watch = self._loop.call_later(_LOOK_S, self._look_for_end)

        def let_go() -> None:
            self._holds -= 1
            if not self.is_closed:
                self._hear()

        return let_go

    def _look_for_end(self) -> None:
        """Close if the client has left while nothing is read from it: what it waits for is nobody's then."""
        self._watch = None
        if self.is_closed or not self._holds:
            return
        poll = select.poll()
        poll.register(self._fd, _HUNG_UP)
        if poll.poll(0):
            self.close()
        else:
            self._watch = self._loop.call_later(_LOOK_S, self._look_for_end)

    def _hear(self) -> None:
        """Take requests again, unless there is another reason not to."""
        self._channel.is_muted = self._is_draining or self._holds > 0 or self._muted is not None
        self._resume()

    def _wait_to_write(self) -> None:
        self._channel.hold_unsent()
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        if self._channel.is_full:
            self._pause()

    # --- the end

    @property
    def is_asked(self) -> bool:
        """Whether a request waits for its answer: it is not the client that is silent then."""
        return self._channel.has_requests

    def rest(self) -> None:
        """Keep no more memory than a client needs that has been silent for a while."""
        if self._steps is None:
            self._channel.release_buffer()

    def drain(self) -> None:
        """Begin no more requests, and close once those are answered that were begun; a silent client's at once."""
        if self.is_closed:
            return
        self._is_draining = self._channel.is_muted = True
        self._pause()
        if self._is_under_way or self.last_active > monotonic() - _LINGER_S:
            self._end_if_drained()
        else:
            self.close()

    @property
    def _is_under_way(self) -> bool:
        """Whether something is still to be done for the client; what waits for other clients does not count."""
        channel = self._channel
        return self._steps is not None or channel.has_unsent or channel.has_slots(but=_waits_for_others)

    def _end_if_drained(self) -> None:
        """Say that nothing more comes, and wait for the client to hang up.

        A socket that is closed while requests lie unread in it is reset, and answers on their way are lost with it.
        """
        if self._is_through or self.is_closed or self._is_under_way:
            return
        self._is_through = True
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self._loop.call_later(_LINGER_S, self.close)
        self._is_reading = True
        self._loop.add_reader(self._fd, self._discard)

    def _discard(self) -> None:
        try:
            if self._socket.recv_into(memoryview(bytearray(_DISCARDED_BYTES))):
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass
        self.close()

    def wake(self) -> None:
        """There may be memory again for what this client sends."""
        if not self.is_closed:
            self._resume()

    def give_way(self, now_s: float, since_s: float) -> None:
        """Close, if others wait for memory that this client holds with half a request: for silence, or for slowness."""
        if self._steps is not None:
            return  # that is up to us
        self.rest()
        is_silent = (self._is_reading or self._is_writing) and self.last_active < now_s - _SILENT_S
        if self._share.total_bytes and (is_silent or since_s < now_s - _SLOWEST_S):
            what = "does not take its answers" if self._share.unsent_bytes else "has sent half a request"
            self._runtime.limits.reach(QUEUED_BYTES, f"{self} {what}, and others wait for the memory that this needs")
            self.close()

    def _end_setup(self) -> None:
        if self._setup:
            self._setup.cancel()
            self._setup = None

    def _refuse(self, reason: str, kind: Rejected = Rejected.LOGIN) -> None:
        """Close on somebody who does not get in; there may be many of them, so not each has a line in the log."""
        if not self.is_closed:
            self._metrics.rejected[kind] += 1
            listener = self._endpoint.listener.name
            self._endpoint.refusals.warning("connection refused", client=repr(self), listener=listener, reason=reason)
            self._record_refusal(reason)
            self.close()

    # --- what is recorded of it

    @property
    def password_user(self) -> str | None:
        """Who has logged in here by a password."""
        login = self._login
        return login.principal.name if login and login.principal and login.mechanism in _BY_PASSWORD else None

    def end_login(self) -> None:
        """Answer what is under way, and nothing that comes after it."""
        if self._login:
            self._login.expires_s = -math.inf

    def _caller(self, principal: str) -> Caller:
        return Caller(principal, str(Address(*self._client)), None, self.listener)

    def _record_login(self, how: str) -> None:
        if self._runtime.audit.wants(audit.LOGINS):
            self._runtime.audit.record(audit.LOGIN, audit.OK, self._caller(str(self._principal)), mechanism=how)

    def _record_refusal(self, reason: str) -> None:
        login = self._login
        name = (login.claimed or (login.principal.name if login.principal else "")) if login else ""
        caller = self._caller(str(Principal(name)) if name else "")
        key = (name, self._client[0], self.listener, reason)
        record = self._runtime.audit.record_often
        record(audit.FAILED_LOGINS, audit.LOGIN, audit.DENIED, caller, key, reason=reason)

    def _fail(self, error: Exception) -> None:
        """Close because of an error: the client's own, which it is told in the log, or a mistake of ours."""
        if self.is_closed:
            return
        is_tls = isinstance(error, FrameTooLarge) and error.size >> 16 == _TLS_BEGINS
        if isinstance(error, HeadraceError) and self._login is not None and not self._login.is_open and not is_tls:
            self._refuse(str(error))
            return
        is_large, is_ours = isinstance(error, FrameTooLarge), not isinstance(error, HeadraceError)
        kind = Rejected.FRAME_TOO_LARGE if is_large else Rejected.FAILURE if is_ours else Rejected.INVALID_REQUEST
        self._metrics.rejected[kind] += 1
        if is_tls:
            self._endpoint.refusals.warning(
                "connection closed: the client speaks TLS, and this listener does not",
                client=repr(self),
                hint="have it use the port of an SSL or SASL_SSL listener",
            )
        elif isinstance(error, HeadraceError):
            _log.warning("connection closed", client=repr(self), reason=str(error))
        else:
            _log.failure("connection closed: a request failed", error, client=repr(self))
        self.close()

    def close(self) -> None:
        """Let go of the socket; whatever was under way for it is forgotten."""
        if self.is_closed:
            return
        self.is_closed = True
        self._end_setup()
        if self._muted is not None:
            self._muted.cancel()
        self._pause()
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        for task in self._tasks:
            # After its first step: what was wrapped in a coroutine that never began would never be closed.
            self._loop.call_soon(task.cancel)
        if self._evaluated is not None:
            self._evaluated.cancel()
        self._steps = None
        self._leave_place()
        self._channel.close()
        self._socket.close()
        self._peer.leave()
        self._on_close(self)
