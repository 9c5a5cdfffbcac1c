"""Members of share groups for tests, each on a connection of its own, that do what they are told."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from headrace.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.conformance.clients.wire import Wire
from tests.conformance.comparison import wait_until

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_GROUP_RESOURCE, _SET = 32, 0

# First and last offset and their types; and, if anything, the fields that only our broker knows.
Ack = tuple[int, int, list[int]] | tuple[int, int, list[int], dict[str, Any]]


def set_group(wire: Wire, group: str, **settings: str) -> None:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=_SET, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=configs)
    (answer,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == 0, answer


class Sharer:
    """A member of a share group."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self.wire = wire
        self.group = group
        self.topic = topic
        self.topic_id = wire.topic_id(topic)
        self.member = str(uuid4())
        self.member_epoch = 0
        self.session_epoch = 0

    def beat(self, epoch: int | None = None, topics: list[str] | None = None, **options: Any) -> Any:
        asked = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=options.pop("member_id", self.member),
            member_epoch=self.member_epoch if epoch is None else epoch,
            subscribed_topic_names=topics,
            **options,
        )
        answer = self.wire.ask(asked)
        if not answer.error_code:
            self.member_epoch = answer.member_epoch
        return answer

    def join(self) -> Any:
        """Join, and beat until the partitions have come."""
        self.wire.find_coordinator(self.group)
        answer = wait_until_ok(lambda: self.beat(0, [self.topic]))
        while not (answer.assignment and answer.assignment.topic_partitions):
            answer = self.beat(topics=[self.topic])
            assert not answer.error_code, answer
        return answer

    def fetch(self, *acks: Ack, epoch: int | None = None, **options: Any) -> Any:
        partition = FetchPartition(
            partition_index=options.pop("partition", 0),
            acknowledgement_batches=_batches(acks),
        )
        topics = [FetchTopic(topic_id=options.pop("topic_id", self.topic_id), partitions=[partition])]
        asked = ShareFetchRequest(
            group_id=options.pop("group_id", self.group),
            member_id=options.pop("member_id", self.member),
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            topics=options.pop("topics", topics),
            **{
                "max_wait_ms": 500,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "batch_size": 500,
            }
            | options,
        )
        answer = self.wire.ask(asked)
        if epoch is None and not answer.error_code:
            self.session_epoch += 1
        return answer

    def fetch_some(self, *acks: Ack, **options: Any) -> Any:
        """Fetch until there is something: Kafka initialises a group's state after the first fetch."""
        answer = self.fetch(*acks, **options)
        for _ in range(60):
            if any(partition.acquired_records for topic in answer.responses for partition in topic.partitions):
                break
            answer = self.fetch(**options)
        return answer

    def acknowledge(self, *acks: Ack, epoch: int | None = None, **options: Any) -> Any:
        partition = FetchPartition(
            partition_index=options.pop("partition", 0),
            acknowledgement_batches=_batches(acks),
        )
        asked = ShareAcknowledgeRequest(
            group_id=options.pop("group_id", self.group),
            member_id=options.pop("member_id", self.member),
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            topics=[FetchTopic(topic_id=options.pop("topic_id", self.topic_id), partitions=[partition])],
            **options,
        )
        answer = self.wire.ask(asked)
        if epoch is None and not answer.error_code:
            self.session_epoch += 1
        return answer


def _batches(acks: tuple[Ack, ...]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types, **(own[0] if own else {}))
        for first, last, types, *own in acks
    ]


def wait_until_ok(ask: Any) -> Any:
    """Ask until there is no error: Kafka's coordinators load a moment after they are named."""
    answers: list[Any] = []

    def code() -> int:
        answers.append(ask())
        return int(answers[-1].error_code)

    wait_until(code, 0)
    assert answers[-1].error_code == 0, answers[-1]
    return answers[-1]
