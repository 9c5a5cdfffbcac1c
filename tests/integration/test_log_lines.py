"""Lines of logs in Spark: topics read by their format, columns parsed, levels in free text."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord
from headrace.log_formats import level_of
from headrace.pipelines.operators import level_in, parse_logs
from headrace.pipelines.operators.errors import BadField
from tests.integration.sync_topics import write
from tests.unit.log_formats.test_log_lines import LEVELS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.java

ACCESS = [
    b'::1 - - [18/Nov/2026:19:00:00 +0000] "GET /a?b HTTP/1.1" 200 12 "-" "curl/8" 0.25',
    b"not a line of an access log",
    b'10.0.0.7 - ann [18/Nov/2026:20:00:01 +0100] "\\x16\\x03" 400 0 "-" "\\xC3\\xA9"',
]
RECEIVED = int(datetime(2026, 1, 3, tzinfo=UTC).timestamp() * 1000)
SYSLOG = [
    b"<34>Oct 11 22:14:15 web su[7]: 'su root' failed",
    b'<165>1 2003-10-11T22:14:15.003Z web app - ID47 [a@1 b="c"] \xef\xbb\xbfhi',
]


def test_formats_of_topics_and_parsed_columns_agree(spark: "SparkSession", tmp_path: Path) -> None:
    with Broker(tmp_path / "broker", durability="os") as broker:
        bootstrap = broker.bootstrap_servers
        for topic, lines in (("access", ACCESS), ("syslog", SYSLOG)):
            with Cluster(parse_bootstrap(bootstrap)) as cluster:
                create_topic(cluster, topic, partitions=1)
            write(bootstrap, topic, [NewRecord(None, line, RECEIVED) for line in lines])

        def read(topic: str, **options: str) -> "DataFrame":
            return spark.read.format("headrace").options(bootstrap=bootstrap, **options).load(topic)

        by_format = read("access", format="combined").collect()
        assert [(row.client, row.path, row.query, row.status, row.rest) for row in by_format] == [
            ("::1", "/a", "b", 200, "0.25"),
            ("10.0.0.7", None, None, 400, None),
        ]
        assert [row.time.astimezone(UTC).hour for row in by_format] == [19, 19]
        letters = read("access.dead-letters").collect()
        assert [bytes(row.value) for row in letters] == [ACCESS[1]]
        parsed = read("access").transform(parse_logs("value", "combined")).drop("key", "value", "headers").collect()
        assert "not in the combined log format" in parsed[1].parse_problem
        fields = by_format[0].asDict()
        good = [row for row in parsed if row.parse_problem is None]
        assert [{name: row[name] for name in fields} for row in good] == [row.asDict() for row in by_format]

        messages = read("syslog", format="syslog", timeZone="+02:00").collect()
        assert [(row.level, row.host, row.app, row.process_id) for row in messages] == [
            ("critical", "web", "su", "7"),
            ("notice", "web", "app", None),
        ]
        assert messages[0].time.astimezone(UTC) == datetime(2025, 10, 11, 20, 14, 15, tzinfo=UTC)
        assert (messages[1].data, messages[1].message) == ({"a@1": {"b": "c"}}, "hi")
        again = read("syslog").transform(
            parse_logs("value", "syslog", schema="time timestamp, level string", time="timestamp", timeZone="+02:00")
        )  # the record's own column is called timestamp, so it does not clash
        assert [(row.time, row.level) for row in again.collect()] == [(row.time, row.level) for row in messages]

    texts = spark.createDataFrame([(text,) for text, _ in LEVELS], "line string")
    levels = [row.level for row in texts.select(level_in("line").alias("level")).collect()]
    assert levels == [level_of(text) for text, _ in LEVELS] == [level for _, level in LEVELS]
    flat = texts.transform(parse_logs("line", "logfmt", schema="level string, n int")).collect()
    assert [row.level for row in flat if row.parse_problem is None] == ["info", None]


def test_what_parse_logs_refuses(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([("a", 1)], "line string, status int")
    with pytest.raises(BadField, match="there is no format 'apache'"):
        parse_logs("line", "apache")
    with pytest.raises(BadField, match='name the column that says so, as in time="timestamp"'):
        parse_logs("line", "syslog")
    with pytest.raises(BadField, match="fields of logfmt have to be declared"):
        parse_logs("line", "logfmt")
    with pytest.raises(BadField, match="there is a column 'status' already"):
        frame.transform(parse_logs("line", "combined"))
    with pytest.raises(BadField, match="column 'status' is int"):
        frame.transform(parse_logs("status", "common", schema="path string"))
