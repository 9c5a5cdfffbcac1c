"""One client's connection: bytes in, requests in order; answers in order, bytes out.

What always holds:
- requests are handled as they come, and answered in that order, however long one of them waits;
- a request's record batches are used where they were received; nothing of a frame is kept once its handler returned;
- a client that does not read its answers, or has too many requests under way, is not read from until it does: it holds
  up nobody else and costs no more memory;
- a malformed frame closes the connection, with a log line, and touches nothing else.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.config import Address
from headrace.broker.context import Context
from headrace.broker.deferred import Deferred
from headrace.broker.file_views import view_of
from headrace.broker.handlers.api_versions import fallback
from headrace.broker.registry import HANDLERS, SERVED
from headrace.broker.runtime import Runtime
from headrace.errors import HeadraceError
from headrace.protocol.api import ApiKey
from headrace.protocol.codec import decode_prefix
from headrace.protocol.errors import UnsupportedVersion
from headrace.protocol.frame import decode_request_header, encode_response_parts, split_frames
from headrace.protocol.schema import Message
from headrace.storage.segment import FileSlice
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)

SHARED_BUFFER_BYTES = 256 * 1024
_MAX_UNDER_WAY = 128  # requests of one connection; Kafka's clients have five
_MAX_UNSENT_BYTES = 1024 * 1024
_IOV = 64

Part = bytes | bytearray | memoryview | FileSlice


class _Slot:
    """An answer's place in the order of answers."""

    __slots__ = ("is_ready", "parts")

    def __init__(self) -> None:
        self.is_ready = False
        self.parts: list[Part] = []


class Connection:
    """A non-blocking socket, and what has been read from it and not yet written to it."""

    def __init__(
        self,
        sock: socket.socket,
        runtime: Runtime,
        loop: asyncio.AbstractEventLoop,
        shared: bytearray,
        on_close: Callable[["Connection"], None],
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._runtime = runtime
        self._loop = loop
        self._on_close = on_close
        self._max_frame = runtime.config.number("socket.request.max.bytes")
        host, port = sock.getsockname()[:2]
        self._local = Address(host.removeprefix("::ffff:"), port)
        self._client_host = str(sock.getpeername()[0])
        # All connections read into one shared buffer; one that is in the middle of a frame has its own, and keeps it.
        self._shared = shared
        self._own: bytearray | None = None
        self._filled = 0
        self._slots: deque[_Slot] = deque()
        self._out: deque[Part] = deque()
        self._unsent_bytes = 0
        self._is_reading = False
        self._is_writing = False
        self._is_gathering = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self.last_active = time.monotonic()
        self._read()

    def __repr__(self) -> str:
        try:
            return f"{self._socket.getpeername()[:2]}"
        except OSError:
            return "a closed connection"

    # --- in

    def _read(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        buffer = self._own if self._own is not None else self._shared
        try:
            count = self._socket.recv_into(memoryview(buffer)[self._filled :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if not count:
            self.close()
            return
        self.last_active = time.monotonic()
        self._filled += count
        try:
            self._take_frames(buffer)
        except HeadraceError as error:
            _log.warning("connection closed", client=repr(self), reason=str(error))
            self.close()

    def _take_frames(self, buffer: bytearray) -> None:
        view = memoryview(buffer)[: self._filled]
        frames, consumed, wanted = split_frames(view, self._max_frame)
        # Answers to what came together go together: one system call for all of them.
        self._is_gathering = True
        for frame in frames:
            if self.is_closed:
                return
            self._handle(frame)
        self._is_gathering = False
        frames.clear()
        if self._out and not self._is_writing:
            self._send()
        left = self._filled - consumed
        if left or wanted > len(buffer):
            self._keep_rest(view, consumed, wanted)
        else:
            self._filled = 0
        if len(self._slots) >= _MAX_UNDER_WAY or self._unsent_bytes > _MAX_UNSENT_BYTES:
            self._pause()

    def _keep_rest(self, view: memoryview, consumed: int, wanted: int) -> None:
        """Move an unfinished frame to the front of a buffer of our own that it fits into."""
        left = self._filled - consumed
        if self._own is None or len(self._own) < wanted:
            # Twice the frame: the next one begins in the same read, and need not be moved.
            own = bytearray(max(2 * wanted, SHARED_BUFFER_BYTES))
            own[:left] = view[consumed:]
            view.release()
            self._own = own
        elif consumed:
            rest = bytes(view[consumed:])
            view.release()
            self._own[:left] = rest
        self._filled = left

    # --- requests

    def _handle(self, frame: memoryview) -> None:
        try:
            api, header, position = decode_request_header(frame)
            handler = HANDLERS.get(api.key)
            version = header.request_api_version
            if handler is None or version not in handler.versions:
                raise UnsupportedVersion(api.key, version, header.correlation_id)
            body, _ = decode_prefix(api.request, version, frame, position)
        except UnsupportedVersion as error:
            if error.api_key != ApiKey.API_VERSIONS or error.correlation_id is None:
                raise
            # A client newer than us asks with the newest version it knows, and falls back on this (KIP-511).
            self._slots.append(slot := _Slot())
            self._answer(slot, fallback(SERVED), 0, error.correlation_id)
            return
        answer = handler.run(
            Context(self._runtime, version, header.client_id, SERVED, self._client_host, self._local), body
        )
        if answer is None:
            return
        slot = _Slot()
        self._slots.append(slot)
        correlation_id = header.correlation_id
        if isinstance(answer, Message):
            self._answer(slot, answer, version, correlation_id)
        elif isinstance(answer, Deferred):
            answer.then(lambda message: self._answer(slot, message, version, correlation_id))
        else:
            task = self._loop.create_task(self._await(answer, slot, version, correlation_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _await(
        self, answer: Coroutine[Any, Any, Message], slot: _Slot, version: int, correlation_id: int
    ) -> None:
        try:
            message = await answer
        except (HeadraceError, OSError) as error:
            _log.error("request failed", client=repr(self), error=str(error))
            self.close()
            return
        self._answer(slot, message, version, correlation_id)

    # --- out

    def _answer(self, slot: _Slot, message: Message | None, version: int, correlation_id: int) -> None:
        if self.is_closed:
            return
        if message is None:  # what was asked for could not be written down: the client is to ask again
            self.close()
            return
        slot.parts = encode_response_parts(message, version, correlation_id)  # type: ignore[assignment]  # with slices
        slot.is_ready = True
        slots = self._slots
        if slots[0] is not slot:
            return
        out = self._out
        while slots and slots[0].is_ready:
            for part in slots.popleft().parts:
                out.append(part)
                self._unsent_bytes += len(part)
        if not self._is_writing and not self._is_gathering:
            self._send()

    def _send(self) -> None:
        """Write as much as the socket takes; the rest when it takes more."""
        try:
            while self._out:
                self._send_some()
        except (BlockingIOError, InterruptedError):
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._fd, self._send)
            if self._unsent_bytes > _MAX_UNSENT_BYTES:
                self._pause()
            return
        except OSError:
            self.close()
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        if not self._is_reading and len(self._slots) < _MAX_UNDER_WAY:
            self._read()

    def _send_some(self) -> None:
        """One system call: as many parts as it takes, up to and including the beginning of a large slice."""
        out = self._out
        parts: list[bytes | bytearray | memoryview] = []
        while out and len(parts) < _IOV:
            part = out.popleft()
            if not isinstance(part, FileSlice):
                parts.append(part)
                continue
            parts.append(view := view_of(part))
            if len(view) < part.size:
                out.appendleft(FileSlice(part.file, part.position + len(view), part.size - len(view)))
                break
        try:
            sent = self._socket.sendmsg(parts)
        except OSError:
            out.extendleft(reversed(parts))
            raise
        self._unsent_bytes -= sent
        for index, part in enumerate(parts):
            if sent < len(part):
                # What is mapped stays mapped until it is sent: mapping it again would cost more than sending it.
                out.extendleft(reversed([memoryview(part)[sent:], *parts[index + 1 :]]))
                return
            sent -= len(part)

    # --- the end

    def close(self) -> None:
        """Let go of the socket; whatever was under way for it is forgotten."""
        if self.is_closed:
            return
        self.is_closed = True
        self._pause()
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        for task in self._tasks:
            task.cancel()
        self._slots.clear()
        self._out.clear()
        self._socket.close()
        self._on_close(self)
