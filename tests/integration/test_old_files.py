"""What users have already is read: files, keys, documents and records as they were written by the first versions.

As in `test_old_bookkeeping.py`, what is written here is a record of what stands on disks. It is not to be changed with
the code.
"""

import base64
import hashlib
import json
import os
import struct
import uuid
from pathlib import Path
from typing import Any

import deltalake
import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis as redis_driver
import tantivy as tantivy_driver
from pyspark.sql import SparkSession

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.settings import SyncSettings
from headrace.pipelines.sink import delta, parquet, read_parquet_sink
from headrace.pipelines.views import redis as redis_views
from headrace.stores.errors import SinkMisconfigured
from headrace.testing.contracts.sink import TOPIC, batch, change
from tests.integration.sync_topics import make_topic
from tests.servers.index_server import IndexServer
from tests.servers.redis import RedisServer

PLACE = '{"offsets":{"0":7},"topic":"topic"}'
TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"


def derived(kind: str, bootstrap: str = "127.0.0.1:1", **options: Any) -> Any:
    return make_sink(SyncSettings("name", TOPIC, kind, options), bootstrap)


def check_derived(make: Any, *, topic_id: str = "") -> None:
    """It goes on from offset 7 with the rows 1 and 2, is written, and is rebuilt beside."""
    sink = make()
    place = sink.open()
    assert (place.topic, place.offsets, place.topic_id) == (TOPIC, {0: 7}, topic_id)
    sink.apply(batch(change(1, None, 7), change(3, {"n": 30}, 8), up_to=9))
    sink.close()
    assert rows_of(make()) == {"2": 20, "3": 30}
    beside = make().beside()
    assert beside.open() is None
    beside.apply(batch(change(5, {"n": 50}, 0), up_to=9))
    beside.close()
    assert rows_of(make()) == {"2": 20, "3": 30}
    make().switch()
    assert rows_of(make()) == {"5": 50}
    assert make().place().offsets == {0: 9}


def rows_of(sink: Any) -> dict[str, int]:
    return {row.key: int(row.values["n"]) for part in sink.scan() for row in part}


def test_a_derived_delta_table(tmp_path: Path) -> None:
    os.symlink("rows.g1", tmp_path / "rows")
    high, low = struct.unpack(">qq", base64.urlsafe_b64decode(TOPIC_ID + "=="))
    marks = {"0": 7, "id-high": high, "id-low": low}
    deltalake.write_deltalake(
        str(tmp_path / "rows.g1"),
        pa.table({"id": [1, 2], "n": [10, 20]}),
        description='kept in step by headrace, by the key ["id"]',
        commit_properties=deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(f"headrace-sync/topic/{part}", n) for part, n in marks.items()]
        ),
    )
    check_derived(lambda: derived("delta", path=str(tmp_path / "rows")), topic_id=TOPIC_ID)
    assert os.readlink(tmp_path / "rows") == "rows.g2"
    assert deltalake.DeltaTable(str(tmp_path / "rows")).to_pyarrow_table().to_pylist() == [{"id": 5, "n": 50}]


def test_a_derived_parquet_folder(tmp_path: Path) -> None:
    folder = tmp_path / "rows.g1"
    folder.mkdir()
    os.symlink("rows.g1", tmp_path / "rows")
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    table = pa.table({"id": [1, 2], "n": [10, 20]}, schema=schema)
    pq.write_table(table.append_column("__headrace_key", pa.array(["1", "2"])), folder / "a.parquet")
    manifest = {
        "buckets": 1, "files": {"0": "a.parquet"}, "place": PLACE, "key": ["id"], "kept": [], "token": "before",
        "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    check_derived(lambda: derived("parquet", path=str(tmp_path / "rows")))
    assert os.readlink(tmp_path / "rows") == "rows.g2"


def test_a_derived_index_of_tantivy(tmp_path: Path) -> None:
    (tmp_path / "index.g1").mkdir()
    os.symlink("index.g1", tmp_path / "index")
    builder = tantivy_driver.SchemaBuilder()
    for name in ("_id", "_place"):
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field("_source", stored=True, indexed=False)
    builder.add_json_field("row", stored=False)
    builder.add_text_field("text", stored=False)
    writer = tantivy_driver.Index(builder.build(), path=str(tmp_path / "index.g1")).writer()
    for number in (1, 2):
        document = tantivy_driver.Document()
        document.add_text("_id", str(number))
        document.add_bytes("_source", json.dumps({"id": number, "n": 10 * number}).encode())
        document.add_json("row", json.dumps({"id": number, "n": 10 * number}))
        writer.add_document(document)
    writer.add_document(tantivy_driver.Document(_place="_place", _source=PLACE.encode()))
    writer.commit()
    writer.wait_merging_threads()
    del writer
    check_derived(lambda: derived("tantivy", path=str(tmp_path / "index")))
    assert os.readlink(tmp_path / "index") == "index.g2"


@pytest.mark.parametrize("form", ["hash", "json"])
def test_derived_keys_of_redis(redis_server: RedisServer, form: str) -> None:
    prefix = f"{uuid.uuid4().hex}:"
    client = redis_driver.Redis.from_url(redis_server.url)
    client.delete("headrace:sync:name")
    for number in (1, 2):
        if form == "hash":
            client.hset(f"{prefix}{number}", mapping={"id": str(number), "n": str(10 * number)})
        else:
            client.set(f"{prefix}{number}", json.dumps({"id": number, "n": 10 * number}))
    client.hset("headrace:sync:name", mapping={"owner": "somebody", "place": PLACE, "prefix": prefix})
    check_derived(lambda: derived("redis", url=redis_server.url, prefix=prefix, form=form))
    assert client.hmget("headrace:sync:name", "prefix", "generation") == [f"g2:{prefix}".encode(), b"2"]
    assert sorted(client.keys(f"*{prefix}*")) == [f"g2:{prefix}5".encode()]
    client.delete("headrace:sync:name")
    client.close()


def test_a_derived_index_of_opensearch(index_server: IndexServer) -> None:
    with httpx2.Client(base_url=index_server.url) as client:
        client.put("/old-g1", json={"aliases": {"old": {}}}).raise_for_status()
        for number in (1, 2):  # with versions made of offsets
            lines = [
                {"index": {"_id": str(number), "version": number, "version_type": "external"}},
                {"id": number, "n": 10 * number},
            ]
            body = "".join(json.dumps(line) + "\n" for line in lines)
            client.post("/old-g1/_bulk", content=body, headers={"Content-Type": "application/x-ndjson"})
        state = {"owner": "somebody", "place": PLACE}
        client.put("/headrace-sync/_doc/old-g1?op_type=create", json=state).raise_for_status()
    check_derived(lambda: derived("opensearch", url=index_server.url, index="old"))


def test_the_place_of_a_webhook(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        make_topic(broker.bootstrap_servers, "headrace-sync-places")
        writer = Writer(cluster, "headrace-sync-places")
        for name, offset in (("name", 3), ("other", 9), ("name", 7)):
            place = {"topic": "topic", "offsets": {"0": offset}}
            writer.add(NewRecord(name.encode(), json.dumps(place).encode(), 0, partition=0))
        writer.flush()
        sink = derived("webhook", broker.bootstrap_servers, url="http://127.0.0.1:9/")
        place = sink.open()
        sink.close()
    assert (place.topic, place.offsets) == (TOPIC, {0: 7})


def test_a_view_in_redis(redis_server: RedisServer) -> None:
    prefix = f"{uuid.uuid4().hex}:"
    client = redis_driver.Redis.from_url(redis_server.url)
    state, key = f"{prefix}feed", '{"user":1}'
    client.set(f"{state}:{key}", '{"user":1,"likes":5}')
    client.zadd(f"{state}:#keys", {key: 0})
    client.zadd(f"{state}#changes", {key: 4})
    freshness = {
        "revision": 4, "batch": 3, "rows": 1, "written_ms": 1767225600000, "offsets": {"posts-0": 4},
        "watermark_ms": 1_700_000_000_000,
    }  # fmt: skip
    client.hset(
        state,
        mapping={
            "shape": '{"key": ["user"], "columns": {"user": "bigint", "likes": "int"}}',
            "freshness": json.dumps(freshness), "logged_from": 2, "rows": f"{state}:",
            "batches": '[["query-1", 3, false]]',
        },
    )  # fmt: skip
    reader = redis_views(redis_server.url, prefix).reader("feed")
    kept = reader.kept()
    assert (kept.freshness.revision, kept.freshness.batch, kept.logged_from) == (4, 3, 2)
    assert reader.row([1]).rows == [{"user": 1, "likes": 5}]
    assert [(one.key, one.row) for one in reader.changes(3).changes or ()] == [({"user": 1}, {"user": 1, "likes": 5})]
    reader.close()
    client.close()


def write_delta(path: Path, query: str, last: int, rows: dict[str, list[Any]]) -> None:
    """As a sink named `delta` did for a query that wrote up to this batch."""
    number = int.from_bytes(hashlib.sha256(query.encode()).digest()[:7], "big")
    deltalake.write_deltalake(
        str(path),
        pa.table(rows),
        commit_properties=deltalake.CommitProperties(
            app_transactions=[
                deltalake.Transaction(f"headrace/delta/query/{query}", last),
                deltalake.Transaction("headrace/delta/owner", number),
                deltalake.Transaction("headrace/delta/last", last),
            ]
        ),
    )


def delta_keys(path: Path) -> list[str]:
    return sorted(deltalake.DeltaTable(str(path)).to_pyarrow_table()["k"].to_pylist())


@pytest.mark.java
def test_a_delta_table_of_batches(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_delta(path, "no-query", 4, {"k": ["a"], "v": [3]})
    sink, shape = delta(path, ["k"]), "k string, v long"
    sink(spark.createDataFrame([("skipped", 9)], shape), 4)
    assert delta_keys(path) == ["a"]
    sink(spark.createDataFrame([("a", 2), ("b", 1)], shape), 5)
    assert delta_keys(path) == ["a", "b"]
    # A version that was built beside and is switched to; the one that is there was put in place by renaming it.
    write_delta(tmp_path / "t.v1", "older", 9, {"k": ["oldest"], "v": [1]})
    write_delta(tmp_path / "t.v3", "no-query", 0, {"k": ["new"], "v": [1]})
    sink.switch(3)
    sink.switch(3)
    assert (delta_keys(path), delta_keys(tmp_path / "t.v2")) == (["new"], ["a", "b"])
    assert delta_keys(tmp_path / "t.v1") == ["oldest"]
    sink(spark.createDataFrame([("later", 1)], shape), 1)
    assert delta_keys(path) == ["later", "new"]
    # A pipeline that lost its state and builds that version again does not build it in the folder that is in use.
    write_delta(tmp_path / "t.v4", "lost", 0, {"k": ["used"], "v": [1]})
    sink.switch(4)
    sink = delta(path, ["k"], on_new_query="replace")
    with pytest.raises(SinkMisconfigured, match=r"t\.v4 is in use"):
        sink.beside(4)(spark.createDataFrame([("built", 1)], shape), 0)
    assert delta_keys(path) == ["used"]
    sink(spark.createDataFrame([("again", 1)], shape), 0)
    assert delta_keys(path) == ["again"]


@pytest.mark.java
def test_a_parquet_folder_of_batches(spark: SparkSession, tmp_path: Path) -> None:
    def write(path: Path, *numbers: int) -> None:
        for number in numbers:
            folder = path / "headrace_sink=parquet" / "headrace_query=no-query" / f"headrace_batch={number:08}"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"k": [f"{path.name}-{number}"]}), folder / "part-0.parquet")
        (path / "_headrace").mkdir()
        (path / "_headrace" / "queries-parquet.json").write_text('["no-query"]')
        (path / "_headrace" / "schema.json").write_text('{"k": "string"}')

    def keys(path: Path) -> list[str]:
        return sorted(row["k"] for row in read_parquet_sink(spark, path).collect())

    path = tmp_path / "p"
    write(path, 3, 4)
    sink = parquet(path)
    sink(spark.createDataFrame([("skipped",)], "k string"), 4)
    sink(spark.createDataFrame([("next",)], "k string"), 5)
    assert keys(path) == ["next", "p-3", "p-4"]
    write(tmp_path / "p.v2", 0)
    sink.switch(2)
    sink.switch(2)
    assert (keys(path), keys(tmp_path / "p.v1")) == (["p.v2-0"], ["next", "p-3", "p-4"])
    sink(spark.createDataFrame([("later",)], "k string"), 1)
    assert keys(path) == ["later", "p.v2-0"]
    written = tmp_path / "p.v2" / "headrace_sink=parquet"
    (written / "headrace_query=no-query").rename(written / "headrace_query=lost")
    (tmp_path / "p.v2" / "_headrace" / "queries-parquet.json").write_text('["lost"]')
    sink = parquet(path, on_new_query="continue")
    with pytest.raises(SinkMisconfigured, match=r"p\.v2 is in use"):
        sink.beside(2)(spark.createDataFrame([("built",)], "k string"), 0)
    sink(spark.createDataFrame([("again",)], "k string"), 0)
    assert keys(path) == ["again", "later", "p.v2-0"]
