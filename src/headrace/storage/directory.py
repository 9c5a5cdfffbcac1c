"""A data directory: the logs in it, what is kept beside them, and who may use it.

One folder a partition, `topic-partition`, and Kafka's checkpoints at the top: how far each log is durable, where it
begins, how far it is compacted. The marker of a clean shutdown is there only while nobody has the directory open.

Of a log in memory there is one number on the disk, in a file of ours: where it begins when the directory is opened
next. That is never before its end, so no offset is ever another record's: it is written before the log is used, far
ahead of it, ever again before that is reached, and exactly when the directory is closed.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from typing import NamedTuple, Self
from uuid import UUID, uuid4

from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError
from headrace.model import TopicPartition, check_topic_name
from headrace.storage import checkpoint
from headrace.storage.atomic_file import NAME_MAX, make_folder, write_atomically
from headrace.storage.compaction.cleaner import Cleaned, clean, cleanable
from headrace.storage.config import LogConfig
from headrace.storage.errors import (
    DirectoryInUse,
    DiskFull,
    LogDeleted,
    LogExists,
    StorageError,
    UnknownLog,
    mend_of,
    refusal,
)
from headrace.storage.filesystem import FileSystem, OsFileSystem
from headrace.storage.log import Log
from headrace.storage.log_loader import Recovery, open_log
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.names import LOG

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
METADATA = "partition.metadata"
_DELETE_SUFFIX = "-delete"
_OFFSETS_AHEAD = 2**32  # of a log in memory
_CONTROLLERS = "__cluster_metadata"  # the log of a Kafka that was here: no topic, and its way back

ConfigFor = Callable[[TopicPartition], LogConfig]
Progress = Callable[[int, int, Recovery], None]


class TopicUsage(NamedTuple):
    partitions: int
    segments: int
    size_bytes: int


class LogDirectory:
    """All logs of one data directory, open; made by `LogDirectory.open`."""

    def __init__(self, path: str, filesystem: FileSystem, clock: Clock, unlock: Callable[[], None]) -> None:
        self.path = path
        self.recoveries: list[Recovery] = []
        self._filesystem = filesystem
        self._clock = clock
        self._unlock = unlock
        self._lock = RLock()
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._memory = MemoryFiles(clock)
        self._next_starts: dict[TopicPartition, int] = {}  # of logs in memory, when the directory is opened next
        self._cleaned_to: dict[TopicPartition, int] = {}
        self._failed_cleaning: dict[TopicPartition, int] = {}
        self._is_closed = False
        self._has_stale_checkpoints = False  # of a log that was deleted, and may be made again

    @classmethod
    def open(
        cls,
        path: str,
        *,
        config_for: ConfigFor = lambda _: LogConfig(),
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        progress: Progress = lambda *_: None,
    ) -> Self:
        """Open the directory, making it if need be, and recover every log in it.

        `progress` is told the number of logs done, the number in all, and what the last one took.
        """
        filesystem = filesystem or OsFileSystem()
        try:
            make_folder(filesystem, path)
            unlock = filesystem.lock(f"{path}/{LOCK}")
        except BlockingIOError as error:
            raise DirectoryInUse(path) from error
        except OSError as error:
            raise StorageError(f"data directory {path} cannot be opened: {error.strerror}") from error
        directory = cls(path, filesystem, clock or SystemClock(), unlock)
        try:
            directory._load(config_for, progress)
        except OSError as error:
            directory.abandon()
            raise StorageError(
                f"data directory {path} cannot be opened: {error.strerror} ({error.filename}): {mend_of(error)}"
            ) from error
        except BaseException:
            directory.abandon()
            raise
        return directory

    def _load(self, config_for: ConfigFor, progress: Progress) -> None:
        was_clean = self._filesystem.exists(self._file(CLEAN_SHUTDOWN))
        recovery_points = self._read(checkpoint.RECOVERY_POINT)
        starts = self._read(checkpoint.LOG_START)
        folders = self._partition_folders()
        there = {partition for partition, _ in folders}
        self._next_starts = self._read(checkpoint.MEMORY_START)
        cleaned_to = self._read(checkpoint.CLEANER)
        self._cleaned_to = {partition: offset for partition, offset in cleaned_to.items() if partition in there}
        for done, (partition, folder) in enumerate(folders, start=1):
            log, recovery = open_log(
                self._filesystem,
                folder,
                partition,
                config_for(partition),
                now_ms=self._clock.now_ms(),
                start_offset=starts.get(partition, 0),
                recovery_point=recovery_points.get(partition),
                cleaned_to=self._cleaned_to.get(partition, 0),
                was_clean=was_clean,
            )
            self._logs[partition] = log
            self._topic_ids[partition] = self._read_topic_id(folder)
            if not was_clean:
                log.flush()
            self.recoveries.append(recovery)
            progress(done, len(folders), recovery)
        self.checkpoint()
        if was_clean:
            self._filesystem.remove(self._file(CLEAN_SHUTDOWN))
        self._filesystem.sync_directory(self.path)

    def _partition_folders(self) -> list[tuple[TopicPartition, str]]:
        folders = []
        for name in self._filesystem.list(self.path):
            partition = TopicPartition.from_folder(name)
            if partition and partition.topic == _CONTROLLERS:
                continue
            if partition and self._is_leftover(self._file(name)):
                self._remove_folder(self._file(name), self._filesystem)
            elif partition:
                folders.append((partition, self._file(name)))
            elif name.endswith(_DELETE_SUFFIX) and "." in name:
                self._remove_folder(self._file(name), self._filesystem)
        return folders

    def _is_leftover(self, folder: str) -> bool:
        """Whether a crash interrupted the making of this log: its id is written before its first segment."""
        names = self._filesystem.list(folder)
        return METADATA not in names and not any(name.endswith(LOG) for name in names)

    # --- logs

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Every log by its partition, as of now."""
        return dict(self._logs)

    def log(self, partition: TopicPartition) -> Log:
        try:
            return self._logs[partition]
        except KeyError:
            raise UnknownLog(f"there is no log {partition} in {self.path}: create the topic first") from None

    def topic_id(self, partition: TopicPartition) -> UUID:
        return self._topic_ids[partition]

    def create(self, partition: TopicPartition, config: LogConfig, topic_id: UUID | None = None) -> Log:
        """Begin a log; it is on disk, empty, when this returns."""
        return self.create_all([partition], config, topic_id)[0]

    def create_all(
        self, partitions: Sequence[TopicPartition], config: LogConfig, topic_id: UUID | None = None
    ) -> list[Log]:
        """Begin the logs of a topic, all of them or none; they are on disk, empty, when this returns.

        What can be synced once for all of them is: a topic of many partitions must not hold up other work for long.
        """
        with self._lock:
            for partition in partitions:
                check_topic_name(partition.topic)
                if partition in self._logs:
                    raise LogExists(f"log {partition} is in {self.path} already")
            if self._has_stale_checkpoints:
                self.checkpoint()
            begun: dict[TopicPartition, Log] = {}
            topic_id = topic_id or self._id_of(partitions[0].topic) or uuid4()
            try:
                for partition in partitions:
                    begun[partition] = self._begin(partition, config, topic_id)
                self._filesystem.sync_directory(self.path)
                self._write(checkpoint.RECOVERY_POINT, {**dict.fromkeys(partitions, 0), **self._recovery_points()})
                if config.is_in_memory:
                    self._next_starts |= {p: log.end_offset + _OFFSETS_AHEAD for p, log in begun.items()}
                    self._write(checkpoint.MEMORY_START, self._next_starts)
            except (OSError, StorageError) as error:
                for log in begun.values():
                    log.abandon()
                for partition in partitions[: len(begun) + 1]:
                    with suppress(OSError):
                        self._remove_folder(self._file(str(partition)), self._files_of(config))
                if isinstance(error, StorageError):
                    raise
                raise refusal(self.path, error) from error
            self._logs.update(begun)
            self._topic_ids.update(dict.fromkeys(begun, topic_id))
            return list(begun.values())

    def _begin(self, partition: TopicPartition, config: LogConfig, topic_id: UUID) -> Log:
        folder, filesystem = self._file(str(partition)), self._files_of(config)
        if filesystem.exists(folder):  # what is left of one that could not be made
            self._remove_folder(folder, filesystem)
        filesystem.make_directory(folder)
        text = f"version: 0\ntopic_id: {_encode_id(topic_id)}"
        write_atomically(filesystem, f"{folder}/{METADATA}", text.encode(), sync_name=False)
        start = self._next_starts.get(partition, 0) if config.is_in_memory else 0
        log, _ = open_log(
            filesystem, folder, partition, config, now_ms=self._clock.now_ms(), start_offset=start, was_clean=True
        )
        filesystem.sync_directory(folder)
        return log

    def _files_of(self, config: LogConfig) -> FileSystem:
        return self._memory if config.is_in_memory else self._filesystem

    def delete(self, partition: TopicPartition) -> None:
        """Remove a log for good. It is gone at once; readers that hold a part of it read on."""
        self.delete_all([partition])

    def delete_all(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove logs for good, with one sync and one checkpoint for all of them.

        What cannot be removed does not keep the others from it; it stays, and is the error.
        """
        doomed: list[tuple[str, FileSystem]] = []
        forgotten = False
        failures: list[StorageError] = []
        with self._lock:
            for log in [self.log(partition) for partition in partitions]:
                name = self._file(_doomed_name(log.topic_partition))
                with _collect_failures(failures), _translate_errors(log.directory):
                    log.delete(name)
                    doomed.append((name, self._files_of(log.config)))
                    forgotten |= self._next_starts.pop(log.topic_partition, None) is not None
                    del self._logs[log.topic_partition], self._topic_ids[log.topic_partition]
                    self._cleaned_to.pop(log.topic_partition, None)
                    self._failed_cleaning.pop(log.topic_partition, None)
                    self._has_stale_checkpoints = True
            self.sync_names()
            self.checkpoint()
            if forgotten:
                self._write(checkpoint.MEMORY_START, self._next_starts)
            for name, filesystem in doomed:
                with suppress(OSError):  # what is left of it goes when the directory is opened next
                    self._remove_folder(name, filesystem)
        if failures:
            raise failures[0]

    def sync_names(self) -> None:
        """Return once it is on the disk which logs there are."""
        with _translate_errors(self.path):
            self._filesystem.sync_directory(self.path)

    def _id_of(self, topic: str) -> UUID | None:
        return next((found for partition, found in self._topic_ids.items() if partition.topic == topic), None)

    def delete_records(self, partition: TopicPartition, before: int, *, log: Log | None = None) -> int:
        """Make everything before an offset unreadable, for good; where the log begins now.

        `log` says which one was meant: the partition may be another log's by now.
        """
        log = log or self.log(partition)
        start = log.advance_start(before)
        self.remove_dead([log])
        return start

    def remove_dead(self, logs: Sequence[Log]) -> None:
        """Remove what lies before the starts of logs, once it is on the disk that they begin there."""
        failures: list[StorageError] = []
        for log in logs:
            with _collect_failures(failures):
                if log.start_offset > log.durable_offset:
                    log.flush()
        self._write_starts()
        for log in logs:
            with _collect_failures(failures):
                if log.start_offset <= log.durable_offset:
                    log.remove_dead_segments(self._clock.now_ms())
        if failures:
            raise failures[0]

    def usage(self) -> dict[str, TopicUsage]:
        usage: dict[str, TopicUsage] = {}
        for partition, log in sorted(self.logs.items()):
            had = usage.get(partition.topic, TopicUsage(0, 0, 0))
            usage[partition.topic] = TopicUsage(
                had.partitions + 1, had.segments + len(log.segments), had.size_bytes + log.size_bytes
            )
        return usage

    # --- looking after them

    def enforce_retention(self) -> dict[TopicPartition, int]:
        """Remove what is too old or too much; the number of segments removed, where any were."""
        now_ms = self._clock.now_ms()
        logs = self.logs
        failures: list[StorageError] = []
        for log in logs.values():
            with _collect_failures(failures):
                if log.expire(now_ms) > log.durable_offset:
                    log.flush()
        # The starts go to disk before any file goes: a crash in between must not bring records back. Only a disk
        # without room for that little file is given room first.
        with _collect_failures(failures, DiskFull):
            self._write_starts()
        removed = {}
        for partition, log in logs.items():
            with _collect_failures(failures):
                if log.start_offset <= log.durable_offset:
                    removed[partition] = len(log.remove_dead_segments(now_ms))
        if failures:
            self._write_starts()
            failures = [error for error in failures if not isinstance(error, DiskFull)]
        if failures:
            raise failures[0]
        return {partition: count for partition, count in removed.items() if count}

    def expire_producers(self, expiration_ms: int) -> dict[TopicPartition, int]:
        """Forget producers that have been silent for this long; how many, where any were."""
        now_ms = self._clock.now_ms()
        forgotten = {partition: log.expire_producers(now_ms, expiration_ms) for partition, log in self.logs.items()}
        return {partition: count for partition, count in forgotten.items() if count}

    def compact(self) -> dict[TopicPartition, Cleaned | HeadraceError]:
        """Clean every compacted log that is dirty enough, the dirtiest first; what that did to each.

        A log that cannot be cleaned is left alone until it is dirtier, and does not keep the others from it.
        """
        now_ms = self._clock.now_ms()
        due = []
        for partition, log in self.logs.items():
            if log.config.compacts:
                found = cleanable(log, self._cleaned_to.get(partition, 0), now_ms)
                if found.is_due and self._failed_cleaning.get(partition, -1) < found.uncleanable_offset:
                    due.append((found, partition, log))
        outcome: dict[TopicPartition, Cleaned | HeadraceError] = {}
        for found, partition, log in sorted(due, key=lambda entry: entry[0].dirty_ratio, reverse=True):
            try:
                cleaned = clean(
                    log, checkpoint=self._cleaned_to.get(partition, 0), now_ms=now_ms, before_swap=self.checkpoint
                )
            except LogDeleted:
                continue
            except HeadraceError as error:
                self._failed_cleaning[partition] = found.uncleanable_offset
                outcome[partition] = error
                continue
            with self._lock:
                if cleaned and self._logs.get(partition) is log:
                    self._cleaned_to[partition] = cleaned.end_offset
                    outcome[partition] = cleaned
                    self._write(checkpoint.CLEANER, self._cleaned_to)
        return outcome

    def flush_rolled(self) -> None:
        """Make full segments durable, so that a crash has less to check."""
        failures: list[StorageError] = []
        for log in self.logs.values():
            with _collect_failures(failures):
                log.flush(rolled_only=True)
                log.release_indexes()
        if failures:
            raise failures[0]

    def checkpoint(self) -> None:
        """Write down how far each log is durable and where it begins."""
        with self._lock:
            self._write(checkpoint.RECOVERY_POINT, self._recovery_points())
            self._write_starts()
            self._write_next_starts()
            self._write(checkpoint.HIGH_WATERMARK, {p: log.end_offset for p, log in self._logs.items()})
            if self._has_stale_checkpoints:
                self._write(checkpoint.CLEANER, self._cleaned_to)
                self._has_stale_checkpoints = False

    def _recovery_points(self) -> dict[TopicPartition, int]:
        return {partition: log.durable_offset for partition, log in self._logs.items()}

    def _write_starts(self) -> None:
        """Write down where each log begins; never behind what is on the disk, or a crash leaves it ending before."""
        with self._lock:
            on_disk = {p: log for p, log in self._logs.items() if not log.config.is_in_memory}
            starts = {p: min(log.start_offset, log.durable_offset) for p, log in on_disk.items()}
            self._write(checkpoint.LOG_START, starts)

    def _write_next_starts(self, *, is_closing: bool = False) -> None:
        """Write down where logs in memory begin next, if that has changed."""
        known = {p: self._logs[p].end_offset for p in self._next_starts if p in self._logs}
        if is_closing:
            changed = known
        else:
            near = _OFFSETS_AHEAD // 2
            changed = {p: end + _OFFSETS_AHEAD for p, end in known.items() if end > self._next_starts[p] - near}
        if changed:
            self._next_starts |= changed
            self._write(checkpoint.MEMORY_START, self._next_starts)

    # --- the end

    def close(self) -> None:
        """Make everything durable and leave the marker that saves the next opening the checks.

        Nothing is done where that was done before, or where everything was let go of.
        """
        if self._is_closed:
            return
        try:
            for log in self._logs.values():
                log.close()
            self.checkpoint()
            self._write_next_starts(is_closing=True)
            self._write(checkpoint.CLEANER, self._cleaned_to)
            write_atomically(self._filesystem, self._file(CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything as it is, as a crash would."""
        if self._is_closed:
            return
        self._is_closed = True
        for log in self._logs.values():
            log.abandon()
        self._logs = {}
        self._unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- files

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _read(self, name: str) -> dict[TopicPartition, int]:
        return checkpoint.read_offsets(self._filesystem, self._file(name))

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        with _translate_errors(self.path):
            checkpoint.write_offsets(self._filesystem, self._file(name), offsets)

    def _read_topic_id(self, folder: str) -> UUID:
        path = f"{folder}/{METADATA}"
        if self._filesystem.exists(path):
            for line in self._filesystem.read(path).decode("utf-8", "replace").splitlines():
                name, _, value = line.partition(":")
                if name == "topic_id":
                    return _decode_id(path, value.strip())
        return UUID(int=0)

    @staticmethod
    def _remove_folder(folder: str, filesystem: FileSystem) -> None:
        for name in filesystem.list(folder):
            with suppress(FileNotFoundError):
                filesystem.remove(f"{folder}/{name}")
        filesystem.remove_directory(folder)


def _doomed_name(partition: TopicPartition) -> str:
    """A name that no other folder has; as in Kafka the topic's is shortened if the file system takes no longer one."""
    suffix = f"-{partition.partition}.{uuid4().hex}{_DELETE_SUFFIX}"
    return partition.topic[: NAME_MAX - len(suffix)] + suffix


def _encode_id(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _decode_id(path: str, text: str) -> UUID:
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except ValueError:
        raise StorageError(f"{path}: {text[:60]!r} is not a topic id: restore the file from the topic's list") from None


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Tell what the disk refused as a storage error."""
    try:
        yield
    except OSError as error:
        raise refusal(path, error) from error


@contextmanager
def _collect_failures(failures: list[StorageError], kind: type[StorageError] = StorageError) -> Iterator[None]:
    """Let one log's failure wait until the others had their turn."""
    try:
        yield
    except LogDeleted:
        return  # there is nothing left to look after
    except kind as error:
        # A traceback would keep removed segments open, and the room they take.
        error.__cause__ = error.__context__ = error.__traceback__ = None
        failures.append(error)
