"""A publisher's decisions: what goes out, when, and what is held for repair. Pure: time and randomness are arguments.

Messages wait in a queue; as the pace allows they are put into datagrams, as many as fit, and what is longer than a
datagram is cut. What always holds: a datagram that was sent is held until the history is over its bounds, oldest first;
every datagram says how far back the history reaches; and after the last datagram heartbeats say what the next one would
be, at first often, so that its loss is noticed.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from headrace.gateways.errors import GatewayError
from headrace.gateways.multicast.pace import Pace
from headrace.gateways.multicast.repairs import Repairs
from headrace.gateways.multicast.wire import (
    AROUND_BYTES,
    BEGIN,
    END,
    LAST,
    MIDDLE,
    MOST_DATAGRAM_BYTES,
    PIECE_BYTES,
    Heartbeat,
    Nak,
    Seal,
    Session,
    write_data,
    write_heartbeat,
    write_piece,
)

_LEAST_DATAGRAM_BYTES: Final = 256
_SOON_S: Final = 0.02  # after a NAK for what is gone, its end is said; not more often than so
_ENTRY_BYTES: Final = 64  # what a message in the queue costs beside its bytes
_HELD_BYTES: Final = 160  # likewise a datagram in the history
_UNPACED_REPAIRS: Final = 8 * 1024 * 1024  # bytes a second, where there is no rate to take a share of


@dataclass(frozen=True, slots=True)
class SendingSettings:
    datagram_bytes: int = 1400  # below the 1472 that fit into an Ethernet frame: tunnels take some
    rate_bytes_s: float | None = 32 * 1024 * 1024
    repair_share: float = 0.25  # of the rate
    history_bytes: int = 16 * 1024 * 1024
    queue_bytes: int = 8 * 1024 * 1024
    message_bytes: int = 16 * 1024 * 1024
    linger_s: float = 0.0
    first_heartbeat_s: float = 0.05
    heartbeat_s: float = 1.0

    def __post_init__(self) -> None:
        if not _LEAST_DATAGRAM_BYTES <= self.datagram_bytes <= MOST_DATAGRAM_BYTES:
            raise GatewayError(
                f"datagram_bytes = {self.datagram_bytes} cannot be: name {_LEAST_DATAGRAM_BYTES} to "
                f"{MOST_DATAGRAM_BYTES}, and on an Ethernet at most 1472"
            )
        if self.rate_bytes_s is not None and self.rate_bytes_s < 1024:
            raise GatewayError(f"rate_bytes_s = {self.rate_bytes_s} is too little: name 1024 or more, or None")
        if not 0 < self.repair_share <= 1:
            raise GatewayError(f"repair_share = {self.repair_share} cannot be: name a share above 0 and up to 1")
        if self.message_bytes <= 0 or self.history_bytes < 0 or self.queue_bytes <= 0 or self.linger_s < 0:
            raise GatewayError("bounds of a publisher are not negative: mend message_bytes, history_bytes, queue_bytes")
        if not 0 < self.first_heartbeat_s <= self.heartbeat_s:
            raise GatewayError("heartbeat_s is at least first_heartbeat_s, and both are above 0")


class Offered(Enum):
    TAKEN = "taken"
    FULL = "full"


class _Held(NamedTuple):
    message: int
    pieces: bytes


@dataclass(slots=True)
class SendingCounts:
    messages: int = 0
    datagrams: int = 0
    bytes: int = 0
    repairs: int = 0
    naks: int = 0
    dropped: int = 0


class Sending:
    """One session, from its first message to its last heartbeat."""

    def __init__(
        self, settings: SendingSettings, session: Session, now: float, *, name: str = "", seal: Seal | None = None
    ) -> None:
        self.session = session
        self.counts = SendingCounts()
        self._settings = settings
        self._name = name
        self._seal = seal
        self._begun = now
        self._room = settings.datagram_bytes - AROUND_BYTES
        self._pace = Pace(settings.rate_bytes_s, 2 * settings.datagram_bytes)
        rate = settings.rate_bytes_s
        self._repairs = Repairs(
            _UNPACED_REPAIRS if rate is None else rate * settings.repair_share, settings.datagram_bytes
        )
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._queued_at = -inf  # the first that waits
        self._cut = 0  # so much of the first that waits has been sent
        self._history: deque[_Held] = deque()
        self._history_bytes = 0
        self._next = 0  # sequence
        self._message = 0  # number of the first that waits
        self._beat_at = now  # at once, so that receivers know of the session
        self._beat_pause = settings.first_heartbeat_s
        self._said_at = -inf
        self._is_over = False
        self._is_hurried = False  # nothing lingers until the queue is empty

    # --- messages

    @property
    def waiting_bytes(self) -> int:
        return self._queue_bytes

    @property
    def is_idle(self) -> bool:
        return not self._queue

    @property
    def first_held(self) -> int:
        return self._next - len(self._history)

    @property
    def next_sequence(self) -> int:
        return self._next

    @property
    def history_bytes(self) -> int:
        return self._history_bytes

    def offer(self, content: bytes, now: float) -> Offered:
        """Take a message into the queue, if it has room; a single one is always taken."""
        if len(content) > self._settings.message_bytes:
            raise GatewayError(
                f"a message of {len(content)} bytes is longer than message_bytes = {self._settings.message_bytes}: "
                "raise it here and at the subscribers, or send less"
            )
        if self._queue and self._queue_bytes + len(content) + _ENTRY_BYTES > self._settings.queue_bytes:
            return Offered.FULL
        if not self._queue:
            self._queued_at = now
        self._queue.append(content)
        self._queue_bytes += len(content) + _ENTRY_BYTES
        return Offered.TAKEN

    def drop_oldest(self) -> bool:
        """Leave out the oldest that waits and is not begun; whether there was one. It never had a number."""
        if self._cut:
            if len(self._queue) < 2:
                return False
            first = self._queue.popleft()
            self._queue_bytes -= len(self._queue.popleft()) + _ENTRY_BYTES
            self._queue.appendleft(first)
        elif self._queue:
            self._queue_bytes -= len(self._queue.popleft()) + _ENTRY_BYTES
        else:
            return False
        self.counts.dropped += 1
        return True

    # --- what receivers say

    def heard(self, nak: Nak, now: float) -> None:
        if nak.session != self.session:
            return
        self.counts.naks += 1
        if self._repairs.ask(nak, self.first_held, self._next):
            # It asks for what is gone: it is told so, and need not ask until it gives up.
            self._beat_at = min(self._beat_at, max(now, self._said_at + _SOON_S))

    # --- what goes out

    def transmit(self, now: float, wall_ms: int) -> Iterator[bytes]:
        """The datagrams that may go now; repairs first, they are what somebody waits for."""
        while self._pace.is_ready(now):
            sequence = self._repairs.next(now, self.first_held)
            if sequence is None:
                break
            held = self._history[sequence - self.first_held]
            datagram = self._datagram(sequence, held, now, wall_ms, is_repair=True)
            self._repairs.sent(sequence, len(datagram), now)
            self._pace.take(len(datagram))
            self.counts.repairs += 1
            yield datagram
        while self._may_pack(now) and self._pace.is_ready(now):
            datagram = self._next_datagram(now, wall_ms)
            self._pace.take(len(datagram))
            yield datagram
        if now >= self._beat_at:
            yield self._heartbeat(now, wall_ms)

    def _may_pack(self, now: float) -> bool:
        if not self._queue:
            return False
        return not self._lingers or now >= self._queued_at + self._settings.linger_s

    @property
    def _lingers(self) -> bool:
        """Whether what is in the queue may wait for more that shares its datagram."""
        return bool(self._settings.linger_s) and self._queue_bytes < self._room and not self._is_hurried

    def _next_datagram(self, now: float, wall_ms: int) -> bytes:
        """The next datagram of the queue: whole messages that fit, or a part of one that is longer than any."""
        message = self._message
        pieces: list[bytes] = []
        room = self._room
        queue = self._queue
        while queue and room > PIECE_BYTES:
            content = queue[0]
            left = len(content) - self._cut
            if left <= room - PIECE_BYTES:
                flags = END if self._cut else BEGIN | END
                pieces.append(write_piece(flags, content[self._cut :] if self._cut else content))
                room -= left + PIECE_BYTES
                queue.popleft()
                self._queue_bytes -= len(content) + _ENTRY_BYTES
                self._cut = 0
                self._message += 1
                continue
            if pieces and len(content) <= self._room - PIECE_BYTES:
                break  # it fits into the next as a whole
            taken = room - PIECE_BYTES
            pieces.append(write_piece(0 if self._cut else BEGIN, content[self._cut : self._cut + taken]))
            self._cut += taken
            break
        self._queued_at = now
        self._is_hurried = self._is_hurried and bool(queue)
        self.counts.messages += self._message - message
        held = _Held(message, b"".join(pieces))
        sequence = self._next
        self._next += 1
        self._history.append(held)
        self._history_bytes += len(held.pieces) + _HELD_BYTES
        while self._history_bytes > self._settings.history_bytes:
            self._history_bytes -= len(self._history.popleft().pieces) + _HELD_BYTES
        self._beat_pause = self._settings.first_heartbeat_s
        self._beat_at = now + self._beat_pause
        datagram = self._datagram(sequence, held, now, wall_ms, is_repair=False)
        self.counts.datagrams += 1
        self.counts.bytes += len(datagram)
        return datagram

    def _datagram(self, sequence: int, held: _Held, now: float, wall_ms: int, *, is_repair: bool) -> bytes:
        return write_data(
            self.session,
            is_repair=is_repair,
            sequence=sequence,
            held=max(sequence - self.first_held, 0),
            message=held.message,
            age_ms=self._age_ms(now),
            pieces=held.pieces,
            wall_ms=wall_ms,
            seal=self._seal,
        )

    def _heartbeat(self, now: float, wall_ms: int) -> bytes:
        flags = (LAST if self._is_over and not self._queue else 0) | (MIDDLE if self._cut else 0)
        self._beat_pause = min(self._beat_pause * 2, self._settings.heartbeat_s)
        self._beat_at = now + self._beat_pause
        self._said_at = now
        beat = Heartbeat(
            self.session, self._next, len(self._history), self._message, self._age_ms(now), flags, self._name
        )
        return write_heartbeat(beat, wall_ms, self._seal)

    def _age_ms(self, now: float) -> int:
        return int((now - self._begun) * 1000)

    def hurry(self) -> None:
        """Let nothing that is in the queue now wait for company."""
        self._is_hurried = bool(self._queue)

    def finish(self, now: float) -> None:
        """No message comes any more: from when the queue is empty, heartbeats say so."""
        self._is_over = True
        self.hurry()
        self._beat_pause = self._settings.first_heartbeat_s / 2
        self._beat_at = now

    def next_at(self, now: float) -> float:
        """When `transmit` has something to do."""
        due = self._beat_at
        if self._queue:
            ready_at = self._queued_at + self._settings.linger_s if self._lingers else now
            due = min(due, max(self._pace.ready_at(now), ready_at))
        repair_at = self._repairs.next_at(now)
        if repair_at is not None:
            due = min(due, max(repair_at, self._pace.ready_at(now)))
        return due
