"""From a socket into topics: what is pulled, what was subscribed to, and requests that are answered when it is durable.

What always holds: what has no room is left in the socket, where the high-water mark holds up whoever pushes, or is
dropped and counted, as the policy says; a request is answered when its record is durable, or with what is wrong; and
what cannot be read is counted and harms nothing.
"""

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Event
from typing import Final, Protocol

from headrace.connect.delivery import Entry
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.gateway import Overload, Progress
from headrace.gateways.inlet import Inlet, Overloaded
from headrace.gateways.inward import count_unwritten
from headrace.gateways.messaging.ends import Wire
from headrace.gateways.messaging.forms import DECODERS, Frame
from headrace.gateways.messaging.message import InvalidMessage, Message
from headrace.gateways.messaging.settings import SocketSettings
from headrace.gateways.writing import Lot, Placed

LATEST_MS: Final = 253_402_300_799_999  # the end of the year 9999
_TICK_S: Final = 0.2
_ROOM_S: Final = 0.01
_MOST_TOGETHER: Final = 256  # messages that are handed over as one
_BYTES_TOGETHER: Final = 64 * 1024
_WRITE_WITHIN_S: Final = 2.0
_GIVE_UP_AFTER_S: Final = 0.3


class GatewayWire(Wire, Protocol):
    """A wire that knows who is connected."""

    def connections(self) -> int: ...


def entry_of(message: Message, settings: SocketSettings) -> tuple[str, Entry]:
    """The topic and the record of a message."""
    topic = message.topic if message.topic in settings.topics else settings.topic
    key = message.topic.encode() if settings.is_keyed_by_topic else message.key
    at = message.timestamp_ms
    timestamp = at if 0 <= at <= LATEST_MS else time.time_ns() // 1_000_000
    headers = tuple((name, b"" if value is None else value) for name, value in message.headers)
    return topic, (key, message.value, timestamp, headers)


def answer_of(topic: str, future: "Future[list[Placed]]") -> tuple[bytes, HeadraceError | None]:
    """What is answered when a record is durable, or is not going to be."""
    error = future.exception()
    if error is None:
        placed = future.result()[0]
        said: Mapping[str, object] = {"topic": topic, "partition": placed.partition, "offset": placed.offset}
        return json.dumps(said).encode(), None
    refusal = error if isinstance(error, HeadraceError) else HeadraceError(f"{type(error).__name__}: {error}")
    return error_body(refusal), refusal


def error_body(error: HeadraceError) -> bytes:
    return json.dumps({"error": str(error)}).encode()


def offer(inlet: Inlet, lot: Lot, stopping: Event) -> "Future[list[Placed]] | None":
    """Hand records over once there is room; None if it is time to stop before. Raises `Overloaded` and `Stopped`."""
    while (found := inlet.offer(lot)) is None:
        if stopping.wait(_ROOM_S):
            return None
    return found


def close_inlet(inlet: Inlet, progress: Progress) -> None:
    """Write what waits, if the broker takes it in time; nothing more comes."""
    ends = time.monotonic() + _WRITE_WITHIN_S
    pause = Event()
    while inlet.bytes_waiting and not progress.waiting and time.monotonic() < ends:
        pause.wait(_ROOM_S)
    inlet.close(_GIVE_UP_AFTER_S)


class Incoming:
    """A gateway from a socket that only receives."""

    def __init__(
        self, settings: SocketSettings, inlet: Inlet, stopping: Event, open_wire: Callable[[], GatewayWire]
    ) -> None:
        self.name = settings.name
        self.source = settings.end
        self.target = ", ".join([settings.topic, *sorted(settings.topics - {settings.topic})])
        self.progress = inlet.progress
        self._settings = settings
        self._inlet = inlet
        self._stopping = stopping
        self._open_wire = open_wire
        self._decode = DECODERS[settings.form]
        self._bad = BadInput(settings.name, inlet.progress)

    def run(self) -> None:
        wire = self._open_wire()
        self._inlet.start()
        try:
            while not self._stopping.is_set():
                if self._inlet.failure is not None:
                    raise self._inlet.failure
                self._hand_over(self._gather(wire))
                self.progress.connections = wire.connections()
        finally:
            wire.close(0)
            close_inlet(self._inlet, self.progress)

    def _gather(self, wire: GatewayWire) -> dict[str, list[Entry]]:
        """What has come, up to so much that it is handed over together."""
        found: dict[str, list[Entry]] = {}
        count = size = 0
        frame = wire.receive(_TICK_S)
        while frame is not None:
            self.progress.received += 1
            size += self._take(frame, found)
            count += 1
            if count == _MOST_TOGETHER or size >= _BYTES_TOGETHER:
                break
            frame = wire.try_receive()
        return found

    def _take(self, frame: Frame, found: dict[str, list[Entry]]) -> int:
        try:
            topic, entry = entry_of(self._decode(frame), self._settings)
        except InvalidMessage as error:
            self._bad.refuse(str(error))
            return 0
        found.setdefault(topic, []).append(entry)
        return len(entry[1] or b"")

    def _hand_over(self, gathered: Mapping[str, list[Entry]]) -> None:
        for topic, entries in gathered.items():
            try:
                future = offer(self._inlet, Lot(topic, entries), self._stopping)
            except Overloaded:  # there is nobody who could be told
                self.progress.dropped += len(entries)
                continue
            if future is None:
                self.progress.more["not_written"] = self.progress.more.get("not_written", 0) + len(entries)
            else:
                count_unwritten(future, len(entries), self.progress)


__all__ = [
    "GatewayWire", "Incoming", "Overload", "answer_of", "close_inlet", "entry_of", "error_body", "offer",
]  # fmt: skip
