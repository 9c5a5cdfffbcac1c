"""The real Kafka for tests that ask for it; such tests are marked `java`."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from typing import TYPE_CHECKING

import pytest

from headrace import Broker
from peers.java import PeerNotFetchedError, jars_of
from tests.conformance.comparison import Brokers
from tests.conformance.kafka_written import KafkaWritten, write_with_kafka
from tests.conformance.secure_brokers import files, secure_broker  # noqa: F401 - fixtures
from tests.conformance.shared_kafka import shared_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What both brokers are given: the tests cannot wait for Kafka's defaults of minutes, and one setting of a topic has a
# default of the broker's own, to see how that is told.
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "compression.gzip.level": "5",
    "log.retention.ms": "-1",  # old timestamps are data here
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.share.session.timeout.ms": "30000",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.session.timeout.ms": "500",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
}
_KAFKA_ONLY = {
    "log.initial.task.delay.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",  # ours has a timer each
}


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder with Kafka's jars. Without them a test fails: one that skips looks like one that passes."""
    try:
        return jars_of("kafka")
    except PeerNotFetchedError as missing:
        sentence = str(missing)
    pytest.fail(sentence, pytrace=False)  # out of the handler, or pytest tells both


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def real_kafka(kafka_jars: Path, run_folder: Path) -> Iterator[str]:
    """The bootstrap servers of a real broker that all workers share: each test has topics and groups of its own."""
    with shared_kafka(run_folder / "real-kafka", SETTINGS | _KAFKA_ONLY) as servers:
        yield servers


@pytest.fixture(scope="session")
def our_broker() -> Iterator[str]:
    """The bootstrap servers of our broker, in a process of its own as a user's would be."""
    with Broker(settings=SETTINGS, own_process=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def brokers(our_broker: str, real_kafka: str) -> Brokers:
    """Both, to be compared."""
    return Brokers(ours=our_broker, kafka=real_kafka)


@pytest.fixture
def settings_of_brokers(run_folder: Path) -> Iterator[None]:
    """For a test that changes or compares settings of the brokers themselves: no other does meanwhile."""
    with (run_folder / "settings-of-brokers").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def kafka_written(kafka_jars: Path, run_folder: Path) -> KafkaWritten:
    """A directory written by the real Kafka, once for all workers: read it, or change a copy."""
    shared = run_folder / "kafka-written"
    shared.mkdir(exist_ok=True)
    done = shared / "done.pickle"
    with (shared / "lock").open("w") as lock:
        # The first worker writes, the others wait for it; the lock goes with the process that holds it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(shared / "data", ignore_errors=True)
            done.write_bytes(pickle.dumps(write_with_kafka(shared / "data")))
        written = pickle.loads(done.read_bytes())
    assert isinstance(written, KafkaWritten)
    return written
