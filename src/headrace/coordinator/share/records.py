"""The records of `__share_group_state` in Kafka's own formats: a snapshot of a partition's state, and updates to it.

A snapshot stands for everything before it. An update has what has changed since: where its start is -1 that stays as it
was, and its batches replace what was known of their offsets. The topic is not compacted, since an update does not stand
for the one before; what snapshots have made superfluous is deleted from its beginning.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.record_types import RecordType, RecordTypes
from headrace.coordinator.share.acknowledgement import AckType
from headrace.coordinator.share.partition import Failure, Pending, Producer, RecordState, Run
from headrace.protocol import schema as wire

STATE_TOPIC = "__share_group_state"


class ShareKey(NamedTuple):
    """A partition of a topic as one group sees it."""

    group_id: str
    topic_id: wire.Uuid
    partition: int

    @property
    def text(self) -> str:
        """The key as FindCoordinator has it; its hash says where in the topic its records are."""
        return f"{self.group_id}:{self.topic_id_text}:{self.partition}"

    @property
    def topic_id_text(self) -> str:
        """The id of the topic as Kafka's tools write it."""
        return urlsafe_b64encode(self.topic_id).rstrip(b"=").decode()


class ShareSnapshotKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    topic_id: wire.Uuid = wire.uuid()
    partition: int = wire.int32()


class ShareUpdateKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    topic_id: wire.Uuid = wire.uuid()
    partition: int = wire.int32()


class StateBatch(wire.Struct):
    first_offset: int = wire.int64()
    last_offset: int = wire.int64()
    delivery_state: int = wire.int8()
    delivery_count: int = wire.int16()
    # What Kafka does not keep, and skips: for the dead letter.
    reason: str = wire.string(tag=10_001)
    first_failed_ms: int = wire.int64(default=-1, tag=10_002)
    last_failed_ms: int = wire.int64(default=-1, tag=10_003)
    # What is acknowledged in a transaction; whoever skips it takes the records for available.
    producer_id: int = wire.int64(default=-1, tag=10_004)
    producer_epoch: int = wire.int16(default=-1, tag=10_005)
    acknowledge_type: int = wire.int8(default=-1, tag=10_006)


class ShareSnapshotValue(wire.Message, versions=range(1), flexible_since=0):
    snapshot_epoch: int = wire.int32()
    state_epoch: int = wire.int32()
    leader_epoch: int = wire.int32()
    start_offset: int = wire.int64()
    delivery_complete_count: int = wire.int32(default=-1, tag=0)
    create_timestamp: int = wire.int64()
    write_timestamp: int = wire.int64()
    state_batches: list[StateBatch] = wire.array(StateBatch)


class ShareUpdateValue(wire.Message, versions=range(1), flexible_since=0):
    snapshot_epoch: int = wire.int32()
    leader_epoch: int = wire.int32()
    start_offset: int = wire.int64()
    delivery_complete_count: int = wire.int32(default=-1, tag=0)
    state_batches: list[StateBatch] = wire.array(StateBatch)


RECORD_TYPES = (
    RecordType(0, ShareSnapshotKey, ShareSnapshotValue, 0),
    RecordType(1, ShareUpdateKey, ShareUpdateValue, 0),
)

_ARCHIVING = 3  # from Kafka 4.4 on (KIP-1191)
_KEPT = {
    int(RecordState.AVAILABLE): RecordState.AVAILABLE,
    int(RecordState.ACKNOWLEDGED): RecordState.ACKNOWLEDGED,
    _ARCHIVING: RecordState.ARCHIVING,
    int(RecordState.ARCHIVED): RecordState.ARCHIVED,
}

_TYPES = RecordTypes(STATE_TOPIC, RECORD_TYPES)

encode = _TYPES.encode
decode = _TYPES.decode


def key_of(record: CoordinatorRecord) -> ShareKey:
    key = record.key
    assert isinstance(key, ShareSnapshotKey | ShareUpdateKey)
    return ShareKey(key.group_id, key.topic_id, key.partition)


def write_runs(runs: Iterable[Run]) -> list[StateBatch]:
    written = []
    for run in runs:
        state = _ARCHIVING if run.state is RecordState.ARCHIVING else int(run.state)
        batch = StateBatch(
            first_offset=run.first, last_offset=run.last, delivery_state=state, delivery_count=run.deliveries
        )
        if run.failure is not None:
            batch.first_failed_ms, batch.last_failed_ms, batch.reason = run.failure
        if run.pending is not None:
            (batch.producer_id, batch.producer_epoch), batch.acknowledge_type = run.pending
            batch.delivery_state, batch.delivery_count = int(RecordState.AVAILABLE), run.deliveries - 1
        written.append(batch)
    return written


def read_runs(batches: Iterable[StateBatch]) -> list[Run]:
    """The runs of a record; one in a state that is not kept stands for what is available."""
    return [
        Run(
            batch.first_offset,
            batch.last_offset,
            _KEPT.get(batch.delivery_state, RecordState.AVAILABLE),
            batch.delivery_count,
            failure=_failure_in(batch),
        )
        if batch.producer_id < 0
        else _pending_run(batch)
        for batch in batches
        if batch.first_offset <= batch.last_offset
    ]


def _pending_run(batch: StateBatch) -> Run:
    """What waits for the end of a transaction; it is written as it was before it was delivered."""
    pending = Pending(Producer(batch.producer_id, batch.producer_epoch), AckType(batch.acknowledge_type))
    where = batch.first_offset, batch.last_offset
    deliveries = batch.delivery_count + 1
    return Run(*where, RecordState.PENDING, deliveries, failure=_failure_in(batch), pending=pending)


def _failure_in(batch: StateBatch) -> Failure | None:
    if batch.last_failed_ms < 0 and batch.delivery_state != _ARCHIVING:
        return None
    return Failure(batch.first_failed_ms, batch.last_failed_ms, batch.reason)
