"""The side of a connection that answers: what handlers return, encoded in turns and written as the socket takes it.

What always holds:
- answers leave in the order of their requests, however long one of them waits (`channel.py`);
- nothing that is awaited raises into whoever it was awaited from: an error closes this connection, and touches nothing
  else;
- encoding and sending keep to a turn; what is left waits for the next one, and large answers are let go of in turns;
- large parts of log files are sent by a thread (`lending.py`); until it gives the socket back, nothing else is sent.
"""

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from time import monotonic
from types import GeneratorType
from typing import Any, Protocol

from headrace.broker.channel import LENT_AT_LEAST_BYTES, LENT_FROM_BYTES, MAX_PARTS, Channel, Sendable, Slot
from headrace.broker.file_views import view_for_thread, view_of
from headrace.broker.handler import Answer, Handled
from headrace.broker.lending import Loan
from headrace.broker.load import Share
from headrace.broker.metrics import ApiStats
from headrace.broker.runtime import Runtime
from headrace.broker.turns import QUEUED_TURN_S, TURN_S, Deferred, Steps
from headrace.protocol.codec import releasing
from headrace.protocol.frame import RequestHeader, encoding_response_parts
from headrace.protocol.schema import Message, Struct

# To clients on this machine, to which no network has to be kept full: what waits for them is then still in the
# processor's cache when they read it. The system would have megabytes wait.
LOCAL_SEND_BUFFER_BYTES = 400_000


def _is_local(host: str) -> bool:
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"


class Stream(Protocol):
    """What a connection needs of a socket, whether it is one or TLS over one."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def sendmsg(self, parts: list[Sendable], /) -> int: ...
    def getsockopt(self, level: int, name: int, /) -> int: ...
    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...
    def getsockname(self) -> Any: ...
    def getpeername(self) -> Any: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class AnsweringConnection:
    # Not for the memory: an object of more than thirty attributes loses CPython's quick look-ups, a tenth of a request.
    __slots__ = (
        "_began_s",
        "_channel",
        "_fd",
        "_has_lent",
        "_is_taking",
        "_is_writing",
        "_loan",
        "_loop",
        "_runtime",
        "_share",
        "_socket",
        "_stats",
        "_tasks",
        "_turns",
        "_view_of",
        "is_closed",
        "last_active",
    )

    max_parts = MAX_PARTS  # in one call that sends
    lends = True  # whether a thread may send on the socket

    def __init__(
        self, sock: Stream, share: Share, runtime: Runtime, loop: asyncio.AbstractEventLoop, shared: bytearray
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._runtime = runtime
        self._turns = runtime.turns
        self._loop = loop
        self._share = share
        max_bytes = runtime.config.number("socket.request.max.bytes")
        self._channel = Channel(shared, max_bytes, share, runtime.turns.run)
        self._stats: ApiStats  # of the request that is being handled, and since when it is
        self._began_s = 0.0
        self._view_of = view_of
        self._is_writing = False  # whether the socket has to take something first, or a thread is at it
        self._loan: Loan | None = None
        self._has_lent = False
        self._is_taking = False  # frames, just now
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self.last_active = monotonic()

    @abstractmethod
    def _pause(self) -> None:
        """Read no more from the client."""

    @abstractmethod
    def _resume(self) -> None:
        """Go on with the requests that had to wait."""

    @abstractmethod
    def _fail(self, error: Exception) -> None:
        """Close because of an error."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the socket."""

    # --- what handlers return

    def _take_handled(self, handled: Handled, header: RequestHeader) -> Steps[None] | None:
        if isinstance(handled, GeneratorType):
            return self._finish_in_steps(handled, header)
        return self._take_answer(handled, header)  # type: ignore[arg-type]  # no steps

    def _finish_in_steps(self, handling: Steps[Answer], header: RequestHeader) -> Steps[None]:
        steps = self._take_answer((yield from handling), header)  # without a name: it is let go of in steps, too
        if steps is not None:
            yield from steps

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

    def _release(self, held: list[Struct]) -> None:
        """Let go of a large request or answer, in turns."""
        self._turns.later(lambda: self._turns.run(releasing(held), QUEUED_TURN_S))

    # --- out

    def _fill(self, slot: Slot, parts: list[Any]) -> None:
        if self.is_closed:
            return
        if self._channel.fill(slot, parts, monotonic()) and not self._is_writing and not self._is_taking:
            senders = self._turns.senders
            if senders is None:
                self._send()
            else:
                senders[self] = None

    def send(self) -> None:
        """Send what was answered together with other answers."""
        if self._channel.has_unsent and not (self.is_closed or self._is_writing or self._is_taking):
            self._send()

    def _on_writable(self) -> None:
        if self._turns.is_over:  # the loop comes back
            self.close_if_reset()
            return
        began_s = monotonic()
        self._send()
        self._turns.spend(monotonic() - began_s)

    def close_if_reset(self) -> None:
        """The loop tells of a socket that was reset once, and not again of one that was not read to its end then."""
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close()

    def _send(self) -> None:
        """Write as much as the socket takes within a turn; the rest when it takes more, and others were served."""
        channel = self._channel
        now_s = monotonic()
        end_s = now_s + TURN_S
        try:
            while channel.has_unsent:
                if self.lends and channel.unsent_bytes >= LENT_AT_LEAST_BYTES and self._runtime.senders.have_room:
                    lent_from = LENT_FROM_BYTES if self._turns.take_large(self._fd) else LENT_AT_LEAST_BYTES
                    views = channel.lend(view_for_thread, lent_from)
                    if views:
                        self._lend(views)
                        return
                if now_s >= end_s:
                    self._wait_to_write()
                    return
                parts = channel.gather(self._view_of, self.max_parts)
                try:
                    sent = self._socket.sendmsg(parts)
                except (BlockingIOError, InterruptedError):
                    channel.take_back(0)
                    self._wait_to_write()
                    return
                except OSError:
                    self.close()
                    return
                channel.take_back(sent)
                now_s = monotonic()
                if self._is_writing:  # one that takes its answers slowly is not idle
                    self.last_active = now_s
        except Exception as error:  # noqa: BLE001 - a file that cannot be read, or was cut
            self._fail(error)
            return
        self._stop_writing()
        if self._share.unsent_bytes:
            self._channel.hold_unsent()
        if not self._is_taking:
            self._resume()

    def _wait_to_write(self) -> None:
        self._channel.hold_unsent()
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        if self._channel.is_full:
            self._pause()

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)

    def _lend(self, views: list[memoryview]) -> None:
        """Have a thread send; whatever is filled meanwhile waits."""
        if not self._has_lent:
            self._has_lent = True
            with suppress(OSError):  # it has left, which the thread will see
                if _is_local(self._socket.getpeername()[0]):
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BUFFER_BYTES)
        self._stop_writing()
        self._is_writing = True
        self._channel.hold_unsent()
        self._loan = self._runtime.senders.lend(self._socket, views, self._return_loan)  # type: ignore[arg-type]
        if self._channel.is_full:
            self._pause()

    def _return_loan(self, sent: int, is_broken: bool) -> None:
        self._loop.call_soon_threadsafe(self._take_back, sent, is_broken)

    def _take_back(self, sent: int, is_broken: bool) -> None:
        if self.is_closed:
            return
        self._loan = None
        self._is_writing = False
        if is_broken:
            self.close()
            return
        began_s = monotonic()
        if sent:
            self.last_active = began_s
        if self._channel.take_back(sent):
            self._send()
        else:
            self._wait_to_write()
        self._turns.spend(monotonic() - began_s)
