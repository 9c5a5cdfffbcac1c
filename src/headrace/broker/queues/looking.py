"""Looking into records before a share group acquires them, where its topic or the group itself opted in.

A partition that is looked into has judges: each says of a record whether the group may have it, and if not, why never.
What is only not yet to be had is kept back by the partition itself (`coordinator/share/partition.py`): by its key's
turn, or until a time.

What always holds: a batch that cannot be looked into is delivered as it is, since nothing may be lost; batches are
decoded once, and what is remembered of them is bounded; what is judged at a time is bounded as well.
"""

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinator.share.partition import Span
from headrace.coordinator.share.records import ShareKey
from headrace.delivery.filters import LARGEST_JSON, Filter
from headrace.delivery.order import Order
from headrace.model import TopicPartition
from headrace.records import BatchHeader, CorruptBatch, Record, RecordsError
from headrace.records.compression import MAX_BODY_BYTES
from headrace.records.record import body_of, decode
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

_log = get_logger(__name__)
_REMEMBERED_BYTES = 32 * 1024 * 1024
_RECORD_BYTES = 400  # what a decoded record takes besides its own bytes, at a guess
BYTES_A_LOOK = 64 * 1024  # of values, which may have to be parsed
# The reasons in dead letters.
_EXPIRED = "expired"
_TOO_LARGE = f"its value has more than {LARGEST_JSON} bytes, too many for headrace.filter to look into it"
RECORDS_A_LOOK = 128  # of one partition, before whoever looks acquires what it saw, and goes on


class Verdict(IntEnum):
    """What becomes of a record for a group: it is delivered, or why it never is."""

    DELIVER = 0
    FILTERED = 1  # the group does not want it
    DELAYED = 2  # a copy of it is delivered when its time comes; or it cancels another
    DUPLICATE = 3  # one with its id was delivered
    EXPIRED = 4
    TOO_LARGE = 5  # for the filter to look into it, and nothing else of it matches


Judge = Callable[[Record], Verdict]
FindJudge = Callable[[ShareKey], Judge | None]  # None: this partition's records are not to be looked into for it


class Look(NamedTuple):
    """How the records of a partition are looked into for a group."""

    judges: tuple[Judge, ...]
    by_key: bool  # whether the group goes by their keys
    reasons: Mapping[Verdict, str] = {}  # for what becomes a dead letter, if the group has any


class _Decoded:
    """The records of a batch, as far as anybody wanted them."""

    __slots__ = ("_last", "_left", "_offsets", "_records", "size")

    def __init__(self, header: BatchHeader, body: bytes) -> None:
        self.size = len(body) + _RECORD_BYTES * header.record_count
        self._last = header.last_offset
        self._records: list[Record] = []
        self._offsets: list[int] = []
        self._left: Iterator[Record] | None = decode(header, body)

    def after(self, offset: int, count: int) -> list[Record]:
        """The next records from an offset on; fewer than `count` only at the end of the batch."""
        offsets = self._offsets
        first = bisect_left(offsets, offset)
        while self._left is not None and len(offsets) - first < count:
            record = next(self._left, None)
            if record is None:
                self._left = None
                break
            if not (offsets[-1] if offsets else -1) < record.offset <= self._last:
                raise CorruptBatch(f"a record has the offset {record.offset}, which is not its own")
            self._records.append(record)
            offsets.append(record.offset)
            first += record.offset < offset
        return self._records[first : first + count]


class Looking:
    """Who is looked into, by which judges, and the batches that were decoded for it."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self.judges: list[FindJudge] = [self._judge_by_filter]
        self.skipped: Counter[Verdict] = Counter()  # how many records were not delivered, by why
        self._looks: dict[ShareKey, Look | None] = {}
        self._revision = -1  # of the topics, when the looks were made
        self._decoded: OrderedDict[tuple[TopicPartition, int, int], _Decoded] = OrderedDict()
        self._size = 0

    def settings_changed(self) -> None:
        """Groups may want something else from now on; that topics do is noticed without being told."""
        self._looks.clear()

    def at(self, key: ShareKey) -> Look | None:
        """How a partition is looked into for a group; None, if it is not, as nearly all are."""
        if self._revision != self._runtime.topics.revision:
            self._looks.clear()
            self._revision = self._runtime.topics.revision
        try:
            return self._looks[key]
        except KeyError:
            judges = tuple(judge for find in self.judges if (judge := find(key)) is not None)
            settings = self._runtime.groups.settings_of(key.group_id)
            by_key = settings.headrace_order == Order.KEY
            reasons = {Verdict.TOO_LARGE: _TOO_LARGE}
            if settings.headrace_deadletterqueue_expired_enable:
                reasons[Verdict.EXPIRED] = _EXPIRED
            look = self._looks[key] = Look(judges, by_key, reasons) if judges or by_key else None
            return look

    def _judge_by_filter(self, key: ShareKey) -> Judge | None:
        text = self._runtime.groups.settings_of(key.group_id).headrace_filter
        if not text:
            return None
        judge = Filter(text).judge
        verdicts = {True: Verdict.DELIVER, False: Verdict.FILTERED, None: Verdict.TOO_LARGE}
        return lambda record: verdicts[judge(record)]

    def spans_of(
        self, look: Look, partition: TopicPartition, header: BatchHeader, batch: memoryview, first: int
    ) -> list[Span]:
        """What becomes of a batch's records from an offset on, as far as is looked at a time: gaps are spans, too."""
        try:
            records = self._decode(partition, header, batch).after(first, RECORDS_A_LOOK)
        except RecordsError as error:
            self._forget(partition, header)  # and is looked at in vain again, should that be wanted
            _log.warning(
                "a batch cannot be looked into, and is delivered as it is",
                log=str(partition),
                offset=header.base_offset,
                error=str(error),
            )
            return [Span(first, header.last_offset)]
        spans: list[Span] = []
        reached, size = first, 0
        for record in records:
            if size >= BYTES_A_LOOK:
                return spans
            size += len(record.value or b"")
            if record.offset > reached:  # compaction took what was here
                _append(spans, Span(reached, record.offset - 1, is_deliverable=False))
            reached = record.offset + 1
            verdict = self._judge(look, record)
            if verdict:
                self.skipped[verdict] += 1
                reason = look.reasons.get(verdict, "")
                _append(spans, Span(record.offset, record.offset, is_deliverable=False, reason=reason))
            elif look.by_key and record.key is not None:
                spans.append(Span(record.offset, record.offset, key=record.key))
            else:
                _append(spans, Span(record.offset, record.offset))
        if len(records) < RECORDS_A_LOOK and reached <= header.last_offset:
            _append(spans, Span(reached, header.last_offset, is_deliverable=False))
        return spans

    def _judge(self, look: Look, record: Record) -> Verdict:
        for judge in look.judges:
            verdict = judge(record)
            if verdict:
                return verdict
        return Verdict.DELIVER

    def _decode(self, partition: TopicPartition, header: BatchHeader, batch: memoryview) -> _Decoded:
        place = (partition, header.base_offset, header.crc)
        decoded = self._decoded.get(place)
        if decoded is None:
            decoded = self._decoded[place] = _Decoded(header, body_of(batch, header, MAX_BODY_BYTES))
            self._size += decoded.size
            while self._size > _REMEMBERED_BYTES and len(self._decoded) > 1:
                _, oldest = self._decoded.popitem(last=False)
                self._size -= oldest.size
        else:
            self._decoded.move_to_end(place)
        return decoded

    def _forget(self, partition: TopicPartition, header: BatchHeader) -> None:
        decoded = self._decoded.pop((partition, header.base_offset, header.crc), None)
        self._size -= decoded.size if decoded else 0


def _append(spans: list[Span], span: Span) -> None:
    """Add a span at the end, as a part of the last one if that is like it."""
    if spans and spans[-1][2:] == span[2:] and spans[-1].last + 1 == span.first:
        spans[-1] = spans[-1]._replace(last=span.last)
    else:
        spans.append(span)
