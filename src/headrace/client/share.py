"""A member of a share group (KIP-932): acquires records, and says what became of each; on Kafka 4.2 or newer, or ours.

It beats at the group's coordinator, and has a session (`share_session.py`) with every broker that leads partitions of
its. `poll` sends what there is to send, waits for the first answer, and tells what came: records, what came of
acknowledgements, and which sessions have ended, with which the broker took their records back.

What always holds: whatever may pass by itself (a broker that restarts, a leader that moves, a session that the broker
forgot) is tried again for as long as it takes, and is `trouble` meanwhile; only what somebody has to mend is raised.
One request is with each broker at a time. Only `wake` may be called by other threads.
"""

import select
import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple
from uuid import uuid4

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection, Ticket
from headrace.client.coordinators import Coordinators
from headrace.client.errors import (
    ClientError,
    LostConnection,
    Refused,
    UnknownPartition,
    UnknownTopic,
    VersionNotSpoken,
)
from headrace.client.share_session import MOVED, Ack, Outcome, Place, ShareSession, offsets_in
from headrace.coordinator.share.acknowledgement import AckType
from headrace.model import TopicPartition
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from headrace.protocol.messages.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from headrace.protocol.schema import Uuid
from headrace.records import BatchHeader, CorruptBatch, Record, RecordsError, crc_of, headers_in, records_of
from headrace.retry import Backoff

FEATURE: Final = "headrace.queue"  # of a broker that knows our tagged fields
UNSEEN: Final = Ack(AckType.RELEASE, is_unseen=True)
ONCE: Final = Backoff(retries=0)  # of a member's cluster: it tries again by itself, and goes on with other brokers
_BACKOFF: Final = Backoff(0.05, 2.0)
_JOIN, _LEAVE = 0, -1
_REJOIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
_ENDED: Final = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    *_REJOIN,
)
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
_RENEWS_SINCE: Final = 2  # ShareAcknowledge (KIP-1222)
# A group's state in a partition is made by the first fetch, which does not wait for it, and may not hear of it.
_BEGINNING, _BEGINNING_WAIT_MS = 5, 20
_CLOSING_S: Final = 5.0  # for each request on the way out
_Response = type[ShareFetchResponse] | type[ShareAcknowledgeResponse]


class Acquired(NamedTuple):
    """A record that the member has to itself for `lock_ms`, unless it renews that; acquired in `session`."""

    partition: TopicPartition
    place: Place
    session: int
    record: Record
    deliveries: int
    lock_ms: int


@dataclass(slots=True)
class Polled:
    """What one poll brought."""

    acquired: list[Acquired] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)  # sessions, with all that was acquired in them


@dataclass(slots=True, eq=False)
class _Peer:
    """A broker, the session with it, and the request that waits for an answer."""

    connection: Connection
    session: ShareSession
    asked: "_Asked | None" = None
    fetched_at: float = 0.0
    quiet_until: float = 0.0


class _Asked(NamedTuple):
    ticket: Ticket
    response: _Response
    records: int


class ShareMember:
    """One member; belongs to one thread. The cluster is its own, and is closed with it."""

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str]) -> None:
        self.group = group
        self.member_id = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        self.trouble: ClientError | None = None  # why nothing comes just now
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._topics = list(topics)
        self._epoch = _JOIN
        self._beat_at = 0.0
        self._assigned: set[Place] = set()
        self._leaders: dict[int, list[Place]] | None = None  # None: to be found out
        self._names: dict[Uuid, str] = {}
        self._decoded: dict[Place, tuple[BatchHeader, dict[int, Record]]] = {}
        self._peers: dict[int, _Peer] = {}
        self._numbers = count(1)
        self._failures = 0
        self._unassigned = 0
        self._quiet_until = 0.0
        self._polled = Polled()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    def join(self) -> None:
        """Become a member, or say what is in the way; what passes by itself is tried again by `poll`."""
        connection = self._cluster.any_broker()
        if connection.version_of(ApiKey.SHARE_ACKNOWLEDGE) < _RENEWS_SINCE:
            raise VersionNotSpoken(connection.address, "renewed locks", "it takes Kafka 4.2 or newer")
        try:
            self._beat()
        except ClientError as error:
            self._note(error)

    def wake(self) -> None:
        """Have `poll` return soon, from any thread."""
        with suppress(BlockingIOError, OSError):  # it is woken already, or closed
            self._waker.send(b"\0")

    def acknowledge(self, acquired: Acquired, ack: Ack) -> bool:
        """Have something said of a record with the next poll; whether its session is still there."""
        for peer in self._peers.values():
            if peer.session.number == acquired.session:
                peer.session.acknowledge(acquired.place, acquired.record.offset, ack)
                return True
        return False

    def poll(self, records: int, *, max_wait_ms: int, timeout_s: float) -> Polled:
        """Ask for so many records, if any, say what is to be said, and wait for the first answer, or so long."""
        now = time.monotonic()
        try:
            if now >= self._beat_at and now >= self._quiet_until:
                self._beat()
            self._send(records, max_wait_ms)
        except ClientError as error:
            self._note(error)
        self._wait(min(timeout_s, max(self._next_step_at() - time.monotonic(), 0.0)))
        polled, self._polled = self._polled, Polled()
        return polled

    def _next_step_at(self) -> float:
        return self._quiet_until if self._quiet_until > time.monotonic() else self._beat_at

    # --- membership

    def _beat(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=self._topics if self._epoch == _JOIN else None,
        )
        try:
            response = self._coordinators.ask(self.group, lambda connection: _beaten(connection, request, self.group))
        except Refused as refusal:
            if refusal.code not in _REJOIN or self._epoch == _JOIN:
                raise
            self._epoch = _JOIN  # what it has, it has until the locks lapse
            self._beat()
            return
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._assigned = {
                Place(topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }
            self._leaders = None
        interval_s = response.heartbeat_interval_ms / 1000
        # Partitions are assigned a moment after the first beat, or once the topic is there.
        self._unassigned = 0 if self._assigned else self._unassigned + 1
        soon_s = _BACKOFF.pause_s(self._unassigned) if self._unassigned else interval_s
        self._beat_at = time.monotonic() + min(interval_s, soon_s)

    def _find_leaders(self) -> dict[int, list[Place]]:
        if self._leaders is not None:
            return self._leaders
        if time.monotonic() < self._quiet_until:
            return {}
        if self._assigned:
            self._cluster.refresh(self._topics)
        self._names |= {self._cluster.topic(name).id: name for name in self._topics} if self._assigned else {}
        leaders: dict[int, list[Place]] = {}
        is_whole = True
        for place in sorted(self._assigned):
            name = self._names.get(place.topic_id)
            leader = -1
            with suppress(UnknownPartition):
                leader = -1 if name is None else self._cluster.leader_of(TopicPartition(name, place.partition))
            if leader < 0:
                is_whole = False
                continue
            leaders.setdefault(leader, []).append(place)
        if is_whole:
            self._leaders = leaders
        else:
            self._back_off()
        return leaders

    # --- sending

    def _send(self, records: int, max_wait_ms: int) -> None:
        leaders = self._find_leaders()
        records -= sum(peer.asked.records for peer in self._peers.values() if peer.asked)
        idle = [node for node in {*leaders, *self._peers} if node not in self._peers or not self._peers[node].asked]
        # Whoever was asked for records longest ago is asked first; each for its share of them.
        idle.sort(key=lambda node: self._peers[node].fetched_at if node in self._peers else 0.0)
        fetching = [node for node in idle if node in leaders]
        for node in idle:
            wanted = 0
            if node in leaders:
                wanted = max(-(-records // len(fetching)), 0)
                fetching.pop()
            try:
                records -= self._ask(node, leaders.get(node, []), wanted, max_wait_ms)
            except LostConnection as error:
                self._end(node)
                self._note(error)

    def _ask(self, node: int, assigned: list[Place], records: int, max_wait_ms: int) -> int:
        """Send a broker the request that is most urgent, if there is one; answers how many records it asks for."""
        peer = self._peers.get(node)
        if peer is None:
            if not assigned or not records or time.monotonic() < self._quiet_until:
                return 0
            session = ShareSession(self.group, self.member_id, next(self._numbers))
            peer = self._peers[node] = _Peer(self._cluster.broker(node), session)
        if time.monotonic() < peer.quiet_until:
            return 0
        session = peer.session
        request = session.renew() or session.acknowledgement_in_transaction()
        if request is None and assigned and records and not session.must_acknowledge(assigned):
            peer.fetched_at = time.monotonic()
            if session.epoch < _BEGINNING:
                max_wait_ms = min(max_wait_ms, _BEGINNING_WAIT_MS)
            self._transmit(
                peer, session.fetch(assigned, records, max_wait_ms), ShareFetchResponse, records, max_wait_ms
            )
            return records
        request = request or session.acknowledgement()
        if request is not None:
            self._transmit(peer, request, ShareAcknowledgeResponse)
        return 0

    def _transmit(
        self,
        peer: _Peer,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        response: _Response,
        records: int = 0,
        max_wait_ms: int = 0,
    ) -> None:
        timeout_s = peer.connection.request_timeout_s + max_wait_ms / 1000
        peer.asked = _Asked(peer.connection.send(request, response, timeout_s=timeout_s), response, records)

    # --- waiting

    def _wait(self, timeout_s: float) -> None:
        """Read every answer that is there, once there is one, or until it is time or somebody wakes us."""
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        nodes: dict[int, int] = {}
        ready = set()
        for node, peer in self._peers.items():
            if peer.asked is None:
                continue
            if not peer.connection.is_open or peer.connection.has_answer(peer.asked.ticket):
                ready.add(node)
                continue
            nodes[peer.connection.fileno()] = node
            poller.register(peer.connection.fileno(), select.POLLIN)
            timeout_s = min(timeout_s, max(peer.asked.ticket.deadline - time.monotonic(), 0.0))
        for descriptor, _ in poller.poll(0 if ready else max(timeout_s, 0.0) * 1000 + 1):
            if descriptor in nodes:
                ready.add(nodes[descriptor])
            else:
                with suppress(BlockingIOError):
                    self._woken.recv(4096)
        now = time.monotonic()
        late = {node for node, peer in self._peers.items() if peer.asked and peer.asked.ticket.deadline <= now}
        for node in ready | late:
            try:
                self._read(node)
            except LostConnection as error:
                self._end(node)
                self._note(error)

    def _read(self, node: int) -> None:
        peer = self._peers[node]
        assert peer.asked is not None
        asked, peer.asked = peer.asked, None
        response = peer.connection.receive(asked.ticket, asked.response)
        code = ErrorCode.of(response.error_code)
        if code:  # nothing of the request was done: whatever it was, the session begins anew
            self._end(node)
            if code in _REJOIN:
                self._epoch, self._beat_at = _JOIN, 0.0
            self._note(Refused(f"share session of group {self.group!r}", code, response.error_message))
        else:
            self._polled.outcomes += peer.session.read(response)
            if peer.session.is_put_off:
                peer.quiet_until = time.monotonic() + _BACKOFF.longest_s
            if isinstance(response, ShareFetchResponse):
                self._take(peer, response)

    def _take(self, peer: _Peer, response: ShareFetchResponse) -> None:
        is_well = True
        for topic in response.responses:
            for data in topic.partitions:
                place = Place(topic.topic_id, data.partition_index)
                where = TopicPartition(self._names.get(topic.topic_id, ""), data.partition_index)
                if data.error_code:
                    is_well = False
                    self._refuse(where, data)
                for record, deliveries in self._acquired(peer.session, place, data):
                    self._polled.acquired.append(
                        Acquired(
                            where,
                            place,
                            peer.session.number,
                            record,
                            deliveries,
                            response.acquisition_lock_timeout_ms,
                        )
                    )
        if is_well:
            self._failures, self.trouble = 0, None

    def _refuse(self, where: TopicPartition, data: PartitionData) -> None:
        code = ErrorCode.of(data.error_code)
        refusal = Refused(f"partition {where}", code, data.error_message)
        if code in _DENIED:
            raise refusal
        if code in MOVED:
            self._leaders = None
        self._note(refusal)

    def _acquired(self, session: ShareSession, place: Place, data: PartitionData) -> Iterator[tuple[Record, int]]:
        """The records that were acquired, and how often each was delivered; where there is none, the broker is told."""
        there: dict[int, Record] = {}
        damaged: list[range] = []
        for position, header in headers_in(data.records or b""):
            if header.is_control:
                continue
            batch = memoryview(data.records or b"")[position : position + header.size]
            try:
                there |= self._decode(place, header, batch)
            except RecordsError:
                damaged.append(range(header.base_offset, header.next_offset))
        for offset, deliveries in offsets_in(data.acquired_records).items():
            if offset in there:
                yield there[offset], deliveries
            elif any(offset in batch for batch in damaged):
                session.acknowledge(place, offset, Ack(AckType.RELEASE, reason="its batch came damaged"))
            else:
                session.acknowledge(place, offset, Ack(AckType.GAP))

    def _decode(self, place: Place, header: BatchHeader, batch: memoryview) -> dict[int, Record]:
        """The records of a batch by their offsets; the last one of a partition often comes again, for its rest."""
        known = self._decoded.get(place)
        if known is None or known[0] != header:
            if crc_of(batch) != header.crc:
                raise CorruptBatch("the checksum does not match", 0)
            known = self._decoded[place] = header, {record.offset: record for record in records_of(batch)}
        return known[1]

    # --- trouble

    def _note(self, error: ClientError) -> None:
        """Wait before anything new is tried; raises what does not pass by itself."""
        if isinstance(error, Refused):
            code = error.code
            is_passing = code.retriable or code in _ENDED or code in MOVED or code is ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            is_passing = isinstance(error, LostConnection | UnknownTopic)
        if not is_passing:
            raise error
        self.trouble = error
        if isinstance(error, LostConnection | UnknownTopic):
            self._leaders = None
        self._back_off()

    def _back_off(self) -> None:
        self._failures += 1
        self._quiet_until = time.monotonic() + _BACKOFF.pause_s(self._failures)

    def _end(self, node: int) -> None:
        """Forget a session: what was acquired in it is not ours any more."""
        peer = self._peers.pop(node, None)
        if peer is not None:
            self._polled.ended.add(peer.session.number)
            self._polled.outcomes += peer.session.end()

    # --- the end

    def close(self) -> list[Outcome]:
        """Say what is left to be said, give everything back, and leave the group; answers what came of it."""
        for node, peer in list(self._peers.items()):
            with suppress(ClientError):
                self._finish(peer)
            self._end(node)
        with suppress(ClientError):
            self._coordinators.ask(
                self.group,
                lambda connection: connection.request(
                    ShareGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=_LEAVE),
                    ShareGroupHeartbeatResponse,
                    timeout_s=_CLOSING_S,
                ),
            )
        self._cluster.close()
        self._woken.close()
        self._waker.close()
        return self._polled.outcomes

    def _finish(self, peer: _Peer) -> None:
        session = peer.session
        if peer.asked is not None:
            answer = peer.connection.receive(peer.asked.ticket, peer.asked.response)
            if answer.error_code:
                return
            self._polled.outcomes += session.read(answer)
            if isinstance(answer, ShareFetchResponse) and FEATURE in peer.connection.features:
                for topic in answer.responses:  # a Kafka takes back with the session, and does not count it either
                    for data in topic.partitions:
                        for offset in offsets_in(data.acquired_records):
                            session.acknowledge(Place(topic.topic_id, data.partition_index), offset, UNSEEN)
        while session.epoch and not session.is_put_off and (request := session.acknowledgement()):
            response = peer.connection.request(request, ShareAcknowledgeResponse, timeout_s=_CLOSING_S)
            if response.error_code:
                return
            self._polled.outcomes += session.read(response)
        response = peer.connection.request(session.close(), ShareAcknowledgeResponse, timeout_s=_CLOSING_S)
        if not response.error_code:
            self._polled.outcomes += session.read(response)


def _beaten(connection: Connection, request: ShareGroupHeartbeatRequest, group: str) -> ShareGroupHeartbeatResponse:
    response = connection.request(request, ShareGroupHeartbeatResponse)
    if response.error_code:
        raise Refused(f"share group {group!r}", ErrorCode.of(response.error_code), response.error_message)
    return response
