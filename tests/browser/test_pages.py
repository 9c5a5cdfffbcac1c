"""Every page: full, empty, without a broker; live; on a phone; in the dark."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from headrace.broker.embedded import Broker
from headrace.dashboard.server import DashboardServer
from tests.browser import traffic
from tests.browser.conftest import SCREENSHOTS, TOKEN, WAIT_MS, free_port, settings

pytestmark = pytest.mark.browser
expect.set_options(timeout=WAIT_MS)

AUDIT = (Path(__file__).parent / "audit.js").read_text()
PAGES = {
    "/": "Overview",
    "/topics": "Topics",
    "/topics/orders": "orders",
    "/topics/orders/records": "orders",
    "/groups": "Groups",
    "/groups/reporting": "reporting",
    "/pipelines": "Pipelines",
    "/pipelines/revenue": "revenue",
    "/changes": "Change capture",
    "/derived": "Derived systems",
    "/views": "Views",
    "/alerts": "Alerts",
}
PICTURES = {
    "groups": "/groups",
    "group": "/groups/billing",
    "topic": "/topics/orders",
    "records": "/topics/orders/records",
    "pipeline": "/pipelines/revenue",
    "alerts": "/alerts",
    "topics": "/topics",
    "changes": "/changes",
    "derived": "/derived",
    "overview": "/",
}
EMPTY = {
    "/": "No topics yet",
    "/topics": "No topics yet",
    "/groups": "No groups yet",
    "/pipelines": "No pipelines yet",
    "/changes": "No captures yet",
    "/derived": "No derived systems yet",
    "/views": "No views yet",
    "/alerts": "All is well",
}


def test_every_page_shows_what_there_is(window):
    for path, heading in PAGES.items():
        page = window.open(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        expect(page.locator("#live-text")).to_have_text("live")
        assert page.evaluate(AUDIT) == [], path
        assert page.locator(".empty:visible").count() == 0, path


def test_pages_tell_the_facts(window):
    page = window.open("/changes")
    expect(page.get_by_role("row", name="shop")).to_contain_text("74 %")
    expect(page.locator("main")).to_contain_text("42.0 MiB")
    assert "hunter2" not in page.content()
    page = window.open("/derived")
    expect(page.get_by_role("row", name="products-index")).to_contain_text("3 differ")
    page = window.open("/views")
    expect(page.get_by_role("row", name="revenue-per-minute")).to_contain_text("1,440")
    page = window.open("/pipelines/revenue")
    expect(page.locator("rect.bar")).to_have_count(60)
    expect(page.locator("main")).to_contain_text("11:59:30")
    page = window.open("/groups/reporting")
    expect(page.locator("main")).to_contain_text("15.0 k")
    expect(page.locator("main")).to_contain_text("6 d 23 h")
    page = window.open("/topics/orders")
    expect(page.get_by_role("row", name="retention.ms 604800000")).to_contain_text("7 d")


def test_every_page_has_an_empty_state(window_of, empty_board):
    window = window_of(empty_board)
    for path, words in EMPTY.items():
        page = window.open(path)
        expect(page.locator("main")).to_contain_text(words)
        assert page.evaluate(AUDIT) == [], path
    window.open("/topics?q=zzz")
    expect(window.page.locator("main")).to_contain_text("No topic is called so")


def test_every_page_without_a_broker_says_so_and_fills_by_itself(window_of, tmp_path):
    port = free_port()
    with DashboardServer(settings(f"127.0.0.1:{port}")) as server:
        window = window_of(server)
        for path in PAGES:
            page = window.open(path)
            expect(page.locator("main")).to_contain_text("No broker answers")
            expect(page.locator("main")).to_contain_text(f"127.0.0.1:{port}")
        page = window.open("/topics")
        expect(page.locator("main")).to_contain_text("No broker answers")
        window.shoot("no-broker")
        with Broker(tmp_path, listen=f"127.0.0.1:{port}", durability="os") as broker:
            expect(page.locator("main")).to_contain_text("No topics yet")
            expect(page.get_by_placeholder("Filter by name")).to_be_visible()
            page.evaluate("window.isTheSame = true")
            traffic.write_json(broker.bootstrap_servers, "late", [("k", {}, traffic.now_ms())])
            expect(page.get_by_role("row", name="late")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("The broker is away.")
        expect(page.get_by_role("row", name="late")).to_be_visible()  # what was seen last is still there
        with Broker(tmp_path, listen=f"127.0.0.1:{port}", durability="os"):
            expect(page.get_by_role("alert")).to_have_count(0)
        assert page.evaluate("window.isTheSame"), "from then on the page was never loaded again"


def test_a_page_of_what_is_gone(window):
    for path in ("/topics/gone", "/groups/gone", "/pipelines/gone", "/nowhere"):
        page = window.open(path)
        expect(page.locator(".empty.error")).to_be_visible()


def test_a_page_updates_itself_and_leaves_the_rest_alone(window, shop):
    page = window.open("/topics/payments")
    before = page.locator("dd .value").nth(1).inner_text()
    summary = page.get_by_text("Numbers", exact=False).first
    summary.click()
    link = page.get_by_role("link", name="Records")
    link.focus()
    page.evaluate("window.isTheSame = true")
    traffic.write_orders(shop, "payments", 777, seed=5)
    expect(page.locator("dd .value").nth(1)).not_to_have_text(before)
    expect(page.locator("figure.chart details")).to_have_attribute("open", "")
    expect(link).to_be_focused()
    assert page.evaluate("window.isTheSame")


def test_a_row_keeps_the_focus_when_rows_come_and_go(window, shop):
    page = window.open("/topics")
    link = page.get_by_role("row", name="payments").get_by_role("link")
    link.focus()
    traffic.write_json(shop, "audit", [("k", {}, traffic.now_ms())])
    expect(page.get_by_role("row", name="audit")).to_be_visible()
    expect(link).to_be_focused()


def test_filters_work_while_one_types(window):
    page = window.open("/topics")
    page.get_by_placeholder("Filter by name").fill("pay")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(f"{window.server.url}topics?q=pay")
    page.get_by_placeholder("Filter by name").fill("")
    page.get_by_label("Internal ones too").check()
    expect(page.get_by_role("row", name="__headrace_progress")).to_be_visible()
    page.get_by_label("Sort").select_option("records")
    expect(page.locator("tbody tr").first).to_contain_text("archive")


def test_no_page_scrolls_sideways_on_a_phone(window_of, board):
    window = window_of(board, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    for path in PAGES:
        page = window.open(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        if path in ("/", "/groups"):
            window.shoot(f"phone{path.replace('/', '-').rstrip('-')}")
    menu = page.get_by_role("button", name="Menu")
    expect(page.get_by_role("navigation")).to_be_hidden()
    menu.click()
    page.get_by_role("navigation").get_by_role("link", name="Groups").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Groups")


def test_a_chart_tells_its_numbers_under_the_pointer_and_in_its_table(window):
    page = window.open("/pipelines/revenue")
    page.locator("svg[data-points]").first.hover()
    expect(page.locator(".tip")).to_contain_text("came in")
    page.get_by_text("Numbers").first.click()
    expect(page.locator("figure.chart table").first.locator("tbody tr")).to_have_count(12)


def ground(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_light_and_dark(window_of, board):
    window = window_of(board, color_scheme="dark")
    page = window.open("/")
    dark = ground(page)
    assert sum(map(int, dark[4:-1].split(","))) < 150
    switch = page.get_by_role("button", name="Colours: system")
    switch.click()
    light = ground(page)
    assert sum(map(int, light[4:-1].split(","))) > 600
    page.reload()
    assert ground(page) == light, "the choice is remembered"
    page.keyboard.press("t")
    assert ground(page) == dark
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()


def test_the_keyboard_is_enough(window):
    page = window.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    window.shoot("keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.locator("#live-text")).to_have_text("live")
    page.keyboard.press("/")
    expect(page.get_by_placeholder("Filter by name")).to_be_focused()
    page.keyboard.type("orders")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("row", name="orders").get_by_role("link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")


def test_a_busy_minute(window_of, shop):
    """Groups that read, one that falls behind; also where the documentation's pictures are taken."""
    traffic.write_progress(shop, range(60, 80))
    traffic.write_statuses(shop)
    looks = 45 if SCREENSHOTS else 5
    with traffic.steady(shop), DashboardServer(settings(shop, allow_writes=True, token=TOKEN)) as server:
        window = window_of(server, viewport={"width": 1360, "height": 900})
        page = window.open("/groups")
        expect(page.get_by_role("row", name="billing")).to_contain_text("Stable")
        expect(page.get_by_role("row", name="fraud-check")).to_contain_text("Stable")
        while len(server.dashboard.desk.state.history.written) < looks:
            page.wait_for_timeout(100)
        for name, path in PICTURES.items():
            window.open(path)
            expect(page.locator("#live-text")).to_have_text("live")
            window.shoot(name)
        expect(page.locator(".chart path.line").first).to_be_visible()
        expect(page.locator("main")).to_contain_text("fraud-check")
        dark = window_of(server, viewport={"width": 1360, "height": 900}, color_scheme="dark")
        dark.open("/")
        expect(dark.page.locator("#live-text")).to_have_text("live")
        dark.shoot("overview-dark")
