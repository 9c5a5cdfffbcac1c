"""The example of listings whole: its hits in a table, at a webhook and over HTTP are equal."""

import http.client
import json
import runpy
import sqlite3
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import Runner
from headrace.connect.sync.settings import from_section
from headrace.searches.http import SearchServer
from headrace.searches.runner import SearchRunner
from headrace.searches.settings import SearchSettings
from headrace.stores.compacted_topic import CompactedTopic

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "searches" / "listings.py"))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


class Receiver:
    """Remembers what was posted to it."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Any]] = []
        posted = self.posted

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                posted.append((self.headers["idempotency-key"], json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hits"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def sync(cluster: Cluster, name: str, **section: Any) -> None:
    """A derived system, up to where the topic of hits ends."""
    settings = from_section(name, {"topic": "listings.hits", "value": "plain", **section})
    Runner(settings, make_sink(settings, str(cluster)), lambda: Cluster(parse_bootstrap(str(cluster)))).catch_up()


def test_hits_reach_a_table_a_webhook_and_whoever_asks(cluster: Cluster, tmp_path: Path) -> None:
    topic = CompactedTopic(cluster, "searches")
    topic.write("mapping:listings", json.dumps(EXAMPLE["MAPPING"]).encode())
    for name, parts in EXAMPLE["QUERIES"].items():
        topic.write(name, json.dumps({**parts, "mapping": "listings"}).encode())
    ensure_topic(cluster, "listings")
    documents = list(EXAMPLE["documents"]())
    writer = Writer(cluster, "listings")
    for document in documents:
        key = str(document["number"]).encode()
        writer.add(NewRecord(key, json.dumps(document).encode(), int(time.time() * 1000), partition=0))
    writer.flush()
    settings = SearchSettings("listings", "listings", hits="listings.hits", mapping="listings", from_start=True)
    SearchRunner(settings, parse_bootstrap(str(cluster))).run(until_idle=True)

    table = tmp_path / "hits.sqlite"
    for _ in range(2):  # going on from its place adds nothing
        sync(cluster, "table", sink="sqlite", path=str(table), table="hits")
    with sqlite3.connect(table) as db:
        rows = db.execute('SELECT query, document_key, owner, tags, highlights, "offset" FROM hits').fetchall()
    assert {(query, int(key)) for query, key, *_ in rows} == EXAMPLE["EXPECTED"]
    assert len(rows) == len(EXAMPLE["EXPECTED"])
    ((_, _, owner, tags, highlights, _),) = [row for row in rows if row[0] == "ann's bike" and row[1] == "100"]
    assert (owner, json.loads(tags)) == ("ann", ["sport"])
    assert json.loads(highlights)[0]["text"] == "A racing bike, hardly used"

    receiver = Receiver()
    try:
        sync(cluster, "alerts", sink="webhook", url=receiver.url)
    finally:
        receiver.close()
    assert {(said["row"]["query"], said["row"]["offset"]) for _, said in receiver.posted} == EXAMPLE["EXPECTED"]
    assert len({key for key, _ in receiver.posted}) == len(receiver.posted) == len(EXAMPLE["EXPECTED"])
    assert all(said["op"] == "upsert" for _, said in receiver.posted)

    with SearchServer(parse_bootstrap(str(cluster)), "searches", port=0) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        chosen = documents[:1000]
        connection.request("POST", "/percolate?mapping=listings", json.dumps(chosen).encode())
        told = json.loads(connection.getresponse().read())
        connection.close()
    found = {
        (hit["query"], document["number"])
        for document, each in zip(chosen, told["documents"], strict=True)
        for hit in each["hits"]
    }
    assert found == EXAMPLE["EXPECTED"], "in hand as in the stream"
