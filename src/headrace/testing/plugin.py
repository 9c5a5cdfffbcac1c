"""The pytest plugin: brokers for tests, loaded by pytest once headrace is installed.

    def test_orders(headrace_broker):
        producer = Producer({"bootstrap.servers": headrace_broker.bootstrap_servers})

- `headrace_broker`: a broker of the test's own, fresh and empty, in a few milliseconds;
- `headrace_shared_broker`: one broker for the whole run, for suites that want to start nothing per test;
- `headrace_namespace`: topic names of the test's own on the shared broker, gone when the test is over.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker


@dataclass(frozen=True, slots=True)
class Namespace:
    """Names that no other test uses, on a broker that all share."""

    broker: "Broker"
    prefix: str

    @property
    def bootstrap_servers(self) -> str:
        """What a Kafka client wants as `bootstrap.servers`."""
        return self.broker.bootstrap_servers

    def topic(self, name: str) -> str:
        """This test's own topic of that name; the same for the same name."""
        return f"{self.prefix}.{name}"


@pytest.fixture
def headrace_broker() -> "Iterator[Broker]":
    """A fresh, empty broker that ends with the test. What a test writes need not survive a power cut."""
    from headrace.broker.embedded import Broker

    with Broker(durability="os") as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_shared_broker() -> "Iterator[Broker]":
    """One broker for the whole run."""
    from headrace.broker.embedded import Broker

    with Broker(durability="os") as broker:
        yield broker


@pytest.fixture
def headrace_namespace(headrace_shared_broker: "Broker") -> Iterator[Namespace]:
    """Topic names of the test's own on the shared broker; the topics are deleted when the test is over."""
    namespace = Namespace(headrace_shared_broker, f"t{uuid4().hex[:12]}")
    yield namespace
    headrace_shared_broker.delete_topics(prefix=namespace.prefix + ".")
