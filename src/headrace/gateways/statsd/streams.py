"""Lines over connections: TCP, and Unix sockets whose clients may put a length before each packet, as Datadog's do.

What always holds: a line that is not over stays with its connection, within the longest a line may be; one that is
longer is refused and read past; and a line that its connection did not end is no line.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Final

import uvloop

from headrace.gateways.bad_input import BadInput
from headrace.gateways.framing import Frames
from headrace.gateways.inward import stopped
from headrace.gateways.streams import Connection, Streams, StreamSettings, read_frames

_LARGEST: Final = 64 * 1024
_LENGTH: Final = 4  # bytes, the least first
_ENDING_S: Final = 0.3

Feed = Callable[[bytes], None]
Refuse = Callable[[str, int], None]


@dataclass(slots=True)
class PacketFramer:
    """What one connection sends, cut into packets of whole lines. Pure."""

    line_bytes: int
    too_long: int = 0  # lines that were refused
    _held: bytearray = field(default_factory=bytearray)
    _has_lengths: bool | None = None  # None while nobody knows
    _is_skipping: bool = False

    def feed(self, data: bytes) -> Frames:
        self._held += data
        if self._has_lengths is None:
            if len(self._held) < _LENGTH:  # no line is that short, and a length may have the number of a line feed
                return Frames()
            # No text has a zero in it, and no packet that is taken is so long that its length has none.
            self._has_lengths = self._held[2:_LENGTH] == b"\0\0"
        return self._by_length() if self._has_lengths else self._by_line()

    def finish(self) -> Frames:
        return Frames(problem="a connection ended within a line" if self._held.strip(b"\r\n") else "")

    def _by_line(self) -> Frames:
        if self._is_skipping:
            end = self._held.find(b"\n") + 1
            if not end:
                self._held.clear()
                return Frames()
            del self._held[:end]
            self._is_skipping = False
        end = self._held.rfind(b"\n") + 1
        frames = [bytes(self._held[:end])] if end else []
        del self._held[:end]
        if len(self._held) > self.line_bytes:
            self._held.clear()
            self._is_skipping = True
            self.too_long += 1
        return Frames(frames)

    def _by_length(self) -> Frames:
        found, at = Frames(), 0
        while len(self._held) - at >= _LENGTH:
            size = int.from_bytes(self._held[at : at + _LENGTH], "little")
            if size > _LARGEST:
                sentence = f"a packet of {size:,} bytes is announced, more than the {_LARGEST:,} that are taken"
                return Frames(found.frames, problem=sentence)
            if len(self._held) - at - _LENGTH < size:
                break
            found.frames.append(bytes(self._held[at + _LENGTH : at + _LENGTH + size]))
            at += _LENGTH + size
        del self._held[:at]
        return found


class StreamIntake:
    """All connections, on an event loop of their own; takes its ports when it is made."""

    def __init__(
        self, settings: StreamSettings, line_bytes: int, bad_input: BadInput, feed: Feed, refuse: Refuse
    ) -> None:
        self._line_bytes = line_bytes
        self._bad_input = bad_input
        self._feed = feed
        self._refuse = refuse
        self._streams = Streams(settings, self._serve, bad_input.progress)

    @property
    def sources(self) -> list[str]:
        return self._streams.sources

    def release(self) -> None:
        self._streams.release()

    def run(self, stopping: Event) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run(stopping))

    async def _run(self, stopping: Event) -> None:
        try:
            await self._streams.open()
            await stopped(stopping)
            await self._streams.read_rest()
        finally:
            self._streams.stop_reading()
            await self._streams.end(_ENDING_S)

    async def _serve(self, connection: Connection) -> None:
        framer = PacketFramer(self._line_bytes)

        async def take(found: Frames, _: bool) -> None:
            for packet in found.frames:
                self._feed(packet)
            if framer.too_long:
                self._refuse(f"a line has more bytes than the {self._line_bytes} of max_line", framer.too_long)
                framer.too_long = 0

        await read_frames(connection, framer, take, self._bad_input, lambda: True)
