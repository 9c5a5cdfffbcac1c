"""Where the broker's audit log goes: a file, and a topic of the broker's own that clients read and cannot write."""

import errno
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from headrace.broker.config import BrokerConfig
from headrace.broker.topics import AUDIT_TOPIC, Topic, TopicCatalog
from headrace.errors import HeadraceError
from headrace.records import Record, build_batch
from headrace.storage.log import Log
from headrace.telemetry.audit import AuditFile, AuditLog

_LINES_A_BATCH: Final = 100
_SETTINGS: Final = {"max.message.bytes": str(16 * 1024 * 1024), "retention.ms": "-1", "retention.bytes": "104857600"}


def open_audit(config: BrokerConfig) -> AuditLog:
    """The audit log that is asked for, without its topic, which the data has to be open for; raises if it cannot be."""
    path = config.text("audit.file")
    events = tuple(event.strip() for event in config.text("audit.events").split(",") if event.strip())
    file = AuditFile(path, config.number("audit.max.bytes"), config.number("audit.files")) if path else None
    return AuditLog(file, events)


class AuditRuntime(Protocol):
    leader_epoch: int

    def now_ms(self) -> int: ...
    def appended(self, log: Log, offset: int) -> None: ...
    def run_later(self, work: Callable[[], Any]) -> None: ...


class AuditTopic:
    """The topic, made at the start and again if somebody deletes it: what comes meanwhile is lost, and counted."""

    def __init__(self, runtime: AuditRuntime, topics: TopicCatalog) -> None:
        self._runtime = runtime
        self._topics = topics
        self._make()

    def _make(self) -> Topic:
        return self._topics.by_name.get(AUDIT_TOPIC) or self._topics.create(AUDIT_TOPIC, 1, _SETTINGS, by_broker=True)

    def write(self, lines: Sequence[str]) -> None:
        topic = self._topics.by_name.get(AUDIT_TOPIC)
        if topic is None:
            self._runtime.run_later(self._make)  # not here: that waits for the disk, and for who changes topics
            raise OSError(errno.ENOENT, f"{AUDIT_TOPIC} was deleted")
        log = topic.partitions[0]
        now_ms = self._runtime.now_ms()
        try:
            for at in range(0, len(lines), _LINES_A_BATCH):
                some = enumerate(lines[at : at + _LINES_A_BATCH])
                batch = build_batch([Record(place, now_ms, None, line.encode()) for place, line in some])
                log.append(batch, now_ms=now_ms, leader_epoch=self._runtime.leader_epoch, from_client=False)
        except HeadraceError as error:
            raise OSError(errno.EIO, str(error)) from error
        self._runtime.appended(log, log.end_offset)

    def close(self) -> None:
        """The topic is the data directory's to close."""
