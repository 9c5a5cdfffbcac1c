"""Personal columns of a table in PostgreSQL: sealed in the snapshot and in changes, of every type, and forgotten."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.capture.running import make_runtime
from headrace.connect.capture.settings import from_section
from headrace.forgetting.key_store import MemoryKeyStore
from headrace.forgetting.keyring import Keyring
from headrace.testing.contracts.keys import MASTER
from headrace.testing.postgres import Postgres


@pytest.fixture
def database() -> Iterator[Postgres]:
    with TemporaryDirectory(prefix="headrace-pg-") as folder, Postgres(Path(folder) / "shop") as server:
        yield server


def test_every_type_is_sealed_and_opens_as_what_was_captured_before(
    database: Postgres, headrace_broker: Broker
) -> None:
    columns = "name text, born date, salary numeric(10,2), tags text[], extra jsonb, face bytea, is_vip bool"
    names = [column.split()[0] for column in columns.split(", ")]
    with psycopg.connect(database.url, autocommit=True) as db:
        db.execute(f"CREATE TABLE people (id int PRIMARY KEY, owner text NOT NULL, {columns})")
        db.execute("ALTER TABLE people REPLICA IDENTITY FULL")
        row = "'Ada Łovelace', '1815-12-10', 12.50, ARRAY['a','b'], '{\"x\": [1]}', '\\x00ff', true"
        db.execute(f"INSERT INTO people VALUES (1, 'c-1', {row}), (2, 'c-2', {row})")
        db.execute("INSERT INTO people (id, owner) VALUES (3, 'c-3')")
    keys = Keyring(MemoryKeyStore(), MASTER, recheck_s=0)
    bootstrap = headrace_broker.bootstrap_servers
    common = {"url": database.url, "tables": ["public.people"], "snapshot": "initial-only"}
    personal = {"public.people": {"subject": "owner", "columns": names}}
    captured = []
    for name, more, seal in (("plain", {"prefix": "plain"}, None), ("shop", {"personal": personal}, keys.seal_late)):
        settings = from_section(name, {**common, **more}, seal)
        with Cluster(parse_bootstrap(bootstrap)) as cluster:
            make_runtime(settings, parse_bootstrap(bootstrap), cluster).run()
            topic = f"{settings.names.prefix}.public.people"
            held = bounds(cluster, cluster.partitions(topic))
            starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
            found = [json.loads(record.value)["after"] for some in read_records(cluster, starts, until=ends)
                     for _, record in some if record.value]  # fmt: skip
            captured.append({row["id"]: row for row in found})
    plain, sealed = captured
    assert all(sealed[1][name].startswith("sealed:1:") for name in names)
    assert sealed[3] == plain[3], "null stays null"
    for number in (1, 2, 3):
        assert keys.open_sealed(sealed[number], subject=f"c-{number}") == plain[number]
    keys.forget("c-1")
    assert keys.open_sealed(sealed[1]) == {**plain[3], "id": 1, "owner": "c-1"}
    assert keys.open_sealed(sealed[2]) == plain[2]
