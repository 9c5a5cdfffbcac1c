"""The page of searches: nothing, searches that run, a hit that comes while one looks, a query that is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.dashboard.app import DashboardServer
from headrace.searches.hits import Piece, SearchHit, write_hit
from headrace.status import SEARCHES, Status, StatusWriter
from headrace.stores.compacted_topic import CompactedTopic
from tests.browser import traffic
from tests.browser.conftest import settings

pytestmark = pytest.mark.browser
AUDIT = (Path(__file__).parent / "audit.js").read_text()
QUERIES = {
    "bikes": {"query": 'title:"racing bike"~2 AND price:<500', "owner": "ann", "tags": ["sport"]},
    "no gnomes": {"query": "-gnome", "owner": "bob"},
    "broken": {"query": "title:(bike"},
    "cheap": {"query": "price:<10", "paused": True},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


def write_hits(cluster: Cluster, *offsets: int) -> None:
    rows = []
    for offset in offsets:
        pieces = (Piece("title", "A racing <b>bike</b>, hardly used", ((2, 8), (12, 16))),)
        found = SearchHit("bikes", 1, "ann", ("sport",), 2.0, pieces, "listings", 0, offset, 1, None, 4)
        key, value, _ = write_hit(found)
        rows.append((key.decode(), json.loads(value), traffic.now_ms()))
    traffic.write_json(str(cluster), "listings.hits", rows)


def test_searches_are_seen_as_they_run(window_of: Any, cluster: Cluster) -> None:
    with DashboardServer(settings(str(cluster))) as board:
        window = window_of(board)
        page = window.open("/searches")
        expect(page.locator("main")).to_contain_text("No searches yet")
        assert page.evaluate(AUDIT) == []
        topic = CompactedTopic(cluster, "searches")
        for name, parts in QUERIES.items():
            topic.write(name, json.dumps(parts).encode())
        traffic.write_json(str(cluster), "listings", [("1", {"title": "x"}, traffic.now_ms())])
        write_hits(cluster, *range(5))
        writer = StatusWriter(cluster, SEARCHES)
        running = Status.of(
            "listings", "search", "running", source="listings", target="listings.hits", records=1200, per_s=40.0,
            hits=5, queries=3, queries_topic="searches", unselective=1, top={"bikes": 5}, lag_records=7,
            refused={}, backfills={"bikes": 300}, dead_letters=2,
        )  # fmt: skip
        writer.write(running)
        mail = {"hits": 5, "sent": 2, "owners": 1, "without_address": 3, "given_up": 1, "target": "smtp.example.org"}
        writer.write(Status.of("mail.listings", "mail", "running", **mail))
        served = {"url": "http://127.0.0.1:8400/searches", "queries": 3, "queries_topic": "searches", "listeners": 12}
        writer.write(Status.of("http.8400", "http", "running", **served, records=40, source="listings.hits"))
        work = page.get_by_role("region", name="Searches at work, as a table")
        expect(work.get_by_role("row", name="listings")).to_contain_text("bikes: 300 older documents left")
        queries = page.get_by_role("region", name="Stored queries, as a table")
        expect(queries.get_by_role("row", name="no gnomes")).to_contain_text("held against every document")
        expect(queries.get_by_role("row", name="bikes")).to_contain_text("5")
        expect(queries.get_by_role("row", name="cheap")).to_contain_text("paused")
        expect(page.get_by_role("region", name="Refused queries, as a table")).to_contain_text("title:(bike")
        expect(page.get_by_role("region", name="Mail, as a table")).to_contain_text("smtp.example.org")
        over_http = page.get_by_role("region", name="Served over HTTP, as a table")
        expect(over_http.get_by_role("row", name="8400")).to_contain_text("12")
        hits = page.get_by_role("region", name="Hits", exact=True)
        expect(hits.get_by_role("row")).to_have_count(6)
        assert hits.locator("mark").first.inner_text() == "racing"
        assert page.evaluate(AUDIT) == []
        window.shoot("searches")
        page.evaluate("window.isTheSame = true")
        write_hits(cluster, 77)
        expect(hits).to_contain_text("0-77")
        assert page.evaluate("window.isTheSame"), "it came without loading the page again"

        phone = window_of(board, viewport={"width": 390, "height": 844}).open("/searches")
        expect(phone.get_by_role("heading", level=1)).to_have_text("Searches")
        assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert phone.evaluate(AUDIT) == []
