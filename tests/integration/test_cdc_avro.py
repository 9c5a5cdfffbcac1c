"""PostgreSQL through Avro topics, on our broker and on a real Kafka, to a copy in SQLite and to Spark's columns."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

import headrace
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.avro.places import TopicSchemas, id_of
from headrace.connect.avro.serving import SchemaServer
from headrace.connect.capture.running import make_runtime
from headrace.connect.capture.settings import from_section
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import Runner
from headrace.connect.sync.settings import from_section as sync_section
from headrace.connect.sync.verification import verify
from headrace.pipelines.columns.decoders import decoder_for
from headrace.schema_registry import RegistryUnavailable, SchemaRefused, SchemaRegistry, UnknownSchema
from headrace.testing.postgres import Postgres
from tests.conformance.shared_kafka import shared_kafka
from tests.integration.cdc_postgres_topics import wait_for
from tests.reading import read_committed
from tests.value_columns import value_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]
COLUMNS = "tenant, id, what, price::text, due::text, large"
LARGE = 40_000  # beyond what PostgreSQL sends again with an update of something else


def drop_slots(db: psycopg.Connection[Any]) -> None:
    """Drop every slot, once the server has noticed that nobody reads it any more."""
    wait_for(lambda: db.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchone() is None)
    db.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker, and then a real Kafka."""
    if request.param == "ours":
        with headrace.Broker(tmp_path_factory.mktemp("broker")) as broker:
            yield broker.bootstrap_servers
    else:
        request.getfixturevalue("kafka_jars")
        with shared_kafka(request.getfixturevalue("run_folder") / "avro-kafka", {}) as address:
            yield address


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with TemporaryDirectory(prefix="headrace-pg-") as folder, Postgres(Path(folder) / "shop") as made:
        yield made


@pytest.fixture
def orders(database: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """A table with rows of several kinds, one of them large."""
    with psycopg.connect(database.url, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS orders")
        db.execute(
            "CREATE TABLE orders (tenant int, id int, what text, price numeric(10, 2), due date, large text, "
            "PRIMARY KEY (tenant, id))"
        )
        db.execute("ALTER TABLE orders ALTER COLUMN large SET STORAGE EXTERNAL")
        db.execute(
            "INSERT INTO orders SELECT n %% 3, n, 'täa ' || n, n + 0.25, '2024-02-29', repeat('x', %s * (n / 200)) "
            "FROM generate_series(1, 200) n",
            [LARGE],
        )
        yield db


@contextmanager
def capturing(servers: str, section: dict[str, Any], name: str) -> Iterator[None]:
    """A capture that runs meanwhile."""
    addresses = parse_bootstrap(servers)
    with Cluster(addresses) as cluster:
        runtime = make_runtime(from_section(name, section), addresses, cluster)
        thread = threading.Thread(target=runtime.run)
        thread.start()
        try:
            yield
        finally:
            runtime.stop()
            thread.join()


def copied(servers: str, section: dict[str, Any]) -> Callable[[], Rows]:
    """A function that brings the copy up to the log, checks it against the log, and shows it."""
    settings = sync_section("copy", section)
    connect = lambda: Cluster(parse_bootstrap(servers))  # noqa: E731

    def rows() -> Rows:
        with connect() as cluster:
            if settings.topic not in {found.name for found in cluster.topics()}:
                return []
        sink: Any = make_sink(settings, servers)
        Runner(settings, sink, connect).catch_up()
        if sink.place() is None:
            return []  # the topic is there, and its first records are not
        assert verify(settings, sink, connect).is_equal
        with sqlite3.connect(section["path"]) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
                return []
            return db.execute("SELECT tenant, id, what, price, due, large FROM orders ORDER BY id").fetchall()

    return rows


def test_a_copy_follows_through_avro(
    servers: str, database: Postgres, orders: psycopg.Connection[Any], tmp_path: Path
) -> None:
    name = f"avro{abs(hash(servers)) % 10**6}"
    section = {
        "url": database.url, "tables": ["public.orders"], "format": "avro", "partitions": 3,
        "types": {"decimal": "precise"},
    }  # fmt: skip
    copy = copied(
        servers,
        {
            "topic": f"{name}.public.orders", "format": "avro", "sink": "sqlite", "table": "orders",
            "path": str(tmp_path / "copy.sqlite"),
        },
    )  # fmt: skip

    def is_same() -> bool:
        return copy() == orders.execute(f"SELECT {COLUMNS} FROM orders ORDER BY id").fetchall()

    with capturing(servers, section, name):
        wait_for(is_same)
        orders.execute("UPDATE orders SET price = price * 2, id = id + 1000 WHERE id % 10 = 0 AND large = ''")
        orders.execute("UPDATE orders SET what = 'its large value is not sent again' WHERE large <> ''")
        orders.execute("UPDATE orders SET what = NULL WHERE tenant = 1")
        orders.execute("DELETE FROM orders WHERE id % 7 = 0")
        wait_for(is_same)
        orders.execute("TRUNCATE orders")
        orders.execute("INSERT INTO orders VALUES (9, 9, 'last', -0.01, '0001-01-01', '')")
        wait_for(is_same)
        orders.execute("ALTER TABLE orders ADD COLUMN more int")
        orders.execute("INSERT INTO orders VALUES (9, 10, 'later', 1, NULL, NULL, 5)")
        wait_for(is_same)
    # Once more from the beginning, as a new reader would: two schemas of the table, a truncate, keys that moved.
    drop_slots(orders)
    with Cluster(parse_bootstrap(servers)) as cluster, SchemaServer(cluster) as server:
        subjects = TopicSchemas(cluster).subjects()
        assert len(subjects[f"{name}.public.orders-value"]) == 2
        _read_as_columns(servers, f"{name}.public.orders", server.url)


def _read_as_columns(servers: str, topic: str, registry: str) -> None:
    """What format("headrace") does with the values."""
    schema = pa.schema(
        [("op", pa.string()), ("after", pa.struct([("id", pa.int64()), ("price", pa.decimal128(10, 2))]))]
    )
    with Cluster(parse_bootstrap(servers)) as cluster:
        held = bounds(cluster, cluster.partitions(topic))
        read = read_records(
            cluster,
            {where: bound.start for where, bound in held.items() if bound.end > bound.start},
            until={where: bound.end for where, bound in held.items()},
            options=FetchOptions(committed=True),
        )
        values = [record.value for records in read for _, record in records if record.value is not None]
    decoded = decoder_for("avro", schema, {"schemaregistry": registry}).decode(value_columns(values))
    assert not decoded.broken
    operations = decoded.columns[0].to_pylist()
    assert (operations.count("r"), operations.count("t"), set(operations)) == (200, 3, set("rcudt"))
    prices = [after["price"] for after in decoded.columns[1].to_pylist() if after]
    assert min(prices).as_tuple() == (1, (1,), -2)


def test_a_registry_by_its_url(tmp_path: Path, database: Postgres, orders: psycopg.Connection[Any]) -> None:
    with (
        headrace.Broker(tmp_path / "broker") as broker,
        Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster,
        SchemaServer(cluster) as server,
    ):
        registry = SchemaRegistry(server.url)
        text = '{"type":"record","name":"R","fields":[]}'
        assert registry.register("a/b-value", text) == id_of(text)
        assert SchemaRegistry(server.url).look_up(id_of(text)) == text
        with pytest.raises(UnknownSchema, match="no schema with the id 5"):
            registry.look_up(5)
        with pytest.raises(SchemaRefused, match=r"does not take the schema of s .*422"):
            registry.register("s", "{")
        with pytest.raises(RegistryUnavailable, match="does not answer"):
            SchemaRegistry("http://127.0.0.1:1").register("s", text)
        latest = json.load(urllib.request.urlopen(f"{server.url}/subjects/a%2Fb-value/versions/latest"))
        assert latest["version"] == 1
        with pytest.raises(urllib.error.HTTPError, match="415"):  # as a page in a browser could
            urllib.request.urlopen(f"{server.url}/subjects/a/versions", data=b"{}")
        section = {
            "url": database.url, "tables": ["public.orders"], "format": "avro", "snapshot": "initial-only",
            "registry": server.url,
        }  # fmt: skip
        copy = copied(
            broker.bootstrap_servers,
            {
                "topic": "urls.public.orders", "format": "avro", "registry": server.url, "sink": "sqlite",
                "table": "orders", "path": str(tmp_path / "copy.sqlite"),
            },
        )  # fmt: skip
        with capturing(broker.bootstrap_servers, section, "urls"):
            wait_for(lambda: len(copy()) == 200)
        drop_slots(orders)


@pytest.mark.java
def test_spark_reads_a_captured_topic(
    spark: "SparkSession", tmp_path: Path, database: Postgres, orders: psycopg.Connection[Any]
) -> None:
    with (
        headrace.Broker(tmp_path / "broker") as broker,
        Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster,
        SchemaServer(cluster) as server,
    ):
        section = {"url": database.url, "tables": ["public.orders"], "format": "avro", "snapshot": "initial-only"}
        with capturing(broker.bootstrap_servers, section, "lake"):
            wait_for(lambda: "lake.public.orders" in {found.name for found in cluster.topics()})
            wait_for(lambda: len(read_committed(broker.bootstrap_servers, "lake.public.orders")) == 200)
        drop_slots(orders)
        frame = (
            spark.read.format("headrace")
            .options(bootstrap=broker.bootstrap_servers, subscribe="lake.public.orders", schemaRegistry=server.url)
            .option("format", "avro")
            .schema("op string, after struct<tenant: int, id: int, what: string>, source struct<lsn: long>")
            .load()
        )
        found = frame.selectExpr("count(*)", "count(source.lsn)", "sum(after.id)", "max(after.what)").first()
        assert found is not None
        assert tuple(found) == (200, 200, 20100, "täa 99")


def test_schemas_served_by_a_command(headrace_broker: headrace.Broker) -> None:
    served = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "cdc", "serve-schemas", "--port", "0"],
        env=os.environ | {"HEADRACE_BOOTSTRAP": headrace_broker.bootstrap_servers}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert served.stdout is not None
        url = served.stdout.readline().split()[4]
        registry = SchemaRegistry(url)
        text = '{"type":"record","name":"R","fields":[]}'
        with Cluster(parse_bootstrap(headrace_broker.bootstrap_servers)) as cluster:
            assert registry.look_up(TopicSchemas(cluster).register("s-value", text)) == text
        served.terminate()
        assert served.wait(30) == 0
    finally:
        served.kill()
        served.communicate()
