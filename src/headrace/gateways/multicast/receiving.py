"""A receiver's decisions: which sessions are heard, from where each is read, what is asked for. Pure.

A session is first heard somewhere in its life. If it is younger than this receiver, it is read from its very first
message, so that nothing of it is missed unnoticed; one that is older is read from what comes next, or from the oldest
that its publisher holds. One that was heard before, also by a receiver that has ended and left its positions, goes on
from there.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final

from headrace.gateways.multicast.events import Began, Ended, Event, Lost
from headrace.gateways.multicast.message import Message
from headrace.gateways.multicast.stream import Position, ReceivingSettings, Stream, StreamCounts
from headrace.gateways.multicast.wire import (
    BEGIN,
    MIDDLE,
    Data,
    Heartbeat,
    InvalidDatagram,
    Nak,
    Seal,
    Session,
    read_datagram,
    write_nak,
)

_REMEMBERED: Final = 1_024  # sessions that have ended
_ENDED_S: Final = 0.25  # for stragglers of a session that said that it is over


@dataclass(slots=True)
class ReceivingCounts:
    """What came and what became of it; `problem` is the last thing that was wrong."""

    datagrams: int = 0
    bytes: int = 0
    invalid: int = 0
    refused_sessions: int = 0
    messages: int = 0
    lost: int = 0
    duplicates: int = 0
    repaired: int = 0
    naks: int = 0
    sessions: int = 0
    problem: str = ""
    by_why: Counter[str] = field(default_factory=Counter)


class Receiving:
    def __init__(
        self,
        settings: ReceivingSettings,
        receiver: int,
        random: Random,
        now: float,
        *,
        seal: Seal | None = None,
        positions: Mapping[Session, Position] | None = None,
    ) -> None:
        self._settings = settings
        self._receiver = receiver
        self._random = random
        self._begun = now
        self._seal = seal
        self._streams: dict[Session, Stream] = {}
        self._remembered: OrderedDict[Session, Position] = OrderedDict(positions or {})
        self._latest: OrderedDict[int, Session] = OrderedDict()  # of each source
        for session in self._remembered:
            self._latest[session.source] = session
        self._naks = 0
        self._own = ReceivingCounts()
        self._ended = StreamCounts()

    # --- what is known

    @property
    def counts(self) -> ReceivingCounts:
        """As of now, of all sessions that were ever heard."""
        own, every = self._own, [self._ended, *(stream.counts for stream in list(self._streams.values()))]
        own.messages = sum(one.messages for one in every)
        own.lost = sum(one.lost for one in every)
        own.duplicates = sum(one.duplicates for one in every)
        own.repaired = sum(one.repaired for one in every)
        own.naks = sum(one.naks for one in every)
        own.sessions = len(self._streams)
        return own

    @property
    def invalid(self) -> int:
        return self._own.invalid

    @property
    def held_bytes(self) -> int:
        return sum(stream.held_bytes for stream in self._streams.values())

    @property
    def streams(self) -> Mapping[Session, Stream]:
        return self._streams

    # --- what is heard

    def receive(self, datagram: bytes, now: float, wall_ms: int) -> list[Event]:
        """What a datagram makes known; one that is invalid is counted, and changes nothing."""
        own = self._own
        own.datagrams += 1
        own.bytes += len(datagram)
        try:
            read = read_datagram(datagram, wall_ms, self._seal)
        except InvalidDatagram as error:
            own.invalid += 1
            own.problem = str(error)
            return []
        stream = self._streams.get(read.session)
        if isinstance(read, Nak):
            if stream is not None and read.receiver != self._receiver:
                stream.suppress(read.ranges, now)
            return []
        events: list[Event] = []
        if stream is None:
            stream = self._open(read, now, events)
            if stream is None:
                return events
        before = stream.held_bytes
        if isinstance(read, Data):
            events += stream.receive(read, now)
        else:
            events += stream.receive_heartbeat(read, now)
        if stream.held_bytes > before:
            self._limit(events)
        return events

    def _open(self, read: Data | Heartbeat, now: float, events: list[Event]) -> Stream | None:
        session = read.session
        position = self._remembered.get(session)
        if isinstance(read, Data) and read.is_repair:
            return None  # how old the session is, and where it is, is not said by an old datagram
        if position is not None and self._is_old(read, position):
            return None
        if len(self._streams) >= self._settings.sessions:
            self._own.refused_sessions += 1
            self._own.problem = (
                f"more than {self._settings.sessions} publishers are in the group, and further ones are not heard: "
                "raise `sessions`"
            )
            return None
        is_again = position is not None
        if position is None:
            position = self._begin(read, now)
        self._remembered.pop(session, None)
        stream = self._streams[session] = Stream(session, position, self._settings, self._random, now)
        previous = self._latest.get(session.source)
        self._latest[session.source] = session
        self._latest.move_to_end(session.source)
        if len(self._latest) > _REMEMBERED:
            self._latest.popitem(last=False)
        events.append(Began(session, None if previous == session else previous, is_again))
        return stream

    def _is_old(self, read: Data | Heartbeat, position: Position) -> bool:
        """Whether it says nothing new of a session that has ended: a straggler, or its last heartbeat once more."""
        if isinstance(read, Data):
            return read.sequence < position.sequence
        return read.sequence <= position.sequence and (position.message is None or read.message <= position.message)

    def _begin(self, read: Data | Heartbeat, now: float) -> Position:
        first_held = read.sequence - read.held
        if read.age_ms <= (now - self._begun) * 1000:
            return Position(0, 0)
        if self._settings.from_history:
            return Position(first_held, None if first_held else 0)
        if isinstance(read, Data):
            return Position(read.sequence, read.message if read.pieces[0].flags & BEGIN else None)
        return Position(read.sequence, None if read.flags & MIDDLE else read.message)

    def _limit(self, events: list[Event]) -> None:
        """Over the bound of bytes the one that holds most gives up its oldest hole."""
        while self.held_bytes > self._settings.window_bytes:
            largest = max(self._streams.values(), key=lambda stream: stream.held_bytes)
            if not largest.give_up_first(events):
                largest.give_up_all(events)  # a single message that is longer than what may be held

    # --- time

    def poll(self, now: float, wall_ms: int) -> tuple[list[bytes], list[Event]]:
        """NAKs to be sent now, and what became known by waiting."""
        naks: list[bytes] = []
        events: list[Event] = []
        for session, stream in list(self._streams.items()):
            if stream.due <= now:
                ranges = stream.asked(now, events)
                if ranges:
                    self._naks += 1
                    naks.append(write_nak(Nak(session, self._receiver, self._naks, ranges), wall_ms, self._seal))
            if now >= self._ends_at(stream):
                self._end(stream, events)
        return naks, events

    def _ends_at(self, stream: Stream) -> float:
        if stream.is_over and stream.is_settled:
            return stream.heard_at + _ENDED_S
        return stream.heard_at + self._settings.silence_s

    def _end(self, stream: Stream, events: list[Event]) -> None:
        is_clean = stream.is_over and stream.is_settled
        stream.give_up_all(events)
        del self._streams[stream.session]
        for name in ("messages", "lost", "duplicates", "repaired", "naks"):
            setattr(self._ended, name, getattr(self._ended, name) + getattr(stream.counts, name))
        self._remembered[stream.session] = stream.position
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        events.append(Ended(stream.session, is_clean))

    def next_at(self) -> float:
        """When `poll` has something to do."""
        return min((min(stream.due, self._ends_at(stream)) for stream in self._streams.values()), default=inf)


def position_after(event: Event, before: Position | None) -> Position | None:
    """Where its session is gone on with by whoever has done with this event; None if that is not known yet."""
    if isinstance(event, Message):
        return Position(event.sequence, event.number + 1)
    if isinstance(event, Lost):
        return Position(before.sequence if before else 0, event.last + 1)
    return before
