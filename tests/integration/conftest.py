"""One Spark session for all tests of a worker: a JVM costs seconds to start and a gigabyte to keep."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
