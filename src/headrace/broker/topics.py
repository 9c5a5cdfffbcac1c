"""The topics of a broker: their names, ids, partitions and settings, and where that is written down.

A topic is one small file in `topics/`, written whole and durably: it is the truth about the topic. What it names is
made if a crash prevented that, and what it marks as deleted is removed. A partition without such a file, as in a data
directory that a Kafka broker wrote, is taken in as it is.
"""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import RLock
from typing import NamedTuple
from uuid import UUID, uuid4

from headrace.broker.errors import BrokerError
from headrace.broker.limits import MAX_MEMORY_TOPIC_BYTES, MAX_PARTITIONS_IN_ALL, MAX_TOPIC_PARTITIONS, Limits
from headrace.broker.settings.broker import BROKER_SETTINGS
from headrace.broker.settings.setting import InvalidSetting
from headrace.broker.settings.topics import (
    STORAGE,
    check_topic_settings,
    complete_settings,
    log_config,
    memory_bytes_of,
)
from headrace.coordinator.metadata import METADATA_TOPIC
from headrace.delivery.bindings import InvalidBindings, check_bindings
from headrace.delivery.schedule import SCHEDULE_TOPIC
from headrace.model import TopicPartition, check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.storage.atomic_file import make_folder, write_atomically
from headrace.storage.config import DISK, LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import StorageError, refusal
from headrace.storage.filesystem import FileSystem
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)

FOLDER = "topics"
BINDINGS = "headrace.bindings"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now; a change makes a new one."""

    name: str
    id: bytes
    partitions: tuple[Log, ...]
    settings: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        """Whether the broker itself keeps its books here."""
        return self.name in INTERNAL_TOPICS

    @property
    def priorities(self) -> int:
        """How many levels its partitions have."""
        return self.partitions[0].config.headrace_queue_priorities if self.partitions else 1


AUDIT_TOPIC = "__headrace_audit"
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state", AUDIT_TOPIC)

# What the broker keeps to itself: in neither `by_name` nor `by_id`, so that no API reaches it, and `owned` by name. Its
# id is fixed, as Kafka's is for its own: a topic of the name with another one was made by a client, of an earlier
# version or of a Kafka, and what clients wrote is not to be believed.
HIDDEN_TOPICS = {METADATA_TOPIC: UUID(int=1), SCHEDULE_TOPIC: UUID(int=2)}


class TopicFile(NamedTuple):
    id: UUID
    partitions: int
    settings: dict[str, str]
    deleted: bool = False


class TopicCatalog:
    """All topics. One lock orders those who change them; reading needs none."""

    def __init__(
        self,
        directory: LogDirectory,
        filesystem: FileSystem,
        defaults: Mapping[str, str],
        limits: Limits | None = None,
    ) -> None:
        self._directory = directory
        self._limits = limits or Limits()
        self._filesystem = filesystem
        self._defaults = defaults
        self._folder = f"{directory.path}/{FOLDER}"
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._hidden: dict[str, Topic] = {}
        self.revision = 0
        self._listeners: list[Callable[[str | None], None]] = []
        self._lock = RLock()

    def on_change(self, listener: Callable[[str | None], None]) -> None:
        """Have `listener` called after each change, in the thread that made it; with the name of a topic that went."""
        self._listeners.append(listener)

    def _notify_changed(self, deleted: str | None = None) -> None:
        self.revision += 1
        for listener in self._listeners:
            listener(deleted)

    def load(self, files: Mapping[str, TopicFile]) -> None:
        """Take in what the directory holds, and finish what a crash interrupted."""
        found: dict[str, list[TopicPartition]] = {}
        for partition in sorted(self._directory.logs):
            found.setdefault(partition.topic, []).append(partition)
        for name, file in files.items():
            if file.deleted:
                found.pop(name, None)
                try:
                    self._remove(name)
                except StorageError as error:  # it stays marked, and is tried again at the next start
                    _log.warning("a deleted topic is still on the disk", topic=name, error=str(error))
        for name, file in files.items():
            if not file.deleted:
                self._take_in(name, file, found.pop(name, []))
        for name, partitions in found.items():
            ids = [self._directory.topic_id(partition) for partition in partitions]
            topic_id = next((each for each in ids if each.int), None) or uuid4()  # Kafka had none before 2.8
            # The numbers may have gaps: a directory of a cluster has the partitions of one of its brokers.
            file = TopicFile(topic_id, partitions[-1].partition + 1, {})
            self._write(name, file)
            self._take_in(name, file, partitions)

    def _take_in(self, name: str, file: TopicFile, found: Collection[TopicPartition]) -> None:
        if HIDDEN_TOPICS.get(name, file.id) != file.id:
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the topic {name} was made by a client, and the broker keeps its own records under that name: move "
                f"{self._path(name)} and {self._directory.path}/{name}-* out of the data directory",
            )
        named = [TopicPartition(name, index) for index in range(file.partitions)]
        missing = [partition for partition in named if partition not in found]
        if missing:
            self._directory.create_all(missing, self.config_of(file.settings), file.id)
        self._publish(name, file)

    def config_of(self, settings: Mapping[str, str]) -> LogConfig:
        return log_config(settings, self._defaults)

    def owned(self, name: str) -> Topic | None:
        """A topic in which the broker keeps its books, whether clients see it or not."""
        return self._hidden.get(name) or self.by_name.get(name)

    # --- changing

    def create(
        self,
        name: str,
        partitions: int,
        settings: Mapping[str, str],
        *,
        validate_only: bool = False,
        by_broker: bool = False,
    ) -> Topic:
        """Make a topic; it is on disk when this returns."""
        with self._lock:
            check_topic_name(name)
            if (name in HIDDEN_TOPICS or name == AUDIT_TOPIC) and not by_broker:
                # Whoever made the audit log's topic before it is turned on would say how long it is kept.
                what = {AUDIT_TOPIC: "audit log", SCHEDULE_TOPIC: "schedule"}.get(name, "metadata")
                raise BrokerError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Creation of internal topic {name} is prohibited: the broker keeps its {what} there",
                )
            if self.owned(name):
                raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            if not by_broker:
                self._check_clash(name)
            if partitions < 1:
                raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions for {name}: give at least 1")
            if not by_broker:
                self._check_room(name, partitions, partitions)
            settings = complete_settings(settings)
            self._check_settings(name, settings)
            self._check_memory(name, settings, partitions)
            file = TopicFile(HIDDEN_TOPICS.get(name) or uuid4(), partitions, dict(settings))
            if validate_only:
                return Topic(name, file.id.bytes, (), file.settings)
            return self._make(name, file)

    def _check_settings(self, name: str, settings: Mapping[str, str]) -> LogConfig:
        """Refuse what a topic cannot be set to, beside what others are; how its log behaves then."""
        check_topic_settings(settings)
        text = settings.get(BINDINGS, "")
        if text.strip():
            others = {topic.name: topic.settings.get(BINDINGS, "") for topic in list(self.by_name.values())}
            try:
                targets = {binding.to for binding in check_bindings(name, text, others)}
            except InvalidBindings as error:
                raise InvalidSetting(f"{BINDINGS} is invalid: {error}") from None
            if owned := [each for each in (name, *sorted(targets)) if each in INTERNAL_TOPICS or each in HIDDEN_TOPICS]:
                raise InvalidSetting(f"{BINDINGS} is invalid: the broker keeps its books in {owned[0]}, name another")
        return self.config_of(settings)

    def _check_room(self, name: str, total: int, more: int) -> None:
        """Refuse more partitions than a topic, or all topics together, may have."""
        allowed = self._limit(MAX_TOPIC_PARTITIONS)
        if total > allowed:
            raise self._limits.refuse(
                MAX_TOPIC_PARTITIONS, allowed, f"{total} partitions for {name}", ErrorCode.INVALID_PARTITIONS
            )
        allowed = self._limit(MAX_PARTITIONS_IN_ALL)
        if more + sum(len(topic.partitions) for topic in self.by_name.values()) > allowed:
            raise self._limits.refuse(MAX_PARTITIONS_IN_ALL, allowed, f"{more} partitions for {name}")

    def _check_memory(self, name: str, settings: Mapping[str, str], partitions: int) -> None:
        """Refuse more memory topics than there is to be memory for: each partition may be full."""
        wanted = memory_bytes_of(settings) * partitions
        allowed = self._limit(MAX_MEMORY_TOPIC_BYTES)
        others = (topic for topic in self.by_name.values() if topic.name != name)
        taken = sum(memory_bytes_of(topic.settings) * len(topic.partitions) for topic in others)
        if wanted and wanted + taken > allowed:
            what = f"{wanted:,} bytes of memory for {name}, and {taken:,} for other topics"
            raise self._limits.refuse(MAX_MEMORY_TOPIC_BYTES, allowed, what)

    def _limit(self, name: str) -> int:
        return int(self._defaults.get(name, BROKER_SETTINGS[name].default))

    def _make(self, name: str, file: TopicFile, grown: Topic | None = None) -> Topic:
        """Write the file and begin the logs that it names and a topic that is `grown` has not; all of it or nothing."""
        first = len(grown.partitions) if grown else 0
        self._remove_logs(name, first)  # of a topic that could be neither made nor removed
        try:
            self._write(name, file)
            partitions = [TopicPartition(name, index) for index in range(first, file.partitions)]
            self._directory.create_all(partitions, self.config_of(file.settings), file.id)
        except StorageError:
            with suppress(StorageError):  # then the next attempt, or the next start, finds it as a crash leaves it
                if grown:
                    self._write(name, self._file_of(grown))
                else:
                    self._write(name, file._replace(deleted=True))  # or what a crash brings back would be a topic
                    self._directory.sync_names()
                    self._remove(name)
            raise
        return self._publish(name, file)

    @staticmethod
    def _file_of(topic: Topic) -> TopicFile:
        return TopicFile(UUID(bytes=topic.id), len(topic.partitions), dict(topic.settings))

    def _check_clash(self, name: str) -> None:
        # Kafka's metrics cannot tell a dot from an underscore, so it refuses two names that differ in nothing else.
        # The names of the broker's own topics are taken before it makes them.
        if "." in name or "_" in name:
            plain = name.replace(".", "_")
            for other in (*self.by_name, *INTERNAL_TOPICS, *HIDDEN_TOPICS):
                if other != name and other.replace(".", "_") == plain:
                    raise BrokerError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                    )

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions; keys may hash to others from then on."""
        with self._lock:
            topic = self._published(name)
            if total <= len(topic.partitions):
                raise BrokerError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"{name} has {len(topic.partitions)} partitions, and {total} is not more: they only grow",
                )
            self._check_room(name, total, total - len(topic.partitions))
            self._check_memory(name, topic.settings, total)
            if validate_only:
                return
            self._make(name, self._file_of(topic)._replace(partitions=total), grown=topic)

    def alter(self, name: str, settings: Mapping[str, str], *, validate_only: bool = False) -> None:
        with self._lock:
            topic = self._published(name)
            if settings.get(STORAGE, DISK) != topic.settings.get(STORAGE, DISK):
                raise InvalidSetting(f"{STORAGE} stays as topic {name} was created: create another, and copy it")
            settings = complete_settings(settings)
            config = self._check_settings(name, settings)
            self._check_memory(name, settings, len(topic.partitions))
            if validate_only:
                return
            self._write(name, self._file_of(topic)._replace(settings=dict(settings)))
            for log in topic.partitions:
                log.config = config
            self._put(replace(topic, settings=dict(settings)))

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Have topics behave by other settings of the broker, wherever they have none of their own."""
        with self._lock:
            self._defaults = defaults
            for topic in (*self.by_name.values(), *self._hidden.values()):
                config = self.config_of(topic.settings)
                for log in topic.partitions:
                    log.config = config

    def delete(self, name: str, topic_id: bytes | None = None) -> None:
        """Remove a topic for good; `topic_id` says which one was meant, if the name may be another's by now."""
        with self._lock:
            topic = self._published(name, topic_id)
            try:
                self._write(name, self._file_of(topic)._replace(settings={}, deleted=True))
            except StorageError:
                # The file may say so all the same, and a start would act on it: it has to say again that the topic is
                # there, or nobody may write to it any more.
                try:
                    self._write(name, self._file_of(topic))
                except StorageError:
                    self._withdraw(topic)
                raise
            self._withdraw(topic)
            self._remove(name)

    def _published(self, name: str, topic_id: bytes | None = None) -> Topic:
        """The topic as it is now: since somebody looked it up, another request may have removed it."""
        topic = self.by_name.get(name) if topic_id is None else self.by_id.get(topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' was deleted by another request.")
        return topic

    def _withdraw(self, topic: Topic) -> None:
        del self.by_name[topic.name], self.by_id[topic.id]
        self._notify_changed(topic.name)

    def _remove(self, name: str) -> None:
        """Remove all that is on the disk of a topic that is not published; what cannot be, at the next start."""
        self._remove_logs(name)
        path = self._path(name)
        try:
            if self._filesystem.exists(path):
                self._filesystem.remove(path)
                self._filesystem.sync_directory(self._folder)
        except OSError as error:
            raise refusal(path, error) from error

    def _remove_logs(self, name: str, first: int = 0) -> None:
        partitions = [each for each in self._directory.logs if each.topic == name and each.partition >= first]
        if partitions:
            self._directory.delete_all(partitions)

    def _publish(self, name: str, file: TopicFile) -> Topic:
        logs = tuple(self._directory.log(TopicPartition(name, index)) for index in range(file.partitions))
        return self._put(Topic(name, file.id.bytes, logs, file.settings))

    def _put(self, topic: Topic) -> Topic:
        if topic.name in HIDDEN_TOPICS:
            self._hidden[topic.name] = topic
            return topic
        self.by_name[topic.name] = self.by_id[topic.id] = topic
        self._notify_changed()
        return topic

    # --- files

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}.json"

    def _write(self, name: str, file: TopicFile) -> None:
        content = file._asdict() | {"id": str(file.id)}
        try:
            make_folder(self._filesystem, self._folder)
            write_atomically(self._filesystem, self._path(name), json.dumps(content).encode())
        except OSError as error:
            raise refusal(self._folder, error) from error


def read_topic_files(filesystem: FileSystem, data_dir: str) -> dict[str, TopicFile]:
    """What is written down about each topic; needed before the logs are opened, for their settings."""
    folder = f"{data_dir}/{FOLDER}"
    files = {}
    for name in filesystem.list(folder) if filesystem.exists(folder) else []:
        if name.endswith(".json"):
            path = f"{folder}/{name}"
            try:
                content = json.loads(filesystem.read(path))
                files[name.removesuffix(".json")] = TopicFile(**content | {"id": UUID(content["id"])})
            except (ValueError, TypeError, KeyError) as error:
                raise BrokerError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{path} is not a valid topic file ({error}): restore it, or remove it to use default settings",
                ) from error
    return files
