"""What a broker is made of, put together: the logs, the topics, and who looks after them.

Everything here is called on the event loop; what waits for the disk runs in threads and comes back to it.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Final, TypeVar

from headrace.broker.auditing import AuditTopic
from headrace.broker.client_metrics import ClientMetrics
from headrace.broker.config import BrokerConfig
from headrace.broker.config_resources import ConfigResource, group_settings, usable
from headrace.broker.errors import BrokerError
from headrace.broker.events import Events
from headrace.broker.fetches import FetchSessions, Waiting
from headrace.broker.groups import GroupRoom, Groups
from headrace.broker.identity import Identity
from headrace.broker.lending import Senders
from headrace.broker.limits import (
    MAX_GROUPS,
    MAX_IN_FLIGHT_IN_ALL,
    MAX_MEMBERS,
    MAX_TRANSACTIONAL_IDS,
    QUEUED_BYTES,
    Limits,
)
from headrace.broker.load import Load
from headrace.broker.metadata_log import MetadataLog
from headrace.broker.metrics import BrokerMetrics
from headrace.broker.queues.finished import Finished
from headrace.broker.queues.overflow import Overflow
from headrace.broker.queues.partitions import Queues
from headrace.broker.settings.broker import BROKER_SETTINGS
from headrace.broker.settings.setting import InvalidSetting
from headrace.broker.settings.topics import log_config
from headrace.broker.share_sessions import ShareSessions
from headrace.broker.shares import Shares
from headrace.broker.topics import FOLDER, Topic, TopicCatalog, read_topic_files
from headrace.broker.transactions import Transactions
from headrace.broker.turns import Turns
from headrace.clock import Clock, SystemClock
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.transaction.machine import TransactionConfig
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.security.authorizer import Authorizer
from headrace.security.principal import InvalidPrincipal, Principal
from headrace.security.quotas import Ledger
from headrace.security.scram import ScramCredential
from headrace.storage.atomic_file import make_folder
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import DiskFull, StorageError, SyncFailed, WriteFailed
from headrace.storage.filesystem import FileSystem, OsFileSystem
from headrace.storage.group_commit import GroupCommit
from headrace.storage.housekeeping import Housekeeper, Schedule
from headrace.storage.log import Log
from headrace.telemetry.audit import AuditLog
from headrace.telemetry.logs import get_logger
from headrace.telemetry.traces import RequestTraces

_log = get_logger(__name__)
_DISK_ERRORS: Final = (DiskFull, WriteFailed, SyncFailed)
_QUIET_MS: Final = 60_000


class DiskWatch:
    """What the broker's log says of a disk that refuses writes: once when it begins, and once when it is over.

    It hears of every write that fails and, while any has, of those that do not. Every producer is answered with the
    reason, but whoever runs the broker looks at its log. A full disk refuses a thousand appends a second, so not each
    gets a line; and one that is full to the brim takes small batches and refuses large ones, so neither does each
    change.
    """

    __slots__ = ("_clock", "_is_logged", "_logged_ms", "_refused", "is_failing")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_failing = False
        self._is_logged = False
        self._logged_ms = -_QUIET_MS
        self._refused = 0

    def failed(self, error: BaseException) -> None:
        """A write was refused; errors that are not the disk's are not looked at."""
        if not isinstance(error, _DISK_ERRORS):
            return
        self.is_failing = True
        self._refused += 1
        now_ms = self._clock.now_ms()
        if not self._is_logged and now_ms - self._logged_ms >= _QUIET_MS:
            self._is_logged = True
            self._logged_ms = now_ms
            _log.error(_describe_failure(error), reason=str(error))

    def wrote(self) -> None:
        self.is_failing = False
        if self._is_logged:
            self._is_logged = False
            _log.info("the disk takes writes again", refused=self._refused)
            self._refused = 0


def _describe_failure(error: StorageError) -> str:
    what = "the disk is full" if isinstance(error, DiskFull) else "the disk refuses writes"
    return f"{what}: producers are refused until it takes writes again, reads go on"


def _group_settings(config: BrokerConfig) -> GroupSettings:
    names = {field.name: field.name.replace("_", ".") for field in fields(GroupSettings)}
    numbers = {field: config.number(name) for field, name in names.items() if name in BROKER_SETTINGS}
    return GroupSettings(**numbers)  # type: ignore[arg-type]  # the one that is a text is not a broker's setting


def _transaction_config(config: BrokerConfig, offsets_topic_partitions: int) -> TransactionConfig:
    """For the transaction coordinator, which has to find the partition that a group's offsets really are in."""
    return TransactionConfig(
        max_timeout_ms=config.number("transaction.max.timeout.ms"),
        id_expiration_ms=config.number("transactional.id.expiration.ms"),
        offsets_topic_partitions=offsets_topic_partitions,
    )


def _super_users(config: BrokerConfig) -> frozenset[Principal]:
    named = [text.strip() for text in config.text("super.users").split(";")]
    try:
        return frozenset(Principal.parse(text) for text in named if text)
    except InvalidPrincipal as error:
        raise InvalidSetting(f"super.users: {error}") from None


def _open_traces(config: BrokerConfig) -> RequestTraces | None:
    endpoint = config.text("otel.traces.endpoint")
    if not endpoint:
        return None
    share = float(config.text("otel.sample.ratio"))
    if not endpoint.startswith(("http://", "https://")) or not 0 <= share <= 1:
        raise InvalidSetting(
            f"otel.traces.endpoint={endpoint!r} and otel.sample.ratio={share:g} must be the URL of an OTLP collector, "
            "as http://127.0.0.1:4318/v1/traces, and a share from 0 to 1"
        )
    return RequestTraces(
        endpoint,
        service="headrace-broker",
        instance=config.text("node.id"),
        slow_s=config.number("otel.slow.ms") / 1000,
        share=share,
    )


def _schedule(config: BrokerConfig) -> Schedule:
    expiration_ms = config.number("producer.id.expiration.ms")
    return Schedule(
        retention_s=config.number("log.retention.check.interval.ms") / 1000,
        compaction_s=config.number("log.cleaner.backoff.ms") / 1000,
        producers_s=min(expiration_ms, PRODUCER_CHECK_MS) / 1000,
        producer_expiration_ms=expiration_ms,
    )


T = TypeVar("T")
PRODUCER_CHECK_MS = 600_000  # Kafka's producer.id.expiration.check.interval.ms


class Runtime:
    def __init__(
        self,
        config: BrokerConfig,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._given = config.settings
        self.config = config  # as it is now: some settings can be changed while the broker runs
        self.fetch_max_bytes = config.number("fetch.max.bytes")  # which every fetch asks for; it stays as it is
        super_users, traces = _super_users(config), _open_traces(config)  # before anything is opened: they may be wrong
        self.clock = clock or SystemClock()
        self.disk = DiskWatch(self.clock)
        self.limits = Limits()
        self._filesystem = filesystem or OsFileSystem()
        make_folder(self._filesystem, config.data_dir)
        files = read_topic_files(self._filesystem, config.data_dir)

        def config_for(partition: TopicPartition) -> LogConfig:
            file = files.get(partition.topic)
            return log_config(file.settings if file else {}, config.settings)

        self.directory = LogDirectory.open(
            config.data_dir, config_for=config_for, filesystem=self._filesystem, clock=self.clock
        )
        for recovery in self.directory.recoveries:
            if not recovery.is_clean:
                _log.warning(
                    "recovered",
                    log=str(recovery.topic_partition),
                    cut_bytes=recovery.cut_bytes,
                    cut_at=recovery.cut_at,
                    damage=[f"{d.segment:020d}.log at byte {d.position}, {d.size} bytes" for d in recovery.damage],
                )
        self.node_id = config.number("node.id")
        try:
            self.identity = Identity(self._filesystem, config.data_dir, self.node_id)
            self.leader_epoch = self.identity.leader_epoch
            self.topics = TopicCatalog(self.directory, self._filesystem, config.settings, self.limits)
            self.topics.load(files)
        except BaseException:
            self.directory.abandon()
            raise
        self.syncs = config.text("durability") == "fsync"
        self.waiting = Waiting(lambda steps: self.turns.run(steps))
        self.sessions = FetchSessions(config.number("max.incremental.fetch.session.cache.slots"))
        self.commit = GroupCommit()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="headrace-admin")
        self._producer_ids = ThreadPoolExecutor(1, thread_name_prefix="headrace-ids")
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="headrace-reader")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="headrace-events")
        self.senders = Senders()
        self._housekeeper = Housekeeper(self.directory, _schedule(config))
        self._loop: asyncio.AbstractEventLoop | None = None
        self.turns: Turns  # from the start on
        self.load = Load(config.number(QUEUED_BYTES), config.number(MAX_IN_FLIGHT_IN_ALL), _call_later)
        self.client_metrics = ClientMetrics()
        self.metrics = BrokerMetrics(traces)
        self.metadata = MetadataLog(self, self.topics, self._apply_settings)
        self.authorizer = (
            Authorizer(
                lambda: self.metadata.image.acls,
                super_users=super_users,
                allow_if_no_acl=config.flag("allow.everyone.if.no.acl.found"),
            )
            if config.text("authorization") == "on"
            else None  # and everybody may do everything
        )
        self.ledger = Ledger(lambda: self.metadata.image.quotas)
        self.quotas: Ledger | None = None  # as long as none are set, nobody looks for any
        self.audit = audit or AuditLog()
        self.on_users_removed: Callable[[], None] = lambda: None
        self._removed_users = 0
        if self.authorizer:
            self.metadata.on_change = self.authorizer.forget
        self.groups = Groups(
            self,
            self.topics,
            _group_settings(config),
            partitions=config.number("offsets.topic.num.partitions"),
            room=GroupRoom(config.number(MAX_GROUPS), config.number(MAX_MEMBERS), self.limits),
            acl_revision=lambda: self.authorizer.revision if self.authorizer else 0,
        )
        self.shares = Shares(
            self,
            self.groups,
            ShareSessions(config.number("group.share.max.share.sessions"), lambda steps: self.turns.run(steps)),
            partitions=config.number("share.coordinator.state.topic.num.partitions"),
        )
        self.groups.on_effect = self.shares.carry_out
        self.queues = Queues(self)
        self.shares.looking.judges.append(self.queues.find_judge)
        self.finished = Finished(self)
        self.finished.holds.append(self.queues.hold)
        self.overflow = Overflow(self)
        self.finished.on_finished = self.overflow.look_soon
        on_disk = isinstance(self._filesystem, OsFileSystem)
        self.events = Events(self, f"{config.data_dir}/{FOLDER}" if on_disk else None)
        self.transactions = Transactions(
            self,
            self.topics,
            self.groups,
            self.shares,
            _transaction_config(config, self.groups.log.partition_count),
            partitions=config.number("transaction.state.log.num.partitions"),
            next_producer_id=self.identity.next_producer_id,
            refuse_id=self._refuse_transactional_id,
        )

    def start(self) -> None:
        """Begin to work, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(self._loop)
        self.metadata.load()
        if self.authorizer and not self.authorizer.allows_anybody():
            _log.warning(
                "everything is denied to everybody: authorization is on, and there are neither ACLs nor super users",
                hint="name who may add ACLs in super.users, as User:admin",
            )
        if self.config.flag("audit.topic"):
            self.audit.add(AuditTopic(self, self.topics))
        self.groups.load()
        self.shares.load()
        self.transactions.load()
        self.queues.start()
        self.events.start()
        self.topics.on_change(self._topics_changed)
        self.finished.start()
        self._housekeeper.start()

    def _topics_changed(self, deleted: str | None) -> None:
        """Tell the groups, on the event loop: topics are changed in a thread."""
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.queues.topics_changed)
            self._loop.call_soon_threadsafe(self.events.topics_changed)
            if deleted:
                self._loop.call_soon_threadsafe(self.groups.topics_deleted, frozenset([deleted]))
            else:
                self._loop.call_soon_threadsafe(self.groups.topics_changed)

    def find_credential(self, mechanism: str, name: str) -> ScramCredential | None:
        """What is kept of the password of a user that was added while the broker ran."""
        return self.metadata.image.credentials.get((mechanism, name))

    def _refuse_transactional_id(self, known: int) -> bool:
        """Whether there are as many transactional ids already as there may be."""
        if known < self.config.number(MAX_TRANSACTIONAL_IDS):
            return False
        self.limits.reach(MAX_TRANSACTIONAL_IDS, "a transactional id more is wanted than are kept")
        return True

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def close(self) -> None:
        """Finish what is under way, make everything durable, and let go of the directory."""
        self.audit.close()
        self.queues.close()
        self.events.close()
        self.finished.close()
        self.metadata.close()
        self.groups.close()
        self.shares.close()
        self.transactions.close()
        self._threads.shutdown(wait=True)
        self._producer_ids.shutdown(wait=True)
        self._readers.shutdown(wait=True, cancel_futures=True)
        self.senders.close()
        self._background.shutdown(wait=True, cancel_futures=True)
        self.events.let_go()
        self._housekeeper.stop()
        self.commit.close()
        self.directory.close()
        self.metrics.close()

    # --- settings

    @property
    def layers(self) -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]:
        """The broker's settings by where they come from: set on this node, on all, and given at the start."""
        changed = self.metadata.image.configs(ConfigResource.BROKER)
        return changed.get(str(self.node_id), {}), changed.get("", {}), self._given

    def _apply_settings(self) -> None:
        """Have what was changed while the broker runs take effect; topics follow in the thread that changes them."""
        node, cluster, given = self.layers
        settings = {**given, **usable(cluster), **usable(node)}
        if settings != self.config.settings:
            self.config = replace(self.config, settings=settings)
            self._housekeeper.reschedule(_schedule(self.config))
            self._threads.submit(self.topics.set_defaults, settings)
        if self.metadata.image.removed_credentials != self._removed_users:
            self._removed_users = self.metadata.image.removed_credentials
            self.on_users_removed()
        self.quotas = self.ledger if self.metadata.image.quotas else None
        self.client_metrics.subscribe(self.metadata.image.configs(ConfigResource.CLIENT_METRICS))
        self.groups.settings_changed(group_settings(self.metadata.image.configs(ConfigResource.GROUP)))
        self.shares.settings_changed()

    # --- topics

    def topic(self, name: str, topic_id: bytes = b"", *, by_id: bool = False) -> Topic:
        if by_id:
            topic = self.topics.by_id.get(topic_id)
            if topic is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            return topic
        topic = self.topics.by_name.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return topic

    async def delete_topic(self, topic: Topic) -> None:
        """Remove a topic for good, and the offsets that groups committed for it: no power cut brings them back.

        A successor of the same name would be read from where this one was left.
        """
        await self.in_thread(lambda: self.topics.delete(topic.name, topic.id))
        for log in topic.partitions:  # whoever waits for more of it would wait in vain
            self.waiting.appended(log)
        self.shares.topics_deleted()
        error = await self.groups.topics_deleted(frozenset([topic.name]))
        if error:
            raise error

    @staticmethod
    def log(topic: Topic, partition: int) -> Log:
        if not 0 <= partition < len(topic.partitions):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return topic.partitions[partition]

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows another leader epoch than ours (KIP-320); -1 says that it knows none."""
        if epoch > self.leader_epoch:
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, "the leader epoch is newer than this broker's")
        if 0 <= epoch < self.leader_epoch:
            raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH, "the leader epoch is older than this broker's")

    def end_of_epoch(self, log: Log, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and where it ended; (-1, -1) if it never was.

        A log learns of an epoch by its first append, and Kafka's leader at once: to a client, ours begins at the end.
        """
        if not 0 <= epoch <= self.leader_epoch:
            return -1, -1
        latest = log.epochs.latest
        if epoch == self.leader_epoch or latest < 0:
            return epoch, log.end_offset
        return (latest, log.end_offset) if epoch > latest else log.epochs.end_of(epoch, log.end_offset)

    # --- records

    def high_watermark(self, log: Log) -> int:
        """What readers may see: everything, or with `durability = fsync` what a crash cannot take back."""
        return log.durable_offset if self.syncs else log.end_offset

    def last_stable_offset(self, log: Log) -> int:
        return min(log.last_stable_offset, self.high_watermark(log))

    def appended(self, log: Log, offset: int, done: Callable[[StorageError | None], None] | None = None) -> None:
        """Show what was appended before `offset` to readers as soon as they may see it; `done` when it is durable."""
        if not self.syncs:
            self.waiting.appended(log)
            if done:
                done(None)
            return

        def durable(error: StorageError | None) -> None:
            self.waiting.appended(log)
            if done:
                done(error)

        self._when_durable(log, offset, durable)

    # --- work that waits

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do what changes topics or waits for the disk in the one thread for it, in order."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def run_later(self, work: Callable[[], object]) -> None:
        """Do what changes topics, in order, with nobody waiting for it."""
        self._threads.submit(work)

    async def look_up(self, work: Callable[[], T]) -> T:
        """Do what reads logs, and may wait for the disk, in a thread of its own; whoever changes topics waits not."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def in_background(self, work: Callable[[], T]) -> T:
        """Do what may take seconds, and keeps nobody waiting, one after the other in a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._background, work)

    def run_in_background(self, work: Callable[[], object]) -> None:
        self._background.submit(work)

    async def next_producer_id(self) -> int:
        """A producer id that was never given out; no producer's start waits for somebody else's change of topics."""
        return await asyncio.get_running_loop().run_in_executor(self._producer_ids, self.identity.next_producer_id)

    def _when_durable(self, log: Log, offset: int, done: Callable[[StorageError | None], None]) -> None:
        """Call `done` on the event loop once everything before `offset` is on the disk."""
        loop = self._loop
        assert loop is not None
        self.commit.submit(log, offset, lambda error: _call_in(loop, done, error))


def _call_in(
    loop: asyncio.AbstractEventLoop, done: Callable[[StorageError | None], None], error: StorageError | None
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(done, error)


def _call_later(delay_s: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, call)
