"""Events on a real Kafka: the contract of all stores, with one writer at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.eventsourcing.broker_store import BrokerEventStore
from headrace.eventsourcing.errors import EventSourcingError
from headrace.eventsourcing.kafka_store import KafkaEventStore
from headrace.testing.contracts.event_erasure import RefusedErasureContract, SealContract
from headrace.testing.contracts.events import EventStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable


class TestKafkaEventStore(EventStoreContract, SealContract, RefusedErasureContract):
    @pytest.fixture
    def open_store(self, real_kafka: str) -> Callable[[], Any]:
        topic = f"events-{uuid4().hex}"
        return lambda: KafkaEventStore(lambda: Cluster(parse_bootstrap(real_kafka)), topic)

    @pytest.mark.long  # writers that take over from each other all the time
    def test_no_conflict_is_lost_and_no_event_either(self, open_store: Any) -> None:
        super().test_no_conflict_is_lost_and_no_event_either(open_store)


def test_a_kafka_cannot_check_an_append(real_kafka: str) -> None:
    with pytest.raises(EventSourcingError, match="is not a Headrace broker, and cannot check an append"):
        BrokerEventStore(lambda: Cluster(parse_bootstrap(real_kafka)), "never-made")
