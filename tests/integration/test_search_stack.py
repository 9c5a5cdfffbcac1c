"""Stored queries in a stack: what `headrace.toml` names runs, a document that comes is a hit, one in hand as well."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.percolation.stored import StoredQuery
from headrace.searches.hits import read_hit
from headrace.stores.compacted_topic import CompactedTopic
from tests.ports import free_port

FILE = """
[broker]
port = {broker}
[topics.listings]
partitions = 1
[search.listings]
documents = "listings"
[search_server]
hits = "listings.hits"
port = {server}
"""


def ask(url: str, body: object) -> dict[str, object]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return dict(json.load(answer))


def test_a_stack_runs_searches_and_serves_them(tmp_path: Path) -> None:
    broker, server = free_port(), free_port()
    (tmp_path / "headrace.toml").write_text(FILE.format(broker=broker, server=server))
    up = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "up"], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert up.stdout is not None
        ready = set()
        for line in up.stdout:
            ready |= {part for part in ("search_server", "search.listings") if part in line and "ready" in line}
            ready |= {"search.listings"} if "search.listings" in line and "is running" in line else set()
            if len(ready) == 2:
                break
        with Cluster(parse_bootstrap(f"127.0.0.1:{broker}")) as cluster:
            CompactedTopic(cluster, "searches").write("bikes", StoredQuery("bikes", "title:bike").as_json())
            found = ask(f"http://127.0.0.1:{server}/percolate", {"title": "my bike"})
            assert [hit["query"] for hit in found["hits"]] == ["bikes"]  # type: ignore[attr-defined]
            time.sleep(1)  # that is what the documentation promises: effective within a second
            writer = Writer(cluster, "listings")
            writer.add(NewRecord(b"1", b'{"title": "a red bike"}', timestamp=int(time.time() * 1000), partition=0))
            writer.flush()
            hits = CompactedTopic(cluster, "listings.hits")
            records = [*hits.read_news()] or hits.wait_for_news(20)
            hit = read_hit(records[0].key, records[0].value)
            assert hit is not None
            assert (hit.query, hit.offset, hit.highlights[0].text) == ("bikes", 0, "a red bike")
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=60)
    assert up.returncode == 0
