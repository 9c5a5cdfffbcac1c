"""Out of a topic into a socket: pushed to somebody, or published to everybody who is there.

How far it has come is kept in the broker, as the offsets of the group `headrace-gateway-NAME`, so that tools for
groups show its lag; whoever begins under the same name fences the one before. With acknowledgements a position is
committed when everything before it was acknowledged, so each record reaches a consumer that said so, at least once.
Without, a position is committed when as many later messages were handed over as may wait in the socket: who kills the
gateway gets those again.
"""

import time
from collections import deque
from collections.abc import Callable
from struct import Struct, error
from threading import Event
from typing import Final

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.coordinators import Coordinators
from headrace.client.errors import OffsetOutOfRange, Refused, TopicGrown
from headrace.client.fetch import FetchOptions, is_known_as
from headrace.client.groups import committed_offsets
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.client.transactions import Transaction, Transactions
from headrace.connect.errors import TakenOver
from headrace.connect.keep_running import KeepRunning
from headrace.delivery.headers import ORIGIN
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload, Progress
from headrace.gateways.messaging.forms import Form, Frame
from headrace.gateways.messaging.inward import GatewayWire
from headrace.gateways.messaging.message import Headers, InvalidMessage, encode, new_session, topic_prefix
from headrace.gateways.messaging.settings import PUB, SocketSettings
from headrace.gateways.messaging.unacknowledged import Unacknowledged
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.retry import Backoff

_TICK_S: Final = 0.1
_COMMIT_EVERY_S: Final = 0.5
_LOOK_EVERY_S: Final = 5.0
_TRANSACTION_MS: Final = 60_000
_LINGER_S: Final = 1.0
_LAST_ACKS_S: Final = 0.5
_ENCODER_BYTES: Final = 8192  # that ZeroMQ takes out of its queue before they are written
_HELD_BYTES: Final = 64 * 1024 * 1024  # of what is not acknowledged
_FETCH: Final = FetchOptions(max_wait_ms=200, max_bytes=4 * 1024 * 1024, committed=True)
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
ACK: Final = Struct(">QQ")  # session and sequence, as they stand in the message


def group_of(name: str) -> str:
    """The group whose offsets say how far a gateway has come."""
    return f"headrace-gateway-{name}"


class Outgoing:
    """A gateway into a socket that only sends."""

    def __init__(
        self,
        settings: SocketSettings,
        bootstrap: tuple[Address, ...],
        stopping: Event,
        open_wire: Callable[[], GatewayWire],
        open_acks: Callable[[], GatewayWire] | None,
    ) -> None:
        self.name = settings.name
        self.source = settings.topic
        self.target = settings.end
        self.progress = Progress()
        self._bad = BadInput(settings.name, self.progress)
        self._settings = settings
        self._bootstrap = bootstrap
        self._stopping = stopping
        self._open_wire = open_wire
        self._open_acks = open_acks
        self._acks: GatewayWire | None = None
        self._session = new_session()
        self._number = 0
        self._prefix = topic_prefix(settings.topic)
        self._unacknowledged = Unacknowledged()
        self._window: deque[tuple[int, int]] = deque()  # what was handed over last: number, and bytes
        self._window_bytes = 0
        self._most_peers = 1
        self._next: dict[TopicPartition, int] = {}  # behind what was handed over in this run
        self._committed: dict[TopicPartition, int] = {}
        self._committed_at = self._looked_at = 0.0
        self._topic_id = ""  # that positions belong to

    def run(self) -> None:
        self._wire = self._open_wire()
        try:
            self._acks = self._open_acks() if self._open_acks is not None else None
            try:
                KeepRunning(
                    self.name, self.progress, self._stopping, lambda: self.progress.records, self._refused,
                    Backoff(0.1, 2.0),
                ).run(self._work)  # fmt: skip
            finally:
                if self._acks is not None:
                    self._acks.close(0)
        finally:
            self._wire.close(0)

    def _refused(self, refusal: Refused) -> HeadraceError:
        if refusal.code in _FENCED:
            return TakenOver(self.name)
        return GatewayError(f"the broker refuses what {self.name} reads or commits ({refusal}): see what it is allowed")

    def _work(self) -> None:
        settings = ConnectionSettings(client_id=group_of(self.name))
        with Cluster(self._bootstrap, settings) as cluster:
            self._cluster = cluster
            self._transactions = Transactions(cluster)
            self._transaction: Transaction = self._transactions.begin(group_of(self.name), _TRANSACTION_MS)
            try:
                self._read(self._starts())
            except OffsetOutOfRange:
                self._forget()
                raise
            if self._stopping.is_set():
                self._finish()

    def _forget(self) -> None:
        """The topic is another one, or records were removed: nothing of before says anything about it."""
        self._next.clear()
        self._committed.clear()
        self._unacknowledged = Unacknowledged()
        self._window.clear()
        self._window_bytes = 0

    def _starts(self) -> dict[TopicPartition, int]:
        """Where to go on: where this run is, where an earlier one was, or where the first of all begins."""
        topic = self._cluster.topic(self._settings.topic, refresh=True)
        is_another = bool(self._topic_id) and not is_known_as(topic, self._topic_id)
        self._topic_id = topic.id_text
        partitions = self._cluster.partitions(self._settings.topic)
        held = bounds(self._cluster, partitions, committed=True)
        stored = committed_offsets(Coordinators(self._cluster), group_of(self.name))
        if is_another:  # what may have been committed since it was made is of the one before
            self._forget()
            stored = {}
        known = {where: found.offset for where, found in stored.items()} | self._next
        is_first = not known and not is_another
        starts: dict[TopicPartition, int] = {}
        for where in partitions:
            bound = held[where]
            default = bound.end if is_first and self._settings.is_from_end else bound.start
            at = known.get(where, default)
            if where in known and at < bound.start:
                self.progress.more["removed"] = self.progress.more.get("removed", 0) + bound.start - at
            starts[where] = at if bound.start <= at <= bound.end else bound.start
        # Or whoever begins again before the first record would miss those in between.
        self._commit({where: at for where, at in starts.items() if where not in stored})
        self._next = dict(starts)
        return starts

    def _read(self, starts: dict[TopicPartition, int]) -> None:
        reached: dict[TopicPartition, int] = {}
        ids = {self._settings.topic: self._topic_id}
        for records in read_records(self._cluster, starts, options=_FETCH, ids=ids, reached=reached):
            self.progress.waiting = self.progress.problem = ""
            for record in records:
                if not self._send(record):
                    return
            self._next.update(reached)
            self._serve()
            self._look()
            if self._stopping.is_set():
                return

    # --- a record

    def _send(self, read: ReadRecord) -> bool:
        """Hand a record over, as soon as there is room; false if it is time to stop before."""
        where, record = read
        number = self._number
        try:
            frame = self._frame(read, number)
        except InvalidMessage as error:  # whoever wrote it must not hold up all that is behind it
            self._bad.refuse(str(error), f"{where} at offset {record.offset}")
            self._leave_out(read)
            return True
        while self._acks is not None and (
            len(self._unacknowledged) >= self._settings.high_water_mark
            or self._unacknowledged.size_bytes >= _HELD_BYTES
        ):
            self.progress.waiting = "for acknowledgements"
            if self._stopping.is_set():
                return False
            self._serve(_TICK_S)
        is_waited_for = 0
        while not self._wire.try_send(frame):
            if self._settings.overload is Overload.DROP_NEWEST:
                self.progress.dropped += 1
                self._leave_out(read)
                return True
            is_waited_for += 1
            if is_waited_for > 2:
                self.progress.waiting = "for somebody who takes messages"
            if self._stopping.is_set():
                return False
            self._serve()
            self._wire.wait_writable(_TICK_S)
        self._number += 1
        self._next[where] = record.offset + 1
        self.progress.waiting = ""
        self.progress.records += 1
        size = len(record.value or b"")
        self.progress.bytes += size + len(record.key or b"")
        due = time.monotonic() + self._settings.ack_timeout_s
        held = frame if self._acks is not None and isinstance(frame, bytes) else b""
        self._unacknowledged.add(number, where, record.offset, held, due)
        if self._acks is None:
            self._pass_window(number, len(frame) if isinstance(frame, bytes) else size)
        if not number & 255:
            self._serve()
        return True

    def _leave_out(self, read: ReadRecord) -> None:
        """Go on behind a record that is not sent; its number stays free, so that whoever receives sees the gap."""
        where, record = read
        number = self._number
        self._number += 1
        self._next[where] = record.offset + 1
        self._unacknowledged.add(number, where, record.offset, b"", 0.0)
        self._unacknowledged.acknowledge(number)

    def _frame(self, read: ReadRecord, number: int) -> Frame:
        where, record = read
        value = None if record.value is None else bytes(record.value)
        if self._settings.form is Form.RAW:
            return value or b""
        if self._settings.form is Form.TOPIC:
            return [self._prefix[:-1], value or b""]
        origin = (ORIGIN, b"%s/%d/%d" % (where.topic.encode(), where.partition, record.offset))
        headers: Headers = (
            *((header.name, None if header.value is None else bytes(header.value)) for header in record.headers),
            origin,
        )
        key = None if record.key is None else bytes(record.key)
        return encode(value, key, self._prefix, headers, record.timestamp, self._session, number)

    def _pass_window(self, number: int, size: int) -> None:
        """Without acknowledgements: what cannot wait in the socket any more has left this process."""
        if self._settings.socket == PUB:
            self._unacknowledged.acknowledge(number)
            return
        self._window.append((number, size))
        self._window_bytes += size
        most = self._settings.high_water_mark * self._most_peers
        while len(self._window) > most and self._window_bytes - self._window[0][1] > _ENCODER_BYTES * self._most_peers:
            left, its_size = self._window.popleft()
            self._window_bytes -= its_size
            self._unacknowledged.acknowledge(left)

    # --- in between

    def _serve(self, wait_s: float = 0.0) -> None:
        """Take acknowledgements, send again what was not acknowledged in time, commit what may be."""
        if self._acks is not None:
            self._take_acks(self._acks, wait_s)
            now = time.monotonic()
            for number, frame in self._unacknowledged.overdue(now):
                if not self._wire.try_send(frame):
                    break  # there is no room: the longest overdue is the first again
                self._unacknowledged.sent_again(number, now + self._settings.ack_timeout_s)
            self.progress.more["unacknowledged"] = len(self._unacknowledged)
            self.progress.more["repeated"] = self._unacknowledged.repeated
        self.progress.connections = self._wire.connections()
        self._most_peers = max(self._most_peers, self.progress.connections)
        if time.monotonic() - self._committed_at >= _COMMIT_EVERY_S:
            self._commit(self._unacknowledged.positions())

    def _take_acks(self, acks: GatewayWire, wait_s: float) -> None:
        frame = acks.receive(wait_s)
        while frame is not None:
            self.progress.received += 1
            try:
                session, number = ACK.unpack(frame if isinstance(frame, bytes) else b"".join(frame))
            except error:
                self.progress.refused += 1
            else:
                if session == self._session:  # else it is of an earlier run: its record was sent again
                    self._unacknowledged.acknowledge(number)
            frame = acks.try_receive()

    def _commit(self, positions: dict[TopicPartition, int], *, is_repeated: bool = False) -> None:
        """Commit what is further than before; repeated also what is not, to learn whether another one has begun."""
        self._committed_at = time.monotonic()
        fresh = {where: at for where, at in positions.items() if at > self._committed.get(where, -1)}
        if is_repeated and not fresh:
            fresh = dict(self._committed)
        if not fresh:
            return
        self._transactions.add_offsets(self._transaction, group_of(self.name), fresh)
        if not self._transactions.commit(self._transaction):
            raise TakenOver(self.name)
        self._committed.update(fresh)

    def _look(self) -> None:
        """How far behind it is, and whether the topic has more partitions now."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        partitions = self._cluster.topic(self._settings.topic, refresh=True).partitions
        if len(partitions) > len(self._next):
            raise TopicGrown(self._settings.topic)
        self._commit(self._unacknowledged.positions(), is_repeated=True)
        held = bounds(self._cluster, self._next, committed=True)
        self.progress.lag_records = sum(max(bound.end - self._next[where], 0) for where, bound in held.items())

    def _finish(self) -> None:
        """It is time to stop: take the last acknowledgements, or have the socket send all, and commit that."""
        if self._acks is not None:
            ends = time.monotonic() + _LAST_ACKS_S
            while len(self._unacknowledged) and time.monotonic() < ends:
                self._take_acks(self._acks, _TICK_S)
        elif self._window:
            begun = time.monotonic()
            self._wire.close(_LINGER_S)
            if time.monotonic() - begun < _LINGER_S:
                for number, _ in self._window:
                    self._unacknowledged.acknowledge(number)
            self._window.clear()
        self._commit(self._unacknowledged.positions())
