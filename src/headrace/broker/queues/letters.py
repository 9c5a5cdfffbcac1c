"""Dead letters of share groups (KIP-1191): what a group gives up is written to its topic for that, then archived.

Records that were rejected, or delivered as often as they may be, are archiving: that is durable, so a crash forgets
none. They are read from their log a portion at a time, in a thread, their letters are appended to the group's topic,
and only when those are durable are the records archived. Between the two a crash has the letters written again, under
the same ids.

What always holds: a record is archived after its letter is durable, unless the log itself does not have it any more;
and what was rejected or delivered too often has a letter only if it is durable that it is never delivered again. If
letters cannot be written, because their topic is missing or refuses them, the records stay, which the log and a metric
tell, and it is tried again; so do in the end, by the limit of record locks, those behind them.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.broker.config_resources import check_dead_letter_topic
from headrace.broker.coordinator_shell import RETRY_S
from headrace.broker.errors import BrokerError
from headrace.broker.settings.setting import InvalidSetting
from headrace.broker.topics import Topic
from headrace.coordinator.share.coordinator import LettersWritten
from headrace.coordinator.share.partition import Failure, Run
from headrace.coordinator.share.records import ShareKey
from headrace.delivery.letters import Letter
from headrace.protocol.errors import ErrorCode
from headrace.records import BatchHeader, Record, RecordsError, build_batch, headers_in
from headrace.records.compression import MAX_BODY_BYTES
from headrace.records.record import body_of, decode
from headrace.storage.errors import OffsetOutOfRange, StorageError
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

_log = get_logger(__name__)
_PORTION_BYTES: Final = 1024 * 1024  # about what is read and written at a time; more only if a single batch is larger
_BATCH_BYTES: Final = 512 * 1024
_LETTER_BYTES: Final = 512  # what a letter has besides its record, at a guess
# A topic that is made for letters keeps them until they are taken back, and has room for a record's headers.
_TOPIC_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "errors.deadletterqueue.group.enable": "true",
    "max.message.bytes": str(16 * 1024 * 1024),
}


class _Portion(NamedTuple):
    """Batches of letters to be appended, and the runs that they are about."""

    batches: list[bytes]
    runs: list[Run]
    letters: int


class DeadLetters:
    """Writes the letters of all share groups, one partition of a group after the other."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._due: dict[ShareKey, None] = {}
        self._failing: dict[ShareKey, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self.written: Counter[str] = Counter()  # by group

    def wake(self, key: ShareKey) -> None:
        """Something of a partition may be archiving; while letters of it cannot be written, that has its own time."""
        if key not in self._failing:
            self._due.setdefault(key)
            self._begin()

    def _begin(self) -> None:
        if self._due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    @property
    def waiting(self) -> Counter[str]:
        """How many records wait for their letters, by group; those of whom nothing is wrong are not looked for."""
        found: Counter[str] = Counter()
        for key in {*self._failing, *self._due}:
            partition = self._runtime.shares.coordinator.partition(key)
            if partition is not None:
                found[key.group_id] += sum(run.size for run in partition.letters_due())
        return found

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._retry is not None:
            self._retry.cancel()

    # --- writing

    async def _write_all(self) -> None:
        while self._due:
            key = next(iter(self._due))
            del self._due[key]
            try:
                is_through = await self._write_some(key)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others have nothing to do with it
                self._fail(key, str(error))
                continue
            if self._failing.pop(key, None) is not None:
                _log.info("dead letters can be written again", group=key.group_id, topic=self._name_of(key))
            if not is_through:
                self._due.setdefault(key)

    def _fail(self, key: ShareKey, reason: str) -> None:
        """Leave a partition until later; that is told once, and again if it is for another reason."""
        if self._failing.get(key) != reason:
            _log.error(
                "dead letters cannot be written: the records stay where they are until they can",
                group=key.group_id,
                topic=self._name_of(key),
                partition=key.partition,
                reason=reason,
            )
        self._failing[key] = reason
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._due.update(dict.fromkeys(self._failing))
        self._begin()

    def _name_of(self, key: ShareKey) -> str:
        topic = self._runtime.topics.by_id.get(key.topic_id)
        return topic.name if topic else "a deleted topic"

    async def _write_some(self, key: ShareKey) -> bool:
        """Write the letters of a portion, and have its records archived; whether there was nothing left to do."""
        runtime = self._runtime
        partition = runtime.shares.coordinator.partition(key)
        source = runtime.topics.by_id.get(key.topic_id)
        runs = partition.letters_due() if partition is not None else []
        if not runs or source is None:
            return True
        settings = runtime.groups.settings_of(key.group_id)
        if not settings.errors_deadletterqueue_topic_name:  # since a moment ago: then they need no letters
            return True
        # Else a power cut could take that they are archiving, and leave the letters of what is delivered again.
        states = runtime.shares.log.partitions()[runtime.shares.log.partition_of(key.text)]
        await self._durable(states, states.end_offset)
        letters = await self._topic_of(settings.errors_deadletterqueue_topic_name, source)
        log, target = source.partitions[key.partition], letters.partitions[key.partition % len(letters.partitions)]
        about = _About(source, key, settings.errors_deadletterqueue_copy_record_enable, runtime.now_ms())
        portion = await runtime.look_up(lambda: _read_portion(log, runs, about, target))
        for batch in portion.batches:
            target.append(batch, now_ms=runtime.now_ms(), leader_epoch=runtime.leader_epoch)
            await asyncio.sleep(0)
        await self._durable(target, target.end_offset)
        if await runtime.shares.submit([LettersWritten(key, portion.runs)]) is None:
            raise StorageError("that they are written could not be written down")
        self.written[key.group_id] += portion.letters
        return False

    async def _durable(self, log: Log, offset: int) -> None:
        done: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        self._runtime.appended(log, offset, lambda error: None if done.done() else done.set_result(error))
        error = await done
        if error is not None:
            raise error

    async def _topic_of(self, name: str, source: Topic) -> Topic:
        """The group's topic for letters, made if it may be."""
        config = self._runtime.config
        try:
            check_dead_letter_topic(name, config.text("errors.deadletterqueue.topic.name.prefix"))
        except InvalidSetting as error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if name == source.name:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG, f"{name!r} is the topic that they come from: give the group another one"
            )
        topics = self._runtime.topics
        topic = topics.by_name.get(name)
        if topic is None:
            if not config.flag("errors.deadletterqueue.auto.create.topics.enable"):
                raise BrokerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"the topic {name!r} does not exist: make it, with errors.deadletterqueue.group.enable=true",
                )
            partitions = config.number("num.partitions")
            topic = await self._runtime.in_thread(
                lambda: topics.by_name.get(name) or topics.create(name, partitions, _TOPIC_SETTINGS)
            )
        if topic.settings.get("errors.deadletterqueue.group.enable", "false").strip().lower() != "true":
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"the topic {name!r} is not for dead letters: set its errors.deadletterqueue.group.enable=true",
            )
        return topic


# --- reading records, and making letters of them: in a thread


class _About(NamedTuple):
    """What is the same for all letters of a portion."""

    topic: Topic
    key: ShareKey
    copies: bool
    now_ms: int

    def letter(self, record: Record, run: Run) -> Letter:
        failure = run.failure or Failure(-1, -1, "")
        last_ms = failure.last_ms if failure.last_ms >= 0 else self.now_ms
        return Letter(
            self.topic.name,
            self.key.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            failure.reason or "it could not be processed",
            "",
            self.key.group_id,
            record.headers,
            run.deliveries,
            failure.first_ms if failure.first_ms >= 0 else last_ms,
            last_ms,
            self.key.topic_id_text,
        )


def _read_portion(log: Log, runs: Sequence[Run], about: _About, target: Log) -> _Portion:
    """The letters of the first of these runs, about as many as are read at a time."""
    reader = _Reader(log)
    letters: list[Letter] = []
    done: list[Run] = []
    size = 0
    for run in runs:
        offset = max(run.first, log.start_offset)
        while offset <= run.last and size < _PORTION_BYTES:
            batch = reader.batch_at(offset)
            if batch is None or batch.header.base_offset > run.last:
                offset = run.last + 1  # the log has nothing of it any more, and what it has lost can have no letter
                break
            for record in batch.records_between(offset, run.last):
                letter = about.letter(record, run)
                letters.append(letter if about.copies and batch.is_readable else letter.without_record())
                size += len(letter.value or b"") + len(letter.key or b"") + _LETTER_BYTES
            offset = batch.header.next_offset
        done.append(run._replace(last=min(max(offset - 1, run.first), run.last)))
        if size >= _PORTION_BYTES:
            break
    return _Portion(list(_pack(letters, target, about.now_ms)), done, len(letters))


class _Batch:
    """A batch of the log, decoded when it is first needed."""

    def __init__(self, header: BatchHeader, data: memoryview) -> None:
        self.header = header
        self._data = data
        self._records: list[Record] | None = None
        self.is_readable = True

    def records_between(self, first: int, last: int) -> list[Record]:
        """Its records; if it cannot be read, there are only offsets to tell of."""
        if self._records is None:
            self._records = self._decode()
        low = bisect_left(self._records, first, key=lambda record: record.offset)
        high = bisect_right(self._records, last, key=lambda record: record.offset)
        return self._records[low:high]

    def _decode(self) -> list[Record]:
        header = self.header
        if header.is_control:
            return []
        try:
            return list(decode(header, body_of(self._data, header, MAX_BODY_BYTES)))
        except RecordsError:
            self.is_readable = False
            return [Record(offset, -1, None, None) for offset in range(header.base_offset, header.next_offset)]


class _Reader:
    """Reads batches on and on: runs that are in the same one have it decoded once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._batches: deque[_Batch] = deque()

    def batch_at(self, offset: int) -> _Batch | None:
        """The batch with an offset, or else the next one; None if there is none."""
        while self._batches and self._batches[0].header.last_offset < offset:
            self._batches.popleft()
        if not self._batches:
            try:
                found, _ = self._log.read(offset, _PORTION_BYTES)
            except OffsetOutOfRange:  # retention was here meanwhile
                return None
            data = memoryview(found.read() if found is not None else b"")
            self._batches.extend(
                _Batch(header, data[position : position + header.size]) for position, header in headers_in(data)
            )
        return self._batches[0] if self._batches else None


def _pack(letters: Sequence[Letter], target: Log, now_ms: int) -> Iterator[bytes]:
    """The letters in batches that their topic takes; one that is too large is cut."""
    most = min(target.config.max_message_bytes, target.config.segment_bytes)
    packed: list[Record] = []
    size = 0
    for letter in letters:
        record, alone = letter.to_record(now_ms), b""
        while len(alone := build_batch([record])) > most and (less := letter.shortened()) is not None:
            letter, record = less, less.to_record(now_ms)
        if packed and size + len(alone) > min(most, _BATCH_BYTES):
            yield build_batch(packed)
            packed, size = [], 0
        packed.append(record._replace(offset=len(packed)))
        size += len(alone)
    if packed:
        yield build_batch(packed)
