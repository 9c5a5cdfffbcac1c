"""Captured changes as Avro with a registry of other people's: Apicurio, by Confluent's interface.

Written here; read by fastavro, which knows nothing but the schema that the registry gives for the id in the record.
"""

import io
import json
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import psycopg
import pytest

import headrace
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.schema_registry import SchemaRefused, SchemaRegistry, UnknownSchema
from headrace.testing.postgres import Postgres
from tests.integration.cdc_postgres_topics import wait_for
from tests.integration.test_cdc_avro import capturing, copied, drop_slots

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}


@pytest.fixture
def orders() -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A database's address, and a table with rows."""
    with (
        TemporaryDirectory(prefix="headrace-pg-") as folder,
        Postgres(Path(folder) / "shop") as made,
        psycopg.connect(made.url, autocommit=True) as db,
    ):
        db.execute(
            "CREATE TABLE orders (tenant int, id int, what text, price numeric(10, 2), due date, large text, "
            "PRIMARY KEY (tenant, id))"
        )
        db.execute(
            "INSERT INTO orders SELECT n % 3, n, 'täa ' || n, n + 0.25, '2024-02-29', '' FROM generate_series(1, 50) n"
        )
        yield made.url, db


def values_of(servers: str, topic: str) -> list[bytes]:
    """The values of a topic, without tombstones."""
    with Cluster(parse_bootstrap(servers)) as cluster:
        held = bounds(cluster, cluster.partitions(topic), committed=True)
        read = read_records(
            cluster,
            {where: bound.start for where, bound in held.items() if bound.end > bound.start},
            until={where: bound.end for where, bound in held.items()},
            options=FetchOptions(committed=True),
        )
        return [record.value for records in read for _, record in records if record.value is not None]


def decoded(value: bytes, registry: str) -> Any:
    """As any reader would: a zero, the id in four bytes, and Avro's bytes; the schema is asked for by its id."""
    assert value[0] == 0
    with urllib.request.urlopen(f"{registry}/schemas/ids/{int.from_bytes(value[1:5])}") as answer:
        schema = json.loads(json.load(answer)["schema"])
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)


def test_schemas_made_known_and_looked_up(registry_url: str) -> None:
    registry = SchemaRegistry(registry_url)
    text = json.dumps(RECORD)
    number = registry.register("a/b.c-value", text)
    for again in (registry, SchemaRegistry(registry_url)):
        assert again.register("a/b.c-value", text) == number
    assert json.loads(SchemaRegistry(registry_url).look_up(number)) == RECORD
    with pytest.raises(UnknownSchema, match="no schema with the id 987654"):
        registry.look_up(987654)
    with pytest.raises(SchemaRefused, match=r"does not take the schema of s-value .*422"):
        registry.register("s-value", '{"type": "no such type"}')


def test_a_change_that_the_registry_does_not_allow(registry_url: str) -> None:
    registry = SchemaRegistry(registry_url)
    registry.register("strict-value", json.dumps(RECORD))
    request = urllib.request.Request(
        f"{registry_url}/config/strict-value",
        json.dumps({"compatibility": "BACKWARD"}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        method="PUT",
    )
    urllib.request.urlopen(request).close()
    other = {**RECORD, "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]}
    with pytest.raises(SchemaRefused, match=r"409.*set the subject's compatibility"):
        registry.register("strict-value", json.dumps(other))


def test_captured_changes_are_read_by_others(
    registry_url: str, headrace_broker: headrace.Broker, orders: tuple[str, psycopg.Connection[Any]], tmp_path: Path
) -> None:
    url, db = orders
    servers = headrace_broker.bootstrap_servers
    section = {
        "url": url, "tables": ["public.orders"], "format": "avro", "registry": registry_url,
        "types": {"decimal": "precise"},
    }  # fmt: skip
    copy = copied(
        servers,
        {
            "topic": "shop.public.orders", "format": "avro", "registry": registry_url, "sink": "sqlite",
            "table": "orders", "path": str(tmp_path / "copy.sqlite"),
        },
    )  # fmt: skip
    with capturing(servers, section, "shop"):
        wait_for(lambda: len(copy()) == 50)
        db.execute("UPDATE orders SET price = -0.05, what = NULL WHERE id = 7")
        db.execute("DELETE FROM orders WHERE id = 8")
        db.execute("ALTER TABLE orders ADD COLUMN more int")
        db.execute("INSERT INTO orders VALUES (9, 51, 'later', 1, NULL, NULL, 5)")
        wait_for(lambda: len(copy()) == 50 and copy()[-1][1] == 51)
    drop_slots(db)
    found = [decoded(value, registry_url) for value in values_of(servers, "shop.public.orders")]
    assert [change["op"] for change in found if change["op"] != "r"] == ["u", "d", "c"]
    assert len(found) == 53
    changed = next(change["after"] for change in found if change["op"] == "u")
    assert (changed["price"], changed["what"], changed["id"]) == (Decimal("-0.05"), None, 7)
    assert next(change["after"] for change in found if change["op"] == "c")["more"] == 5
    with urllib.request.urlopen(f"{registry_url}/subjects/shop.public.orders-value/versions") as answer:
        assert json.load(answer) == [1, 2]
