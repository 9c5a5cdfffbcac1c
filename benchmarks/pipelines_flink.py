"""Flink's side, in SQL, in Flink's own Python environment: bounded reads, two tasks wide, all else as Flink comes.

Each query runs in a cluster that Flink starts inside its process and ends with the query; what is counted is the job's
own run time as Flink measures it, without that start.
"""

import time
from itertools import count
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment, TableResult

from pipelines_events import COMPRESSION, FIELDS, FLUSH, LEAST_AMOUNT, WANTED_EVENT, WINDOW_S, digest_windows

PARALLELISM = 2
_LIB = Path(__file__).resolve().parent.parent / ".cache" / "peers" / "flink" / "lib"
_CHECKPOINT_INTERVAL = "10 s"  # without any, nothing would be committed before the end

_COLUMNS = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS)
_WATERMARK = ", `time` AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR `time` AS `time` - INTERVAL '10' SECOND"
_RAW_COLUMNS = (
    "`key` BYTES, `value` BYTES, `topic` STRING METADATA VIRTUAL, `partition` INT METADATA VIRTUAL, "
    "`offset` BIGINT METADATA VIRTUAL, `timestamp` TIMESTAMP_LTZ(3) METADATA"
)
_RAW_FORMAT = {"key.format": "raw", "key.fields": "key", "value.format": "raw", "value.fields-include": "EXCEPT_KEY"}

_FILTER = (
    "SELECT id, `user`, amount, amount * 1.25 AS gross, TO_TIMESTAMP_LTZ(ts, 3) AS `time` FROM events "
    f"WHERE event = '{WANTED_EVENT}' AND amount > {LEAST_AMOUNT}"
)
_TUMBLING = (
    "SELECT window_start, `user`, COUNT(*) AS n "
    f"FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(`time`), INTERVAL '{WINDOW_S}' SECONDS)) "
    "GROUP BY window_start, window_end, `user`"
)
_RAW = "SELECT * FROM events"
_QUERIES = {"filter": _FILTER, "tumbling": _TUMBLING, "raw": _RAW}
_RESULTS = {
    "filter": "id BIGINT, `user` STRING, amount DOUBLE, gross DOUBLE, `time` TIMESTAMP_LTZ(3)",
    "tumbling": "window_start TIMESTAMP(3), `user` STRING, n BIGINT",
    "raw": "`key` BYTES, `value` BYTES, topic STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP_LTZ(3)",
}


class Flink:
    """The queries, and a sink that writes at least once."""

    guarantee = "at-least-once"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        jars = [f"file://{each}" for each in sorted(_LIB.glob("*.jar"))]
        if not jars:
            raise ImportError(f"no jar in {_LIB}")
        settings = {
            "pipeline.jars": ";".join(jars),
            "parallelism.default": str(PARALLELISM),
            "table.local-time-zone": "UTC",
            **self.settings(),
        }
        configuration = Configuration()
        for name, value in settings.items():
            configuration.set_string(name, value)
        self._configuration = configuration
        self._environments: dict[str, TableEnvironment] = {}
        self._environment("stream")

    def settings(self) -> dict[str, str]:
        """At least once needs no checkpoint for a bounded job to end."""
        return {}

    def close(self) -> None:
        """Nothing outlives a query."""

    def query(self, row: str, mode: str, bootstrap: str, topic: str) -> dict[str, Any]:
        """Read all there is into nothing; how long it took."""
        environment = self._with_events(row, mode, bootstrap, topic)
        environment.execute_sql("DROP TABLE IF EXISTS nothing")
        environment.execute_sql(f"CREATE TABLE nothing ({_RESULTS[row]}) WITH ('connector' = 'blackhole')")
        return _timed(environment, f"INSERT INTO nothing {_QUERIES[row]}")

    def verify(self, row: str, mode: str, bootstrap: str, topic: str) -> dict[str, Any]:
        """Read all there is and say what came out."""
        # A sum over a stream would come as one correction for each record, all the way into Python.
        environment = self._with_events(row, mode if row == "tumbling" else "batch", bootstrap, topic)
        if row == "tumbling":
            start = "UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000"
            made = f"SELECT {start}, `user`, n FROM ({_TUMBLING}) WHERE `user` <> '{FLUSH}'"
            found = [tuple(each) for each in environment.execute_sql(made).collect()]
            return {"windows": len(found), "windows_digest": digest_windows(found)}
        if row == "filter":
            sums = "COUNT(*), SUM(CAST(ROUND(amount * 100) AS BIGINT))"
            passing, cents = _only(environment.execute_sql(f"SELECT {sums} FROM ({_FILTER})"))
            return {"passing": passing, "passing_cents": cents}
        sums = "COUNT(*), SUM(CHAR_LENGTH(DECODE(`value`, 'UTF-8')))"
        records, size = _only(environment.execute_sql(f"SELECT {sums} FROM events"))
        return {"records": records, "value_bytes": size}

    def copy(self, mode: str, bootstrap: str, topic: str, sink: str) -> dict[str, Any]:
        """All there is in one topic into another."""
        environment = self._with_events("raw", mode, bootstrap, topic)
        options = {
            "connector": "kafka",
            "topic": sink,
            "properties.bootstrap.servers": bootstrap,
            "properties.compression.type": COMPRESSION,
            "sink.delivery-guarantee": self.guarantee,
            "sink.transactional-id-prefix": f"bench-{sink}-{next(self._numbers)}",
            "properties.transaction.timeout.ms": "600000",  # brokers allow 15 minutes, and Flink's default is more
            **_RAW_FORMAT,
        }
        environment.execute_sql("DROP TABLE IF EXISTS copied")
        environment.execute_sql(f"CREATE TABLE copied (`key` BYTES, `value` BYTES) WITH ({_spelt(options)})")
        return _timed(environment, "INSERT INTO copied SELECT `key`, `value` FROM events")

    def _environment(self, mode: str) -> TableEnvironment:
        if mode not in self._environments:
            chosen = EnvironmentSettings.new_instance().with_configuration(self._configuration)
            chosen = chosen.in_batch_mode() if mode == "batch" else chosen.in_streaming_mode()
            self._environments[mode] = TableEnvironment.create(chosen.build())
        return self._environments[mode]

    def _with_events(self, row: str, mode: str, bootstrap: str, topic: str) -> TableEnvironment:
        options = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": bootstrap,
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
            **(_RAW_FORMAT if row == "raw" else {"format": "json"}),
        }
        columns = {"raw": _RAW_COLUMNS, "tumbling": _COLUMNS + _WATERMARK}.get(row, _COLUMNS)
        environment = self._environment(mode)
        environment.execute_sql("DROP TABLE IF EXISTS events")
        environment.execute_sql(f"CREATE TABLE events ({columns}) WITH ({_spelt(options)})")
        return environment


class ExactlyOnceFlink(Flink):
    """The sink in transactions, which end with Flink's checkpoints."""

    guarantee = "exactly-once"

    def settings(self) -> dict[str, str]:
        return {
            "execution.checkpointing.interval": _CHECKPOINT_INTERVAL,
            "execution.checkpointing.dir": f"file://{self._folder}/flink-checkpoints",
        }


def _timed(environment: TableEnvironment, statement: str) -> dict[str, Any]:
    started = time.perf_counter()
    result = environment.execute_sql(statement)
    result.wait()
    wall = time.perf_counter() - started
    client = result.get_job_client()
    assert client is not None
    net_ms = client.get_job_execution_result().result().get_net_runtime()
    return {"seconds": net_ms / 1000, "wall_seconds": wall}


def _only(result: TableResult) -> tuple[int, ...]:
    (row,) = result.collect()
    return tuple(row)


def _spelt(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
