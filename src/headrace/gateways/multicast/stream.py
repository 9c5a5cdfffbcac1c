"""One session at a receiver: datagrams in any order in, messages in order and losses out. Pure.

Everything before the frontier is settled. Datagrams from there on are held until what is before them has come or is
given up; what is not there and not given up is a hole, and holes are asked for.

What always holds: every message from the first one on is emitted once or told lost once, decided by the numbers that
datagrams and heartbeats carry; nothing is told lost before the frontier is behind it; and what is held has bounds, at
which the oldest holes are given up.
"""

from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from headrace.gateways.errors import GatewayError
from headrace.gateways.multicast.events import Event, Lost, Why
from headrace.gateways.multicast.message import InvalidMessage, Message, read_content
from headrace.gateways.multicast.wire import BEGIN, END, LAST, MIDDLE, MOST_RANGES, Data, Heartbeat, Piece, Session

_HELD_BYTES: Final = 400  # what a held datagram costs beside its bytes
_MOST_ASKED: Final = 512  # holes that are asked for at a time


@dataclass(frozen=True, slots=True)
class ReceivingSettings:
    on_arrival: bool = False  # messages are emitted as they are whole, not in order
    from_history: bool = False  # of a session that is older than this receiver: from the oldest that is held
    window_datagrams: int = 16_384
    window_bytes: int = 32 * 1024 * 1024  # of all sessions together
    message_bytes: int = 16 * 1024 * 1024
    backoff_s: float = 0.01  # the first NAK comes after a random part of this: another receiver's may spare it
    repair_wait_s: float = 0.04  # then it asks again, after twice as long each time
    longest_wait_s: float = 0.5
    attempts: int = 8
    silence_s: float = 5.0  # a session that is not heard for so long has ended
    sessions: int = 64

    def __post_init__(self) -> None:
        if self.window_datagrams < 2 or self.window_bytes < 65_536 or self.message_bytes < 1:
            raise GatewayError(
                "the bounds of a subscriber are too small: window_datagrams is 2 or more, window_bytes 65536 or more"
            )
        if min(self.backoff_s, self.repair_wait_s, self.longest_wait_s, self.silence_s) <= 0 or self.attempts < 1:
            raise GatewayError("the waits of a subscriber are above 0, and it asks at least once (attempts)")
        if self.sessions < 1:
            raise GatewayError(f"sessions = {self.sessions} cannot be: a subscriber hears at least one publisher")


class Position(NamedTuple):
    """Where a session is gone on with: in this datagram, at this message."""

    sequence: int
    message: int | None  # None: at the first that begins there


@dataclass(slots=True)
class _Hole:
    due: float
    attempts: int = 0


@dataclass(slots=True)
class _Ahead:
    """A message in several datagrams, all of them behind the frontier."""

    first: int = -1
    last: int = -1
    count: int = 0


@dataclass(slots=True)
class StreamCounts:
    messages: int = 0
    lost: int = 0
    duplicates: int = 0
    repaired: int = 0
    naks: int = 0


class Stream:
    def __init__(
        self, session: Session, begin: Position, settings: ReceivingSettings, random: Random, now: float
    ) -> None:
        self.session = session
        self.heard_at = now
        self.counts = StreamCounts()
        self.name = ""
        self.is_over = False  # its last heartbeat came
        self.due = float("inf")  # of the next NAK
        self._asked_at = float("-inf")
        self._settings = settings
        self._random = random
        self._next, self._message = begin
        self._end = begin.sequence  # behind the last that is known to have been sent
        self._announced: tuple[int, int] | None = None  # a sequence, and the number of the message that begins there
        self._announced_middle = False
        self._held: dict[int, Data] = {}
        self._held_bytes = 0
        self._holes: dict[int, _Hole] = {}
        self._parts: list[bytes] = []  # of the message at the frontier
        self._parts_bytes = 0
        self._parts_at = -1  # the datagram that brought the last of them
        self._early: set[int] = set()  # messages ahead of the frontier that were emitted
        self._ahead: dict[int, _Ahead] = {}

    @property
    def position(self) -> Position:
        """From where another receiver can go on; a message that is begun is read again from its first datagram."""
        return Position(self._next, self._message)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes + self._parts_bytes

    @property
    def holes(self) -> int:
        return len(self._holes)

    @property
    def is_settled(self) -> bool:
        return self._next == self._end and not self._parts

    # --- what is heard

    def receive(self, data: Data, now: float) -> list[Event]:
        self.heard_at = now
        if not data.is_repair:
            self.is_over = False
        sequence = data.sequence
        emitted: list[Event] = []
        if sequence == self._next and sequence == self._end:
            # As it should be: nothing is awaited.
            self._next = self._end = sequence + 1
            self._consume(data, emitted)
            self._settle_announced(emitted)
            return emitted
        if sequence < self._next or sequence in self._held:
            self.counts.duplicates += 1
            self._give_up_before(sequence - data.held, emitted)
            return emitted
        self._extend(sequence, now, emitted)
        self._end = max(self._end, sequence + 1)
        if self._holes.pop(sequence, None) is not None and data.is_repair:
            self.counts.repaired += 1
        self._held[sequence] = data
        self._held_bytes += data.size + _HELD_BYTES
        if self._settings.on_arrival and sequence != self._next:
            self._emit_early(data, emitted)
        self._give_up_before(sequence - data.held, emitted)
        self._advance(emitted)
        return emitted

    def receive_heartbeat(self, beat: Heartbeat, now: float) -> list[Event]:
        self.heard_at = now
        self.name = beat.name
        emitted: list[Event] = []
        if beat.sequence < self._end:
            return emitted  # a datagram overtook it
        self.is_over = bool(beat.flags & LAST)
        self._extend(beat.sequence, now, emitted)
        self._announced, self._announced_middle = (beat.sequence, beat.message), bool(beat.flags & MIDDLE)
        self._give_up_before(beat.sequence - beat.held, emitted)
        self._advance(emitted)
        return emitted

    def suppress(self, ranges: tuple[tuple[int, int], ...], now: float) -> None:
        """Another receiver has asked for these: the answer comes to all."""
        for first, count in ranges:
            if count > len(self._holes):
                wanted = [sequence for sequence in self._holes if first <= sequence < first + count]
            else:
                wanted = [sequence for sequence in range(first, first + count) if sequence in self._holes]
            for sequence in wanted:
                self._postpone(self._holes[sequence], now)

    # --- holes

    def _extend(self, end: int, now: float, emitted: list[Event]) -> None:
        """Up to here has been sent: what is not there is a hole."""
        if end <= self._end:
            return
        lowest = end - self._settings.window_datagrams
        if lowest > self._next:
            self._skip_to(lowest, emitted)
        first, self._end = self._end, end
        due = now + self._random.random() * self._settings.backoff_s
        for sequence in range(first, end):
            self._holes[sequence] = _Hole(due)
        self.due = min(self.due, due)

    def asked(self, now: float, emitted: list[Event]) -> tuple[tuple[int, int], ...]:
        """The ranges to ask for now; what was asked for too often is given up."""
        if now < self.due:
            return ()
        ranges: list[list[int]] = []
        given_up: list[int] = []
        asked = 0
        self.due = float("inf")
        for sequence in sorted(self._holes):
            hole = self._holes[sequence]
            if hole.due > now:
                self.due = min(self.due, hole.due)
                asked += 1
            elif hole.attempts >= self._settings.attempts:
                given_up.append(sequence)
            else:
                if ranges and ranges[-1][0] + ranges[-1][1] == sequence:
                    ranges[-1][1] += 1
                elif len(ranges) < MOST_RANGES:
                    ranges.append([sequence, 1])
                else:
                    self.due = now
                    break
                self._postpone(hole, now)
                asked += 1
            if asked >= _MOST_ASKED:
                # The rest has its turn when these have come, or have been waited for.
                self.due = min(self.due, now + self._settings.repair_wait_s)
                break
        if given_up:
            for sequence in given_up:
                del self._holes[sequence]
            self._advance(emitted)
        if ranges:
            self.counts.naks += 1
            self._asked_at = now
        return tuple((first, count) for first, count in ranges)

    def _postpone(self, hole: _Hole, now: float) -> None:
        wait_s = min(self._settings.repair_wait_s * 2.0**hole.attempts, self._settings.longest_wait_s)
        if self.heard_at >= self._asked_at:
            hole.attempts += 1  # while the publisher is not heard at all, nothing is given up for want of an answer
        hole.due = now + wait_s * (1 + self._random.random() / 4)
        self.due = min(self.due, hole.due)

    def _give_up_before(self, first_held: int, emitted: list[Event]) -> None:
        """What is before this is held by nobody any more."""
        if first_held <= self._next or not self._holes:
            return
        gone = [sequence for sequence in self._holes if sequence < first_held]
        if gone:
            for sequence in gone:
                del self._holes[sequence]
            self._advance(emitted)

    def give_up_first(self, emitted: list[Event]) -> bool:
        """Give up the oldest hole, for its place; whether there was one."""
        if not self._holes:
            return False
        del self._holes[min(self._holes)]
        self._advance(emitted)
        return True

    def give_up_all(self, emitted: list[Event]) -> None:
        """The session is over: what has not come does not come."""
        self._holes.clear()
        self._advance(emitted)
        if self._parts and self._message is not None:
            self._lose(self._message, self._message, Why.UNFINISHED, emitted)

    def _skip_to(self, lowest: int, emitted: list[Event]) -> None:
        for sequence in [each for each in self._holes if each < lowest]:
            del self._holes[sequence]
        self._advance(emitted)
        if self._next < lowest:  # what lies between was never known of
            self._next = self._end = lowest

    # --- the frontier

    def _advance(self, emitted: list[Event]) -> None:
        while self._next < self._end:
            data = self._held.pop(self._next, None)
            if data is not None:
                self._held_bytes -= data.size + _HELD_BYTES
                self._next += 1
                self._consume(data, emitted)
            elif self._next in self._holes:
                break
            elif self._held or self._holes:
                # Given up. Over the many that may have been, in one go.
                ahead = self._next + 1
                while ahead < self._end and ahead not in self._held and ahead not in self._holes:
                    ahead += 1
                self._next = ahead
            else:
                self._next = self._end
        self._settle_announced(emitted)

    def _consume(self, data: Data, emitted: list[Event]) -> None:
        number = data.message
        for flags, piece in data.pieces:
            expected = self._message
            if expected is None:
                if not flags & BEGIN:  # of a message that began before this receiver listened
                    number += flags >> 1
                    continue
                expected = self._message = number
            if number > expected:
                self._lose(expected, number - 1, Why.UNREPAIRED, emitted)
                expected = number
            if number == expected:
                self._take(flags, piece, number, data.sequence, emitted)
            number += flags >> 1  # END

    def _take(self, flags: int, piece: bytes, number: int, sequence: int, emitted: list[Event]) -> None:
        if flags == BEGIN | END:
            self._message = number + 1
            if number in self._early:
                self._early.discard(number)
            else:
                self._emit(piece, number, sequence, emitted)
            return
        if flags & BEGIN:
            self._parts, self._parts_bytes = [], 0
        elif not self._parts or sequence != self._parts_at + 1:
            self._lose(number, number, Why.UNREPAIRED, emitted)  # what was before this of it is lost
            return
        self._parts_at = sequence
        self._parts.append(piece)
        self._parts_bytes += len(piece) + 64
        is_early = number in self._early
        if is_early:
            self._parts, self._parts_bytes = [b""], 0  # what stays is that it has begun
        elif self._parts_bytes > self._settings.message_bytes + 64 * len(self._parts):
            self._lose(number, number, Why.TOO_LARGE, emitted)
            return
        if flags & END:
            whole = b"".join(self._parts)
            self._parts, self._parts_bytes = [], 0
            self._message = number + 1
            self._ahead.pop(number, None)
            if is_early:
                self._early.discard(number)
            else:
                self._emit(whole, number, sequence, emitted)

    def _settle_announced(self, emitted: list[Event]) -> None:
        """What a heartbeat counted and no datagram brought is lost, once the frontier is there."""
        if self._announced is None or self._announced[0] > self._next:
            return
        (sequence, message), self._announced = self._announced, None
        if sequence < self._next:
            return
        if self._message is None:
            if not self._announced_middle:
                self._message = message
        elif self._message < message:
            self._lose(self._message, message - 1, Why.UNREPAIRED, emitted)

    def _lose(self, first: int, last: int, why: Why, emitted: list[Event]) -> None:
        self._parts, self._parts_bytes = [], 0
        self._message = last + 1
        count = last - first + 1
        if self._early:
            # Of what is lost nothing can have been whole, unless a publisher contradicts itself.
            self._early = {number for number in self._early if number > last}
        if self._ahead:
            self._ahead = {number: ahead for number, ahead in self._ahead.items() if number > last}
        self.counts.lost += count
        emitted.append(Lost(self.session, first, last, count, why))

    def _emit(self, content: bytes, number: int, sequence: int, emitted: list[Event]) -> None:
        try:
            value, key, headers, timestamp_ms, origin = read_content(content)
        except InvalidMessage:
            self.counts.lost += 1
            emitted.append(Lost(self.session, number, number, 1, Why.UNREADABLE))
            return
        self.counts.messages += 1
        emitted.append(Message(value, key, headers, timestamp_ms, origin, self.session, number, sequence))

    # --- on arrival

    def _emit_early(self, data: Data, emitted: list[Event]) -> None:
        if self._message is None:
            return  # which messages are ours is not known yet
        number = data.message
        kept: list[Piece] = []
        for flags, piece in data.pieces:
            is_whole = flags == BEGIN | END
            if is_whole and number >= self._message and number not in self._early:
                self._early.add(number)
                self._emit(piece, number, data.sequence, emitted)
                kept.append(Piece(flags, b""))
            else:
                kept.append(Piece(flags, piece))
                if not is_whole and number >= self._message:
                    self._count_ahead(number, flags, data.sequence)
            number += flags >> 1
        size = sum(len(piece) for _, piece in kept)
        self._held_bytes += size - data.size
        self._held[data.sequence] = data._replace(pieces=tuple(kept), size=size)
        for cut in {data.message, number} & self._ahead.keys():
            self._emit_ahead(cut, emitted)

    def _count_ahead(self, number: int, flags: int, sequence: int) -> None:
        ahead = self._ahead.setdefault(number, _Ahead())
        ahead.count += 1
        if flags & BEGIN:
            ahead.first = sequence
        if flags & END:
            ahead.last = sequence

    def _emit_ahead(self, number: int, emitted: list[Event]) -> None:
        ahead = self._ahead[number]
        if ahead.first < 0 or ahead.last < 0 or ahead.count != ahead.last - ahead.first + 1:
            return
        parts: list[bytes] = []
        for sequence in range(ahead.first, ahead.last + 1):
            data = self._held.get(sequence)
            if data is None:
                return
            parts.append((data.pieces[-1] if sequence == ahead.first else data.pieces[0]).data)
        del self._ahead[number]
        if number in self._early or self._message is None or number < self._message:
            return
        self._early.add(number)
        self._emit(b"".join(parts), number, ahead.last, emitted)
