"""One client's connection: the socket and the event loop around a `Channel`, and requests handed to their handlers.

Here it is read from, and kept from reading; `admission.py` lets the client in, and `answers.py` answers it.

What always holds:
- requests are handled as they come, and answered in that order, however long one of them waits; one that is handled in
  several turns is through before the next one begins;
- a request's record batches are used where they were received; nothing of a frame is kept once its handler returned;
- a client that does not read its answers, or has too many requests under way, is not read from until it does: it holds
  up nobody else and costs no more memory; nor is one that has used more than its quota, for as long as that takes;
- one connection holds the loop for a turn at most, whatever it has sent, and is never served within another's turn;
- once the broker ends, what was begun is answered and nothing is begun; then the client sees an orderly end.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from functools import partial
from time import monotonic

from headrace.broker.admission import AdmittedConnection
from headrace.broker.answers import Stream
from headrace.broker.channel import SHARED_BUFFER_BYTES, Slot
from headrace.broker.config import Address
from headrace.broker.endpoint import Endpoint
from headrace.broker.handler import Context, Handled, Peer
from headrace.broker.handlers.api_versions import fallback
from headrace.broker.limits import QUEUED_BYTES
from headrace.broker.load import LARGE_TURNS, Share
from headrace.broker.registry import HANDLERS, SERVED
from headrace.broker.runtime import Runtime
from headrace.broker.throttling import Meter
from headrace.broker.turns import COUNTED_S, QUEUED_TURN_S, ROUND_S, TURN_S, Steps, run_until
from headrace.protocol.api import ApiKey
from headrace.protocol.codec import decode_prefix, decoding_prefix
from headrace.protocol.errors import UnsupportedVersion
from headrace.protocol.frame import RequestHeader, decode_request_header
from headrace.protocol.schema import Message, Struct

# A frame up to this size is decoded in one step: less than a turn, if it is nothing but tiny entries.
_DECODED_AT_ONCE_BYTES = 4 * 1024

_DISCARDED_BYTES = 64 * 1024  # at a time
_LOOK_S = 0.5  # for the end of a client that is not read from
_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # where there is none, poll tells of it unasked, as of errors
_LINGER_S = 0.5  # so long a client has to hang up, once it was told that nothing more comes

_SILENT_S = 1.0  # in the midst of a request, while others wait for the memory that it holds
_SLOWEST_S = 10.0  # for a whole request, while others wait
_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")  # how its frames begin


def _waits_for_others(slot: Slot) -> bool:
    return not slot.is_ready and slot.stats is not None and slot.stats.waits_for_others


class Connection(AdmittedConnection):
    __slots__ = (
        "_advertised",
        "_has_place",
        "_holds",
        "_is_draining",
        "_is_parked",
        "_is_queued",
        "_is_reading",
        "_is_through",
        "_load",
        "_muted",
        "_on_close",
        "_peer",
        "_steps",
        "_steps_bytes",
        "_steps_turns",
        "_watch",
    )

    def __init__(
        self,
        sock: Stream,
        endpoint: Endpoint,
        runtime: Runtime,
        loop: asyncio.AbstractEventLoop,
        shared: bytearray,
        on_close: Callable[["Connection"], None],
    ) -> None:
        host, port = sock.getsockname()[:2]
        super().__init__(sock, Share(runtime.load, self), endpoint, runtime, loop, shared)
        self._on_close = on_close
        self._load = runtime.load
        self._advertised = endpoint.advertise(Address(host.removeprefix("::ffff:"), port))
        self._peer = Peer(self._client[1], hold=self._hold)
        self._watch: asyncio.TimerHandle | None = None  # for its end, while it is not read from
        self._holds = 0  # requests that have to be through before the next is taken, whatever they wait for
        self._steps: Steps[None] | None = None  # of the request that is being handled
        self._steps_bytes = 0  # how large it is
        self._steps_turns = 0  # how many turns it has had that were not enough
        self._is_parked = False  # until other large requests are through
        self._has_place = False  # among the large requests that are not parked
        self._is_reading = False
        self._is_queued = False  # to take frames when our turn comes
        self._is_draining = False  # the broker ends
        self._is_through = False  # everything is answered, and the client knows that nothing more will come
        self._muted: asyncio.TimerHandle | None = None
        self._read()

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
        if self._turns.is_over:  # the loop comes back
            self.close_if_reset()
            return
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
        return self._take_handled(run(context, body), header)

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

    # --- who has to wait

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
        if self._loan is None:
            self._socket.close()
        else:
            self._loan.leave()
        self._peer.leave()
        self._on_close(self)
