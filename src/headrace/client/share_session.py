"""A member's share session with one broker: what the next request says, and what an answer means. Pure.

A session (KIP-932) is a chain of numbered requests, one at a time, on one connection. It knows the partitions that the
member fetches from there, and carries what the member says of the records that it has.

What always holds: an acknowledgement is sent until the broker has answered it, or until the session has ended, with
which the broker takes back whatever was not acknowledged. A broker refuses the acknowledgements of a partition
together, so those that were refused are sent again in two halves, until it is known which one it was. What is part of a
transaction goes by requests of its own, one for each.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.client.transactions import Transaction
from headrace.coordinator.share.acknowledgement import AckType
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from headrace.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from headrace.protocol.schema import Uuid

_INITIAL_EPOCH, _FINAL_EPOCH, _LAST_EPOCH = 0, -1, 2**31 - 1
_EXACTLY_SO_MANY: Final = 1  # the acquire mode of KIP-1206
_MAX_BYTES: Final = 8 * 1024 * 1024
# The partition is at another broker now, which knows nothing of what was acquired here.
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class Place(NamedTuple):
    """A partition as share sessions name it."""

    topic_id: Uuid
    partition: int


class Ack(NamedTuple):
    """What a member says of a record; all but the type is for a broker of ours."""

    type: AckType
    retry_after_ms: int = -1
    reason: str = ""
    transaction: Transaction | None = None
    is_unseen: bool = False  # it is released, and was handed out to nobody


class Outcome(NamedTuple):
    """What came of an acknowledgement; without an error it is durable."""

    place: Place
    offset: int
    ack: Ack
    error: ErrorCode | None = None


Acks = dict[int, Ack]  # by offset
_Groups = dict[Place, deque[Acks]]  # what is sent together


@dataclass(slots=True, eq=False)
class ShareSession:
    """With one broker; `number` is its own among all of a member's sessions."""

    group_id: str
    member_id: str
    number: int
    epoch: int = _INITIAL_EPOCH
    partitions: set[Place] = field(default_factory=set)  # as the broker has them
    is_put_off: bool = False  # something was refused that may be said again later
    _waiting: _Groups = field(default_factory=dict)
    _renewals: _Groups = field(default_factory=dict)
    _in_transactions: dict[Transaction, _Groups] = field(default_factory=dict)
    _sent: dict[Place, Acks] = field(default_factory=dict)
    _sent_of: _Groups = field(default_factory=dict)  # where what was sent goes back to, if it is sent again

    def must_acknowledge(self, assigned: Collection[Place]) -> bool:
        """Whether something is to be said that no fetch from these partitions can carry: others were taken away."""
        return any(place not in assigned for place in self._waiting)

    def acknowledge(self, place: Place, offset: int, ack: Ack) -> None:
        """Have something said of a record with the next request; renewals go by requests of their own."""
        if ack.type is AckType.RENEW:
            _add(self._renewals, place, offset, ack)
            return
        for acks in self._renewals.get(place, ()):
            acks.pop(offset, None)
        in_transaction = ack.transaction and self._in_transactions.setdefault(ack.transaction, {})
        _add(self._waiting if in_transaction is None else in_transaction, place, offset, ack)

    # --- requests

    def renew(self) -> ShareAcknowledgeRequest | None:
        """The request that renews locks; None if none are to be renewed."""
        self._take(self._renewals, self._renewals)
        return self._acknowledgement(is_renewal=True) if self._sent else None

    def acknowledgement(self) -> ShareAcknowledgeRequest | None:
        """The request that only acknowledges; None if there is nothing to be acknowledged."""
        self._take(self._waiting, self._waiting)
        return self._acknowledgement(is_renewal=False) if self._sent else None

    def acknowledgement_in_transaction(self) -> ShareAcknowledgeRequest | None:
        """The request that acknowledges in one transaction; None if there is nothing to be acknowledged so."""
        for transaction, groups in list(self._in_transactions.items()):
            self._take(groups, groups)
            if self._sent:
                request = self._acknowledgement(is_renewal=False)
                request.transactional_id, request.producer_id, request.producer_epoch = transaction
                return request
            del self._in_transactions[transaction]
        return None

    def _acknowledgement(self, *, is_renewal: bool) -> ShareAcknowledgeRequest:
        return ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            is_renew_ack=is_renewal,
            topics=_topics(self._sent, ()),
        )

    def fetch(self, assigned: Collection[Place], records: int, max_wait_ms: int) -> ShareFetchRequest:
        """The request that fetches from these partitions, with what is to be acknowledged of them."""
        self._take(self._waiting, assigned)
        added = [place for place in assigned if place not in self.partitions]
        forgotten: dict[Uuid, list[int]] = {}
        for place in self.partitions.difference(assigned):
            forgotten.setdefault(place.topic_id, []).append(place.partition)
        self.partitions = set(assigned)
        return ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            max_records=records,
            batch_size=records,
            share_acquire_mode=_EXACTLY_SO_MANY,
            topics=_topics(self._sent, added),
            forgotten_topics_data=[ForgottenTopic(topic_id=of, partitions=each) for of, each in forgotten.items()],
        )

    def close(self) -> ShareAcknowledgeRequest:
        """The last request: what is not acknowledged by it the broker takes back."""
        self._take(self._waiting, self._waiting)
        self.epoch = _FINAL_EPOCH
        return self._acknowledgement(is_renewal=False)

    def _take(self, groups: _Groups, places: Iterable[Place]) -> None:
        """Send what waits of these partitions, of each as much as was not refused together."""
        self._sent, self._sent_of = {}, groups
        for place in list(places):
            waiting = groups.get(place, deque())
            while waiting and place not in self._sent:
                if acks := waiting.popleft():
                    self._sent[place] = acks
            if not waiting:
                groups.pop(place, None)

    # --- answers

    def read(self, response: ShareFetchResponse | ShareAcknowledgeResponse) -> list[Outcome]:
        """What came of what the last request said; the session goes on."""
        self.is_put_off = False
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        refusals = {
            Place(topic.topic_id, answer.partition_index): code
            for topic in response.responses
            for answer in topic.partitions
            if (code := getattr(answer, "acknowledge_error_code", answer.error_code))
        }
        sent, self._sent = self._sent, {}
        return [outcome for place, acks in sent.items() for outcome in self._settle(place, acks, refusals.get(place))]

    def _settle(self, place: Place, acks: Acks, refusal: int | None) -> Iterator[Outcome]:
        code = ErrorCode.of(refusal) if refusal else None
        if code is ErrorCode.INVALID_RECORD_STATE and len(acks) > 1:
            offsets = list(acks)
            middle = len(offsets) // 2
            groups = self._sent_of.setdefault(place, deque([{}]))  # what is said from now on is apart from them
            for half in (offsets[middle:], offsets[:middle]):
                groups.appendleft({offset: acks[offset] for offset in half})
            return
        if code is not None and code.retriable and code not in MOVED:
            self._sent_of.setdefault(place, deque()).appendleft(acks)
            self.is_put_off = True
            return
        for offset, ack in acks.items():
            yield Outcome(place, offset, ack, code)

    def end(self) -> list[Outcome]:
        """What is left unsaid when the session has ended."""
        left = [
            (place, acks)
            for waiting in (self._waiting, self._renewals, *self._in_transactions.values())
            for place, groups in waiting.items()
            for acks in groups
        ]
        left += self._sent.items()
        self._waiting, self._sent, self._renewals, self._in_transactions = {}, {}, {}, {}
        return [
            Outcome(place, offset, ack, ErrorCode.SHARE_SESSION_NOT_FOUND)
            for place, acks in left
            for offset, ack in acks.items()
        ]


def _add(groups: _Groups, place: Place, offset: int, ack: Ack) -> None:
    waiting = groups.setdefault(place, deque())
    if not waiting:
        waiting.append({})
    waiting[-1][offset] = ack


def batches_of(acks: Mapping[int, Ack]) -> list[AcknowledgementBatch]:
    """Acknowledgements as they are sent: offsets that follow each other together, if the same is said of them."""
    found: list[AcknowledgementBatch] = []
    before: Ack | None = None
    for offset, ack in sorted(acks.items()):
        if ack == before and offset == found[-1].last_offset + 1:
            found[-1].last_offset = offset
            continue
        found.append(
            AcknowledgementBatch(
                first_offset=offset,
                last_offset=offset,
                acknowledge_types=[ack.type],
                retry_after_ms=ack.retry_after_ms,
                reason=ack.reason,
                is_unseen=ack.is_unseen,
            )
        )
        before = ack
    return found


def offsets_in(runs: Iterable[AcquiredRecords]) -> dict[int, int]:
    """How often each acquired record was delivered, with this time."""
    return {offset: run.delivery_count for run in runs for offset in range(run.first_offset, run.last_offset + 1)}


def _topics(acks: Mapping[Place, Acks], added: Iterable[Place]) -> list[FetchTopic]:
    topics: dict[Uuid, FetchTopic] = {}
    for place in dict.fromkeys((*acks, *added)):
        topic = topics.setdefault(place.topic_id, FetchTopic(topic_id=place.topic_id))
        topic.partitions.append(
            FetchPartition(partition_index=place.partition, acknowledgement_batches=batches_of(acks.get(place, {})))
        )
    return list(topics.values())
