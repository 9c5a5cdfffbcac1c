"""The real Kafka for tests that ask for it; such tests are marked `java`."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from typing import TYPE_CHECKING

import pytest

from peers.java import PeerNotFetchedError, jars_of
from peers.kafka.broker import running_kafka
from tests.conformance.kafka_written import KafkaWritten, write_with_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peers.kafka.broker import KafkaBroker


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder with Kafka's jars. Without them a test fails: one that skips looks like one that passes."""
    try:
        return jars_of("kafka")
    except PeerNotFetchedError as missing:
        sentence = str(missing)
    pytest.fail(sentence, pytrace=False)  # out of the handler, or pytest tells both


@pytest.fixture(scope="session")
def real_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker, one for each worker: tests share it, so each makes topics and groups of its own names."""
    with running_kafka(tmp_path_factory.mktemp("real-kafka")) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka_written(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> KafkaWritten:
    """A directory written by the real Kafka, once for all workers: read it, or change a copy."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kafka-written"
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
