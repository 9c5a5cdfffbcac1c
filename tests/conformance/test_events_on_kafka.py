"""Events on a real Kafka: the contract of all stores, with one writer at a time, and what flows there from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.eventsourcing.broker_store import BrokerEventStore
from headrace.eventsourcing.errors import EventSourcingError
from headrace.eventsourcing.kafka_store import KafkaEventStore
from headrace.eventsourcing.opening import open_store
from headrace.testing.contracts.event_erasure import ChainContract, RefusedArchivingContract, RefusedRedactionContract
from headrace.testing.contracts.events import EventStoreContract
from tests.integration.event_flows import Flow, append, wait_for_copies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class TestKafkaEventStore(EventStoreContract, RefusedArchivingContract, RefusedRedactionContract, ChainContract):
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


def test_events_of_a_database_flow_to_a_kafka(real_kafka: str, tmp_path: Path) -> None:
    topic = f"flow-{uuid4().hex}"
    section = {"url": f"sqlite:///{tmp_path}/events.db", "topic": topic}
    store = open_store(section["url"])
    for life in (1, 2):
        append(store, "a-1", *range(life, life + 3))
        with Flow(topic, section, real_kafka):
            assert wait_for_copies(real_kafka, topic, store) == list(store.read())
    store.close()
