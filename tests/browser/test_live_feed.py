"""The example of a live feed in a real browser: the gateway is killed in the middle, and the page misses nothing."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from examples.live_feed.producer import Page as Files
from examples.live_feed.producer import produce
from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from tests.browser.conftest import SCREENSHOTS
from tests.integration.gateways.http_gateway import GatewayProcess
from tests.ports import free_port

pytestmark = pytest.mark.browser
FOLDER = Path(__file__).parents[2] / "examples" / "live_feed"
ARTICLES = ("bike", "garden gnome", "lamp", "teapot")


@pytest.fixture(scope="module")
def page_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(FOLDER))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


@pytest.fixture
def window(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 900, "height": 560})
    yield context.new_page()
    context.close()


def value(number: int) -> bytes:
    article = ARTICLES[number % len(ARTICLES)]
    return b'{"article":"%s","price":%d.5,"number":%d}' % (article.encode(), 10 + number % 7, number)


@pytest.mark.parametrize("via", ["events", "websocket"])
def test_a_page_goes_on_where_it_was(cluster: Cluster, window: Page, page_server: str, via: str) -> None:
    topic = f"prices-{via}"
    ensure_topic(cluster, topic)
    gateway = GatewayProcess(str(cluster), free_port(), "--origins", page_server)
    try:
        writer = Writer(cluster, topic)
        for number in range(1, 21):
            writer.add(NewRecord(None, value(number), 0))
        writer.flush()
        window.goto(f"{page_server}/feed.html?gateway={gateway.client.url}&topic={topic}&via={via}")
        expect(window.locator("#state")).to_have_text("live")
        expect(window.locator("#received")).to_have_text("20")
        produce(gateway.client.url, topic, {"value": {"article": "bike", "price": 99.5, "number": 21}})
        expect(window.locator("#received")).to_have_text("21")
        expect(window.locator("#prices tr", has_text="bike")).to_contain_text("99.50")
        gateway.kill()
        expect(window.locator("#state")).to_have_text("away, trying again")
        for number in range(22, 42):
            writer.add(NewRecord(None, value(number), 0))
        writer.flush()
        gateway.start()
        expect(window.locator("#received")).to_have_text("41")
        expect(window.locator("#state")).to_have_text("live")
        expect(window.locator("#reconnected")).to_have_text("1")
        expect(window.locator("#missed")).to_have_text("0")
        if SCREENSHOTS:
            window.screenshot(path=str(SCREENSHOTS / "live-feed.png"))
        window.reload()
        produce(gateway.client.url, topic, {"value": {"article": "lamp", "price": 1.5, "number": 42}})
        expect(window.locator("#received")).to_have_text("1")
    finally:
        gateway.end()


def test_a_page_of_a_site_that_is_not_named_hears_nothing(cluster: Cluster, window: Page, page_server: str) -> None:
    ensure_topic(cluster, "secret")
    gateway = GatewayProcess(str(cluster), free_port(), "--origins", "https://shop.example")
    try:
        said: list[str] = []
        window.on("console", lambda message: said.append(message.text))
        for via in ("events", "websocket"):
            window.goto(f"{page_server}/feed.html?gateway={gateway.client.url}&topic=secret&via={via}")
            expect(window.locator("#state")).to_have_text("away, trying again")
        assert any("CORS" in each for each in said), said
        assert any("WebSocket" in each for each in said), said
    finally:
        gateway.end()
