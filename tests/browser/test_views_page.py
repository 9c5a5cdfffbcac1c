"""The page of views with real ones: a store that a batch was written to, and the server that answers from it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.dashboard.app import DashboardServer
from headrace.pipelines.views import sqlite
from headrace.pipelines.views.serving.app import ViewServer
from headrace.pipelines.views.sink import ViewSink
from headrace.pipelines.views.status import status_of, with_lag
from headrace.status import VIEWS, StatusWriter
from headrace.testing.contracts.view import KEY, batch, row
from tests.browser import traffic
from tests.browser.conftest import settings
from tests.browser.test_pages import AUDIT

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        traffic.write_json(broker.bootstrap_servers, "posts", [("k", {}, traffic.now_ms())] * 12)
        yield made


def test_a_view_comes_fails_and_its_rows_can_be_asked_for(window_of, cluster: Cluster, tmp_path: Path) -> None:
    store = sqlite(tmp_path / "views.db")
    feed = ViewSink("feed", KEY, store, ("posts",))
    with DashboardServer(settings(str(cluster))) as board:
        window = window_of(board)
        page = window.open("/views")
        expect(page.locator("main")).to_contain_text("No views yet")
        page.evaluate("window.isTheSame = true")
        with ViewServer({"feed": feed}, port=0, bootstrap=str(cluster)) as server:
            line = page.get_by_role("row", name="feed")
            expect(line).to_contain_text(server.url)
            expect(line).to_contain_text("served")

            store.write(batch(store, 0, [row(7, f"p{post}", likes=post) for post in range(10)], offsets={"posts-0": 9}))
            reader = store.reader("feed", str(cluster))
            freshness = reader.kept().freshness
            reader.close()
            told = status_of("feed", store.kind, feed.sources, freshness).updated(**with_lag(cluster, freshness))
            writer = StatusWriter(cluster, VIEWS)
            writer.write(told)
            expect(line).to_contain_text("running")
            assert line.locator("td.number").nth(0).inner_text() == "10"
            expect(line.locator("td.number").nth(1)).to_contain_text("3")  # 12 posts, of which the batch had read 9
            expect(line.locator("td.number .aside")).to_have_text(
                re.compile(r" (ms|s|min)$")
            )  # and how old the oldest is
            assert page.evaluate(AUDIT) == []
            window.shoot("views")
            answer = page.request.get(line.get_by_role("link", name="http").get_attribute("href") or "")
            assert answer.ok
            assert len(json.loads(answer.body())["rows"]) == 10

            writer.write(told.updated(state="failed", problem="the store's disk is full: free some space"))
            expect(line).to_contain_text("the store's disk is full: free some space")
            expect(line).to_contain_text("failed")
            writer.write(told.updated(url="javascript:alert(1)"))
            expect(line).to_contain_text("javascript:alert(1)")
            assert line.locator('a:not([href^="/topics/"])').count() == 0, (
                "whoever writes a status may not write a link that runs"
            )
        assert page.evaluate("window.isTheSame"), "all of it came without loading the page again"
