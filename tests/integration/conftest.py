"""What integration tests share: one Spark session for all tests of a worker, and a broker of each kind.

A JVM costs seconds to start and a gigabyte to keep.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headrace import Broker
from tests.conformance.conftest import kafka_jars, run_folder  # noqa: F401 - fixtures
from tests.conformance.shared_kafka import shared_kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.table_sink_stores import PostgresServer
    from tests.servers.index_server import IndexServer
    from tests.servers.mariadb import MariadbServer
    from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def spark_state(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the session keeps what it is told no other place for."""
    return str(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def spark(spark_state: str) -> "Iterator[SparkSession]":
    """A session with our formats and Spark's own connector."""
    from headrace.pipelines import session

    made = session("test", master="local[2]", state_dir=spark_state, jvm_kafka=True, conf={"spark.driver.memory": "1g"})
    yield made
    made.stop()


@pytest.fixture
def shared_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """`headrace pipeline …` in this process runs in the session that all tests share, and leaves it running.

    For tests of what a command does; what a process of its own is needed for (kills, Ctrl-C, the start) has one.
    """
    for place in ("headrace.pipelines.spark.session.session", "headrace.pipelines.jobs.service.session"):
        monkeypatch.setattr(place, lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a pipeline file's folder is added, and must not stay


@pytest.fixture(scope="module", params=["ours", "kafka"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker, and then a real Kafka."""
    if request.param == "ours":
        with Broker(tmp_path_factory.mktemp("broker")) as broker:
            yield broker.bootstrap_servers
    else:
        request.getfixturevalue("kafka_jars")
        with shared_kafka(request.getfixturevalue("run_folder") / "pipelines-kafka", {}) as address:
            yield address


@pytest.fixture(scope="module")
def postgres_server() -> "Iterator[PostgresServer]":
    """A PostgreSQL with nothing in it."""
    from tests.integration.table_sink_stores import PostgresServer

    server = PostgresServer()
    yield server
    server.end()


@pytest.fixture(scope="module")
def mariadb_server() -> "Iterator[MariadbServer]":
    """A MariaDB with nothing in it."""
    from tests.servers.mariadb import MariadbServer

    server = MariadbServer()
    yield server
    server.end()


@pytest.fixture(scope="module")
def redis_server() -> "Iterator[RedisServer]":
    """A Redis with nothing in it."""
    from tests.servers.redis import RedisServer

    server = RedisServer()
    yield server
    server.end()


@pytest.fixture(scope="module")
def index_server() -> "Iterator[IndexServer]":
    """A search server that speaks OpenSearch's interface."""
    from tests.servers.index_server import IndexServer

    server = IndexServer()
    yield server
    server.end()
