"""What runs a source: position in, batches through the envelope to the broker, acknowledgements back.

While one batch is on its way to the broker the next is read and written as JSON; there is never more than one of each,
so a slow broker slows the source down and nothing piles up here.

What always holds: the source is acknowledged only after records and position are committed; after any error everything
since the last commit is thrown away and the source is opened anew at the committed position, so a change is neither
lost nor doubled; an older instance of the same connector is fenced before the position is read.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import PLAIN, ConnectionSettings
from headrace.client.errors import ClientError, Refused
from headrace.connect.change import Batch, Position
from headrace.connect.delivery import Delivery, TopicSettings
from headrace.connect.envelope import EnvelopeWriter, OutRecord
from headrace.connect.errors import ConnectError, DeliveryExpired, RecordRefused, SourceUnavailable
from headrace.connect.source import KnowsTables, Source, TellsFacts
from headrace.errors import HeadraceError
from headrace.forgetting.errors import KeyStoreUnavailable
from headrace.protocol.errors import ErrorCode
from headrace.retry import Backoff
from headrace.schema_registry import RegistryUnavailable
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
_POLL_S = 1.0


@dataclass(slots=True)
class Progress:
    """How far a connector has come, for whoever watches it."""

    records: int = 0
    batches: int = 0
    failures: int = 0
    last_error: str | None = None
    position: Position | None = None
    committed_at: float = 0.0
    is_waiting: bool = False  # after a failure, until it has begun anew
    waiting_for: str = ""  # for what, in a few words
    facts: dict[str, Any] = field(default_factory=dict)  # what the source last told of itself
    topics: tuple[str, ...] = ()  # that it writes to
    lag_ms: int | None = None  # age of the last change when it was delivered; 0 once nothing more waits


@dataclass(slots=True)
class Runtime:
    """One connector: a source, its envelope, and the broker."""

    name: str
    make_source: Callable[[], Source]
    make_writer: Callable[[Source], EnvelopeWriter]
    bootstrap: Sequence[Address]
    connection: ConnectionSettings = PLAIN
    topics: TopicSettings = field(default_factory=TopicSettings)
    backoff: Backoff = field(default_factory=Backoff)
    progress: Progress = field(default_factory=Progress)
    _stopping: bool = False
    _source: object = None  # while it is open

    def stop(self) -> None:
        """End after the batch that is on its way; may be called from any thread or a signal's handler."""
        self._stopping = True

    def facts(self) -> dict[str, Any]:
        """What the source tells of itself; of one that is closed, what it told last. Any thread may ask."""
        source = self._source
        if isinstance(source, TellsFacts):
            self.progress.facts = source.facts()
        return self.progress.facts

    def run(self) -> None:
        """Run until it is stopped, the source has ended, or something happens that waiting does not mend."""
        failures = 0
        while not self._stopping:
            committed = self.progress.batches
            try:
                self._run_once()
                return
            except (SourceUnavailable, DeliveryExpired, ClientError, RegistryUnavailable, KeyStoreUnavailable) as error:
                if isinstance(error, Refused) and not _may_pass(error):
                    raise _lasting(error) from error
                failures = 1 if self.progress.batches > committed else failures + 1
                self.progress.failures += 1
                self.progress.last_error = str(error)
                self.progress.is_waiting = True
                self.progress.lag_ms = None
                self.progress.waiting_for = _waiting_for(error)
                if self.backoff.gives_up(failures):
                    raise
                pause_s = self.backoff.pause_s(failures)
                # Its status says so to whoever watches, once; a second line in the log would be noise.
                log.debug("connector waits", connector=self.name, error=str(error), pause_s=pause_s)
                self._pause(pause_s)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))

    def _run_once(self) -> None:
        with Cluster(self.bootstrap, self.connection) as cluster:
            delivery = Delivery(cluster, self.name, self.topics)
            position = delivery.begin()
            source = self.make_source()
            try:
                source.open(position)
                self._source = source
                self.progress.is_waiting = False
                writer = self.make_writer(source)
                writer.resume(position)
                if isinstance(source, KnowsTables):
                    delivery.prepare(writer.topics_of(source.table_names()))
                    self.progress.topics = delivery.written_topics
                log.info("connector runs", connector=self.name, fresh=position is None)
                with ThreadPoolExecutor(1, thread_name_prefix=f"headrace-{self.name}") as sender:
                    self._pump(source, writer, delivery, sender)
            except Exception:
                # What is left open would hold up every reader of the topics until it runs out of time.
                with contextlib.suppress(ClientError):
                    delivery.abort()
                raise
            finally:
                self._source = None
                source.close()

    def _pump(self, source: Source, writer: EnvelopeWriter, delivery: Delivery, sender: ThreadPoolExecutor) -> None:
        sent: tuple[Future[int], Batch] | None = None
        while True:
            batch = None if self._stopping else source.next_batch(0.0 if sent is not None else _POLL_S)
            records: list[OutRecord] = []
            if batch is not None:
                records = list(writer.write(batch.events, time.time_ns() // 1000))
            if sent is not None:
                self._settle(source, *sent)
                self.progress.topics = delivery.written_topics
                sent = None
            if batch is not None:
                now_ms = time.time_ns() // 1_000_000
                sent = sender.submit(delivery.deliver, records, writer.stamped(batch.position), now_ms), batch
                if batch.is_last:
                    self._settle(source, *sent)
                    self.progress.topics = delivery.written_topics
                    return
            elif self._stopping:
                return
            else:
                self.progress.lag_ms = 0

    def _settle(self, source: Source, sent: Future[int], batch: Batch) -> None:
        """Wait for a batch to be committed, and let the source forget it."""
        self.progress.records += sent.result()
        self.progress.batches += 1
        self.progress.position = batch.position
        self.progress.committed_at = time.time()
        if batch.events:
            self.progress.lag_ms = max(int(self.progress.committed_at * 1000) - batch.events[-1].origin.ts_ms, 0)
        source.acknowledge(batch.position)


def _waiting_for(error: HeadraceError) -> str:
    if isinstance(error, RegistryUnavailable):
        return "for the schema registry"
    if isinstance(error, KeyStoreUnavailable):
        return "for the key store"
    return f"for the {'database' if isinstance(error, SourceUnavailable) else 'broker'}"


def _may_pass(refusal: Refused) -> bool:
    # An id that was not used for days is forgotten by the broker; beginning anew makes it known again.
    return refusal.code.retriable or refusal.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _lasting(refusal: Refused) -> ConnectError:
    if refusal.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return RecordRefused(f"a row is larger than its topic takes ({refusal}): raise max.message.bytes of the topic")
    return RecordRefused(f"the broker refuses what the connector writes ({refusal})")
