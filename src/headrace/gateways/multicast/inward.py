"""A group's messages into a topic: each once, by its session and its number, over restarts of the gateway too.

What always holds: a message is committed with the position behind it, or not at all; who begins under the same name
ends the one before, then reads the positions and asks publishers for what it missed; and what was lost is counted and
logged.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from headrace.client.address import Address
from headrace.client.admin import ensure_topic
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, Refused
from headrace.connect.delivery import Entry, Sender, read_committed
from headrace.connect.keep_running import KeepRunning, may_pass
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.errors import GatewayError
from headrace.gateways.files.follower import POSITIONS
from headrace.gateways.gateway import Progress
from headrace.gateways.multicast.events import Event as Heard
from headrace.gateways.multicast.events import Lost
from headrace.gateways.multicast.message import Message
from headrace.gateways.multicast.receiving import position_after
from headrace.gateways.multicast.settings import MulticastSettings
from headrace.gateways.multicast.stream import Position
from headrace.gateways.multicast.subscriber import Subscriber
from headrace.gateways.multicast.wire import Session
from headrace.model import TopicPartition
from headrace.records.partitioning import partition_of_key
from headrace.telemetry.logs import get_logger

_AT_ONCE: Final = 5_000
_WAIT_S: Final = 0.2
_MOST_SESSIONS: Final = 1_000  # of which positions are kept
_log = get_logger(__name__)


@dataclass(slots=True)
class InwardGateway:
    settings: MulticastSettings
    bootstrap: Sequence[Address]
    stopping: Event
    progress: Progress = field(default_factory=Progress)
    _subscriber: Subscriber | None = None
    _positions: dict[Session, Position] = field(default_factory=dict)  # committed
    _taken: list[Heard] = field(default_factory=list)  # and not known to be committed
    _key: bytes | None = None
    _invalid: int = 0
    _lost: int = 0

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def source(self) -> str:
        return self.settings.place

    @property
    def target(self) -> str:
        return self.settings.topic

    def run(self) -> None:
        self._key = self.settings.read_key()
        try:
            KeepRunning(self.name, self.progress, self.stopping, lambda: self.progress.records, self._refused).run(
                self._run_once
            )
        finally:
            if self._subscriber is not None:
                self._subscriber.close()

    def _refused(self, refusal: Refused) -> HeadraceError:
        return GatewayError(
            f"the broker refuses what gateway {self.name} writes to topic {self.settings.topic} ({refusal})"
        )

    def _run_once(self) -> None:
        settings = self.settings
        client = ConnectionSettings(client_id=f"headrace-multicast-{self.name}")
        with Cluster(self.bootstrap, client, retry=PATIENT.at_most(2)) as cluster:
            ensure_topic(cluster, POSITIONS, partitions=1, configs={"cleanup.policy": "compact"})
            ensure_topic(cluster, settings.topic)
            sender = Sender(cluster, f"headrace-multicast-{self.name}", self.name, codec=settings.codec)
            sender.begin()
            try:
                self._positions = self._read_positions(cluster)
                if self._subscriber is None:
                    self._subscriber = Subscriber(
                        settings.group,
                        key=self._key,
                        overload=settings.overload,
                        queue_bytes=settings.buffer_bytes,
                        settings=settings.receiving,
                        positions=self._positions,
                    )
                work = _Work(self, cluster, sender)
                # What was taken when the broker went away may have been committed after all: the positions say so.
                self._taken = [event for event in self._taken if not self._is_committed(event)]
                while True:
                    self._report(self._subscriber)
                    if not self._taken:
                        self.progress.waiting = self.progress.problem = ""
                        # Whatever has come is written before it ends.
                        self._taken = self._subscriber.take(_AT_ONCE, 0 if self.stopping.is_set() else _WAIT_S)
                    if self._taken:
                        work.commit(self._taken)
                        self._taken = []
                    elif self.stopping.is_set():
                        return
            except Exception:
                # What is left open would hold up every reader of the topic until it runs out of time.
                with contextlib.suppress(ClientError):
                    sender.abort()
                raise

    def _read_positions(self, cluster: Cluster) -> dict[Session, Position]:
        positions: dict[Session, tuple[int, Position]] = {}
        for key, value in read_committed(cluster, POSITIONS, self._is_own).items():
            told = json.loads(value)
            session = Session.read(json.loads(key)["session"])
            positions[session] = told["at_ms"], Position(told["sequence"], told["message"])
        return {session: place for session, (_, place) in sorted(positions.items(), key=lambda item: item[1][0])}

    def _is_own(self, key: bytes) -> bool:
        try:
            found = json.loads(key)
        except ValueError:
            return False
        return isinstance(found, dict) and found.get("multicast") == self.name and "session" in found

    def _is_committed(self, event: Heard) -> bool:
        position = self._positions.get(event.session)
        last = event.number if isinstance(event, Message) else event.last if isinstance(event, Lost) else -1
        return position is not None and position.message is not None and last < position.message

    def _report(self, subscriber: Subscriber) -> None:
        counts, progress = subscriber.counts, self.progress
        progress.received = counts.messages
        progress.dropped = subscriber.dropped
        progress.connections = counts.sessions
        progress.more.update(lost=self._lost, repaired=counts.repaired, duplicates=counts.duplicates, naks=counts.naks)
        if counts.invalid > self._invalid:
            BadInput(self.name, progress).refuse(counts.problem, count=counts.invalid - self._invalid)
            self._invalid = counts.invalid


class _Work:
    """One run, between taking over and the first error."""

    def __init__(self, gateway: InwardGateway, cluster: Cluster, sender: Sender) -> None:
        self._gateway = gateway
        self._sender = sender
        self._topic = gateway.settings.topic
        self._partitions = len(cluster.topic(self._topic).partitions)
        self._bad = BadInput(gateway.name, gateway.progress)

    def commit(self, events: Sequence[Heard]) -> None:
        """Write all of them with the positions behind them; what the broker refuses harms no other."""
        gathered, positions, refused = self._gather(events)
        if positions:
            try:
                self._sender.commit(gathered | {TopicPartition(POSITIONS, 0): self._entries(positions)})
            except Refused as refusal:
                if may_pass(refusal) or not gathered:
                    raise
                self._sender.begin()
                if len(events) > 1:
                    middle = len(events) // 2
                    self.commit(events[:middle])
                    self.commit(events[middle:])
                    return
                self._bad.refuse(f"the broker refuses a message: {refusal}", str(events[0].session))
                self._sender.commit({TopicPartition(POSITIONS, 0): self._entries(positions)})
                gathered = {}
            self._gateway._positions |= positions  # noqa: SLF001 - of one module
        self._count(events, gathered, refused)

    def _gather(
        self, events: Sequence[Heard]
    ) -> tuple[dict[TopicPartition, list[Entry]], dict[Session, Position], int]:
        gathered: dict[TopicPartition, list[Entry]] = {}
        positions: dict[Session, Position] = {}
        refused = 0
        for event in events:
            session = event.session
            known = positions.get(session) or self._gateway._positions.get(session)  # noqa: SLF001 - of one module
            if isinstance(event, Message):
                if event.origin is not None and event.origin.topic == self._topic:
                    refused += 1  # what comes from this topic would go round for ever
                else:
                    gathered.setdefault(self._where(event), []).append(_entry(event))
            position = position_after(event, known)
            if position is not None and position != known:
                positions[session] = position
        return gathered, positions, refused

    def _where(self, message: Message) -> TopicPartition:
        """By the key; without one by the publisher, so that its messages keep their order."""
        if message.key is None:
            return TopicPartition(self._topic, message.session.source % self._partitions)
        return TopicPartition(self._topic, partition_of_key(message.key, self._partitions))

    def _entries(self, changed: dict[Session, Position]) -> list[Entry]:
        now_ms = time.time_ns() // 1_000_000
        entries: list[Entry] = []
        for session, position in changed.items():
            told = {"sequence": position.sequence, "message": position.message, "at_ms": now_ms}
            entries.append((self._key(session), json.dumps(told).encode(), now_ms, ()))
        known = self._gateway._positions  # noqa: SLF001 - of one module
        for session in [each for each in known if each not in changed][: max(len(known) - _MOST_SESSIONS, 0)]:
            entries.append((self._key(session), None, now_ms, ()))
            del known[session]
        return entries

    def _key(self, session: Session) -> bytes:
        return json.dumps({"multicast": self._gateway.name, "session": str(session)}).encode()

    def _count(self, events: Sequence[Heard], gathered: dict[TopicPartition, list[Entry]], refused: int) -> None:
        progress = self._gateway.progress
        for entries in gathered.values():
            progress.records += len(entries)
            progress.bytes += sum(len(key or b"") + len(value or b"") for key, value, _, _ in entries)
        if refused:
            self._bad.refuse(
                f"messages come from topic {self._topic} itself: let a gateway publish another", count=refused
            )
        for event in events:
            if isinstance(event, Lost):
                self._gateway._lost += event.count  # noqa: SLF001 - of one module
                _log.warning(
                    "messages are lost", gateway=self._gateway.name, session=str(event.session), first=event.first,
                    last=event.last, count=event.count, why=str(event.why),
                )  # fmt: skip


def _entry(message: Message) -> Entry:
    headers = tuple((name, value or b"") for name, value in message.headers)
    timestamp_ms = message.timestamp_ms if message.timestamp_ms >= 0 else time.time_ns() // 1_000_000
    return message.key, message.value, timestamp_ms, headers
