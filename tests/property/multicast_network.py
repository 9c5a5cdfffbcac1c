"""A network of publishers and receivers in virtual time, that loses, doubles, delays, and is cut for a while."""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from random import Random

from headrace.gateways.multicast.events import Event, Lost
from headrace.gateways.multicast.message import Content, Message, write_content
from headrace.gateways.multicast.receiving import Receiving
from headrace.gateways.multicast.sending import Offered, Sending, SendingSettings
from headrace.gateways.multicast.stream import ReceivingSettings
from headrace.gateways.multicast.wire import Seal, Session, read_datagram

STEP_S = 0.001


@dataclass(frozen=True)
class Weather:
    loss: float = 0.0
    doubled: float = 0.0
    delay_s: float = 0.002  # at most, each datagram its own: so they overtake each other
    cut: tuple[float, float] = (0.0, 0.0)  # nothing passes from, until
    calm_at: float = 1e9  # from then on all is well


@dataclass
class Network:
    random: Random
    weather: Weather
    seal: Seal | None = None
    now: float = 0.0
    datagrams: int = 0
    repair_bytes: int = 0
    senders: list[Sending] = field(default_factory=list)
    published: dict[Session, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    receivers: list["Listener"] = field(default_factory=list)
    _queue: list[tuple[float, int, bytes, object]] = field(default_factory=list)
    _ids: count = field(default_factory=count)

    def publisher(self, settings: SendingSettings, source: int = 1) -> Sending:
        sender = Sending(settings, Session(source, self.random.getrandbits(64)), self.now, name="p", seal=self.seal)
        self.senders.append(sender)
        return sender

    def receiver(self, settings: ReceivingSettings, positions: dict | None = None) -> "Listener":
        machine = Receiving(
            settings, self.random.getrandbits(64), self.random, self.now, seal=self.seal, positions=positions
        )
        listener = Listener(machine, settings)
        self.receivers.append(listener)
        return listener

    def publish(self, sender: Sending, value: bytes) -> bool:
        if sender.offer(write_content(Content(value)), self.now) is Offered.FULL:
            return False
        self.published[sender.session].append(value)
        return True

    def kill(self, sender: Sending) -> None:
        self.senders.remove(sender)

    @property
    def wall_ms(self) -> int:
        return 1_000_000 + int(self.now * 1000)

    def _send(self, datagram: bytes, to: object) -> None:
        self.datagrams += 1
        weather = self.weather
        is_calm = self.now >= weather.calm_at
        if weather.cut[0] <= self.now < weather.cut[1] or (not is_calm and self.random.random() < weather.loss):
            return
        for _ in range(2 if not is_calm and self.random.random() < weather.doubled else 1):
            arrival = self.now + self.random.random() * (0.0005 if is_calm else weather.delay_s)
            heapq.heappush(self._queue, (arrival, next(self._ids), datagram, to))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.step()

    def step(self) -> None:
        self.now += STEP_S
        for sender in self.senders:
            for datagram in sender.transmit(self.now, self.wall_ms):
                read = read_datagram(datagram, self.wall_ms, self.seal)
                if getattr(read, "is_repair", False):
                    self.repair_bytes += len(datagram)
                for receiver in self.receivers:
                    self._send(datagram, receiver)
        while self._queue and self._queue[0][0] <= self.now:
            _, _, datagram, to = heapq.heappop(self._queue)
            if isinstance(to, Listener):
                to.take(to.machine.receive(datagram, self.now, self.wall_ms))
            else:
                nak = read_datagram(datagram, self.wall_ms, self.seal)
                to.heard(nak, self.now)
        for receiver in self.receivers:
            naks, events = receiver.machine.poll(self.now, self.wall_ms)
            receiver.take(events)
            for nak in naks:
                for to in (*self.senders, *(other for other in self.receivers if other is not receiver)):
                    self._send(nak, to)


@dataclass
class Listener:
    machine: Receiving
    settings: ReceivingSettings
    events: list[Event] = field(default_factory=list)
    most_bytes: int = 0

    def take(self, events: list[Event]) -> None:
        self.events += events
        self.most_bytes = max(self.most_bytes, self.machine.held_bytes)

    def of(self, session: Session) -> list[Event]:
        return [event for event in self.events if event.session == session]

    def messages(self, session: Session) -> list[Message]:
        return [event for event in self.of(session) if isinstance(event, Message)]

    def lost(self, session: Session) -> list[Lost]:
        return [event for event in self.of(session) if isinstance(event, Lost)]

    def accounted(self, session: Session) -> list[int]:
        """The number of every message that came or was told lost, in the order in which that was so."""
        numbers: list[int] = []
        for event in self.of(session):
            if isinstance(event, Message):
                numbers.append(event.number)
            elif isinstance(event, Lost):
                assert event.count == event.last - event.first + 1
                numbers += range(event.first, event.last + 1)
        return numbers
