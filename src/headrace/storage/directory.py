"""A data directory: the logs in it, what is kept beside them, and who may use it.

One folder a partition, `topic-partition`, and Kafka's checkpoints at the top: how far each log is durable, where it
begins, how far it is compacted. The marker of a clean shutdown is there only while nobody has the directory open.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import RLock
from typing import NamedTuple, Self
from uuid import UUID, uuid4

from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError
from headrace.model import TopicPartition, check_topic_name
from headrace.storage import checkpoint
from headrace.storage.atomic_file import write_atomically
from headrace.storage.compaction.cleaner import Cleaned, clean, cleanable
from headrace.storage.config import LogConfig
from headrace.storage.errors import DirectoryInUse, LogExists, StorageError, UnknownLog, refusal
from headrace.storage.filesystem import FileSystem, OsFileSystem
from headrace.storage.log import Log
from headrace.storage.log_loader import Recovery, open_log

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
METADATA = "partition.metadata"
_DELETE_SUFFIX = "-delete"

ConfigFor = Callable[[TopicPartition], LogConfig]
Progress = Callable[[int, int, Recovery], None]


class TopicUsage(NamedTuple):
    """The disk space that a topic takes."""

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
        self._cleaned_to: dict[TopicPartition, int] = {}
        self._failed_cleaning: dict[TopicPartition, int] = {}

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
            filesystem.make_directory(path)
            unlock = filesystem.lock(f"{path}/{LOCK}")
        except BlockingIOError as error:
            raise DirectoryInUse(path) from error
        except OSError as error:
            raise StorageError(f"data directory {path} cannot be opened: {error.strerror}") from error
        directory = cls(path, filesystem, clock or SystemClock(), unlock)
        try:
            directory._load(config_for, progress)
        except BaseException:
            directory.abandon()
            raise
        return directory

    def _load(self, config_for: ConfigFor, progress: Progress) -> None:
        was_clean = self._filesystem.exists(self._file(CLEAN_SHUTDOWN))
        recovery_points = self._read(checkpoint.RECOVERY_POINT)
        starts = self._read(checkpoint.LOG_START)
        self._cleaned_to = self._read(checkpoint.CLEANER)
        folders = self._partition_folders()
        for done, (partition, folder) in enumerate(folders, start=1):
            log, recovery = open_log(
                self._filesystem,
                folder,
                partition,
                config_for(partition),
                now_ms=self._clock.now_ms(),
                start_offset=starts.get(partition, 0),
                recovery_point=recovery_points.get(partition, 0),
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
            if partition:
                folders.append((partition, self._file(name)))
            elif name.endswith(_DELETE_SUFFIX) and "." in name:
                self._remove_folder(self._file(name))
        return folders

    # --- logs

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Every log by its partition, as of now."""
        return dict(self._logs)

    def log(self, partition: TopicPartition) -> Log:
        """The log of a partition."""
        try:
            return self._logs[partition]
        except KeyError:
            raise UnknownLog(f"there is no log {partition} in {self.path}: create the topic first") from None

    def topic_id(self, partition: TopicPartition) -> UUID:
        """The id that the partition's topic was made with."""
        return self._topic_ids[partition]

    def create(self, partition: TopicPartition, config: LogConfig, topic_id: UUID | None = None) -> Log:
        """Begin a log; it is on disk, empty, when this returns."""
        check_topic_name(partition.topic)
        topic_id = topic_id or self._id_of(partition.topic) or uuid4()
        with self._lock:
            if partition in self._logs:
                raise LogExists(f"log {partition} is in {self.path} already")
            folder = self._file(str(partition))
            with _refused(folder):
                self._filesystem.make_directory(folder)
                text = f"version: 0\ntopic_id: {_encode_id(topic_id)}"
                write_atomically(self._filesystem, f"{folder}/{METADATA}", text.encode())
                self._filesystem.sync_directory(self.path)
                log, _ = open_log(self._filesystem, folder, partition, config, now_ms=self._clock.now_ms())
            self._logs[partition] = log
            self._topic_ids[partition] = topic_id
            return log

    def delete(self, partition: TopicPartition) -> None:
        """Remove a log for good. It is gone at once; readers that hold a part of it read on."""
        log = self.log(partition)
        with self._lock:
            del self._logs[partition], self._topic_ids[partition]
            self._cleaned_to.pop(partition, None)
            doomed = f"{log.directory}.{uuid4().hex}{_DELETE_SUFFIX}"
            self._filesystem.replace(log.directory, doomed)
            self._filesystem.sync_directory(self.path)
            self.checkpoint()
            self._remove_folder(doomed)

    def _id_of(self, topic: str) -> UUID | None:
        return next((found for partition, found in self._topic_ids.items() if partition.topic == topic), None)

    def delete_records(self, partition: TopicPartition, before: int) -> int:
        """Make everything before an offset unreadable, for good; where the log begins now."""
        log = self.log(partition)
        start = log.advance_start(before)
        self._write(checkpoint.LOG_START, {p: each.start_offset for p, each in self.logs.items()})
        log.remove_dead_segments(self._clock.now_ms())
        return start

    def usage(self) -> dict[str, TopicUsage]:
        """The disk space of each topic."""
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
        for log in self.logs.values():
            log.expire(now_ms)
        # The starts go to disk before any file goes: a crash in between must not bring records back.
        self._write(checkpoint.LOG_START, {p: each.start_offset for p, each in self.logs.items()})
        removed = {partition: len(log.remove_dead_segments(now_ms)) for partition, log in self.logs.items()}
        return {partition: count for partition, count in removed.items() if count}

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
                cleaned = clean(log, self._filesystem, checkpoint=self._cleaned_to.get(partition, 0), now_ms=now_ms)
            except HeadraceError as error:
                self._failed_cleaning[partition] = found.uncleanable_offset
                outcome[partition] = error
                continue
            if cleaned and partition in self._logs:
                self._cleaned_to[partition] = cleaned.end_offset
                outcome[partition] = cleaned
                self._write(checkpoint.CLEANER, self._cleaned_to)
        return outcome

    def flush_rolled(self) -> None:
        """Make full segments durable, so that a crash has less to check."""
        for log in self.logs.values():
            log.flush(rolled_only=True)
            log.release_indexes()

    def checkpoint(self) -> None:
        """Write down how far each log is durable and where it begins."""
        with self._lock:
            self._write(checkpoint.RECOVERY_POINT, {p: log.durable_offset for p, log in self._logs.items()})
            self._write(checkpoint.LOG_START, {p: log.start_offset for p, log in self._logs.items()})
            self._write(checkpoint.HIGH_WATERMARK, {p: log.end_offset for p, log in self._logs.items()})

    # --- the end

    def close(self) -> None:
        """Make everything durable and leave the marker that saves the next opening the checks."""
        try:
            for log in self._logs.values():
                log.close()
            self.checkpoint()
            self._write(checkpoint.CLEANER, self._cleaned_to)
            write_atomically(self._filesystem, self._file(CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything as it is, as a crash would."""
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
        with _refused(self.path):
            checkpoint.write_offsets(self._filesystem, self._file(name), offsets)

    def _read_topic_id(self, folder: str) -> UUID:
        path = f"{folder}/{METADATA}"
        if self._filesystem.exists(path):
            for line in self._filesystem.read(path).decode("utf-8", "replace").splitlines():
                name, _, value = line.partition(":")
                if name == "topic_id":
                    return _decode_id(value.strip())
        return UUID(int=0)

    def _remove_folder(self, folder: str) -> None:
        for name in self._filesystem.list(folder):
            with suppress(FileNotFoundError):
                self._filesystem.remove(f"{folder}/{name}")
        self._filesystem.remove_directory(folder)


def _encode_id(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _decode_id(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


@contextmanager
def _refused(path: str) -> Iterator[None]:
    """Tell what the disk refused as a storage error."""
    try:
        yield
    except OSError as error:
        raise refusal(path, error) from error
