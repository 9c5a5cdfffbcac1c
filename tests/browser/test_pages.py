"""Every page: full, empty, without a broker; live; on a phone; in the dark."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.dashboard.app import DashboardServer
from headrace.pipelines.jobs.progress import Written
from headrace.pipelines.jobs.publish import ProgressTopic
from headrace.status import Status
from tests.browser import parts, traffic
from tests.browser.conftest import SCREENSHOTS, TOKEN, settings
from tests.ports import free_port

pytestmark = pytest.mark.browser

AUDIT = (Path(__file__).parent / "audit.js").read_text()
UNREACHABLE = """() => [...document.querySelectorAll("main table.rows th")]
    .filter((cell) => getComputedStyle(cell).display === "none"
        || (cell.getBoundingClientRect().right > innerWidth && !cell.closest(".scroll")))
    .filter((cell) => !cell.closest("details:not([open])"))
    .map((cell) => cell.textContent)"""
# The words of names that stand in more than one line.
BROKEN_NAMES = """() => [...document.querySelectorAll("main h1, main table.rows tbody th a")].flatMap((name) =>
    [...name.childNodes].filter((node) => {
        const range = document.createRange();
        range.selectNode(node);
        return node.nodeType === Node.TEXT_NODE && new Set([...range.getClientRects()].map((box) => box.top)).size > 1;
    }).map((node) => node.textContent))"""
PAGES = {
    "/": "Overview",
    "/topics": "Topics",
    "/topics/orders": "orders",
    "/topics/orders/records": "orders",
    "/topics/orders/schema": "orders",
    "/topics/orders.dead-letters": "orders.dead-letters",
    "/map": "Map",
    "/groups": "Groups",
    "/groups/reporting": "reporting",
    "/groups/headrace-sync.orders-table": "headrace-sync.orders-table",
    "/groups/mailers": "mailers",
    "/queues": "Queues",
    "/queues/emails": "emails",
    "/pipelines": "Pipelines",
    "/pipelines/revenue": "revenue",
    "/patterns": "Patterns",
    "/searches": "Searches",
    "/gateways": "Gateways",
    "/patterns/revenue:refunds": "revenue:refunds",
    "/changes": "Change capture",
    "/derived": "Derived systems",
    "/views": "Views",
    "/alerts": "Alerts",
}
PICTURES = {
    "groups": "/groups",
    "group": "/groups/billing",
    "queue": "/queues/emails",
    "topic": "/topics/orders",
    "records": "/topics/orders/records",
    "pipeline": "/pipelines/revenue",
    "alerts": "/alerts",
    "topics": "/topics",
    "changes": "/changes",
    "gateways": "/gateways",
    "derived": "/derived",
    "map": "/map",
    "overview": "/",
}
EMPTY = {
    "/": "No topics yet",
    "/topics": "No topics yet",
    "/groups": "No groups yet",
    "/queues": "No queues yet",
    "/events": "No stores of events known",
    "/pipelines": "No pipelines yet",
    "/patterns": "No patterns yet",
    "/searches": "No searches yet",
    "/gateways": "No gateways yet",
    "/changes": "No captures yet",
    "/derived": "No derived systems yet",
    "/views": "No views yet",
    "/alerts": "No problems",
    "/map": "Nothing to draw yet",
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
    archive = page.get_by_role("row", name="archive")
    expect(archive).to_contain_text("74 %")
    expect(archive).to_contain_text("42.0 MiB")
    expect(archive).to_contain_text("lsn 0/1A2B3C8")
    assert "{" not in archive.inner_text(), "a position is not shown as JSON"
    assert "hunter2" not in page.content()
    captured = page.get_by_role("row", name="shop")
    expect(captured).to_contain_text("shop.main.orders")
    expect(captured).to_contain_text("shop.db")
    page = window.open("/derived")
    kept = page.get_by_role("row", name="orders-table")
    expect(kept).to_contain_text("running")
    expect(kept).to_contain_text("orders in ")
    expect(kept).to_contain_text("copy.sqlite")
    expect(kept.get_by_role("link", name="shop.main.orders")).to_be_visible()
    page = window.open("/views")
    expect(page.get_by_role("row", name="revenue-per-minute")).to_contain_text("1,440")
    page = window.open("/pipelines/revenue")
    expect(page.locator("rect.bar")).to_have_count(60)
    expect(page.locator(".figure", has_text="Dead letters")).to_contain_text("not JSON: line 1, column 1")
    expect(page.locator("main")).to_contain_text("11:59:30")
    page = window.open("/groups/reporting")
    expect(page.locator("main")).to_contain_text("15.0 k")
    expect(page.locator("main")).to_contain_text("6 d 23 h")
    page = window.open("/topics/orders")
    expect(page.get_by_role("row", name="retention.ms 604800000")).to_contain_text("7 d")
    assert page.locator("tr:visible", has_text="segment.bytes").count() == 0, "defaults are folded away"
    page.get_by_text("settings at their defaults").click()
    expect(page.get_by_role("row", name="segment.bytes 1073741824")).to_be_visible()
    expect(page.get_by_role("region", name="Readers")).to_contain_text("pipeline")


def test_a_queue_tells_what_waits_what_is_in_flight_and_what_came_again(window):
    page = window.open("/queues")
    line = page.get_by_role("row", name="emails")
    # Depth, oldest, in flight, redelivered, dead letters, members.
    expect(line).to_have_text(re.compile(r"emails\s*mailers\s*Stable\s*15\s*\d+ \w+(?: \d+ \w+)?\s*10\s*1\s*–\s*1"))
    line.get_by_role("link", name="emails").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("emails")
    for title in ("Depth", "Oldest message", "In flight", "Redelivered"):
        expect(page.locator("figure.chart", has_text=title).first.locator("svg")).to_be_visible()
    assert page.locator("figure.chart", has_text="Dead letters").count() == 0, "the group keeps none"
    page.get_by_role("link", name="mailers").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("mailers")
    expect(page.locator("main")).to_contain_text("Begins at")


def test_dead_letters_are_marked_and_lead_to_their_topic_and_job(window):
    page = window.open("/topics")
    line = page.get_by_role("row", name="orders.dead-letters")
    expect(line.locator(".pill")).to_have_text("dead letters")
    expect(line.get_by_role("link", name="orders", exact=True)).to_have_attribute("href", "/topics/orders")
    line.get_by_role("link", name="orders.dead-letters").click()
    banner = page.locator(".banner.warn")
    expect(banner).to_contain_text("Dead letters of orders")
    expect(banner.get_by_role("link", name="revenue")).to_have_attribute("href", "/pipelines/revenue")


def test_a_derived_system_that_waits_sets_records_aside_or_differs_is_seen(window, shop, database):
    """By what the parts themselves report: the runner, and a verification from outside."""
    page = window.open("/derived")
    waiting = page.get_by_role("row", name="later")
    expect(waiting.locator(".pill").first).to_have_text("waiting")
    expect(waiting).to_contain_text("for topic not-there-yet")

    traffic.write_raw(shop, "shop.main.customers", b'{"id": 1}', b"not a change")
    index = page.get_by_role("row", name="customers-index")
    expect(index.locator(".pill-warn")).to_have_text("1")
    expect(index.get_by_role("link", name="shop.main.customers.dead-letters")).to_be_visible()

    expect(page.get_by_role("row", name="orders-table")).to_contain_text("not yet")
    with sqlite3.connect(database.path.parent / "copy.sqlite", timeout=30) as copy:
        copy.execute("UPDATE orders SET cents = -1 WHERE id = 3")
    config = database.path.parent / "headrace.toml"
    target = database.path.parent / "copy.sqlite"
    config.write_text(
        f'[sync.orders-table]\ntopic = "shop.main.orders"\nsink = "sqlite"\npath = "{target}"\ntable = "orders"\n'
    )
    # In a process of its own: this thread runs the browser's loop.
    command = [
        sys.executable,
        "-m",
        "headrace.cli.main",
        "sync",
        "verify",
        "--config",
        str(config),
        "--bootstrap",
        shop,
    ]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1
    expect(page.get_by_role("row", name="orders-table")).to_contain_text("1 row differs")
    page = window.open("/alerts")
    expect(page.locator(".alert", has_text="orders-table")).to_contain_text("differs from its source in 1 row")
    expect(page.locator(".alert", has_text="customers-index")).to_contain_text("1 record was set aside")
    expect(page.locator(".alert", has_text="later")).to_be_visible()


def test_a_job_that_failed_says_so_and_why(window, shop):
    """By the writer that a run of jobs reports with; a job of its own, for the others go on and are well."""
    page = window.open("/pipelines")
    line = page.get_by_role("row", name="ledger")
    with Cluster(parse_bootstrap(shop)) as cluster:
        topic = ProgressTopic(cluster)
        topic.write([parts.report("ledger", 0, 10, "orders", 4_900, Written("store", "table ledger", "table ledger"))])
        expect(line).to_contain_text("running")
        topic.report([Status.of("ledger", "pipeline", "failed", problem="table ledger is locked")], is_last=True)
        expect(line).to_contain_text("failed")
        page = window.open("/alerts")
        alert = page.locator(".alert", has_text="ledger")
        expect(alert).to_contain_text("table ledger is locked")
        topic.report([Status.of("ledger", "pipeline", "ended")], is_last=True)
        expect(alert).to_have_count(0)


def test_the_map_shows_what_flows_and_leads_to_each_part(window, shop):
    page = window.open("/map")
    drawn = page.locator(".map")
    for name in (
        "database", "capture of sqlite shop, running", "topic shop.main.orders",
        "derived system, sqlite orders-table, running", "pipeline revenue, running", "consumer group reporting, Empty",
        "dead letters orders.dead-letters",
    ):  # fmt: skip
        expect(drawn.get_by_role("link", name=name).first).to_be_attached()
    edges = set(drawn.locator("g.flow").evaluate_all("found => found.map((edge) => edge.dataset.key)"))
    assert {
        "capture:shop>topic:shop.main.orders", "topic:shop.main.orders>sync:orders-table", "topic:orders>job:revenue",
        "job:revenue>topic:revenue", "topic:invoices>group:reporting", "job:revenue>topic:orders.dead-letters",
    } <= edges  # fmt: skip
    lag = drawn.locator('g[data-key="topic:invoices>group:reporting"] .lag')
    expect(lag).to_have_text(re.compile(r"\d+ min|1 h"))
    page.get_by_text("The map as a table").click()
    expect(page.get_by_role("row", name=re.compile("^reporting"))).to_contain_text("behind")
    page.evaluate("window.isTheSame = true")
    with traffic.steady(shop):
        expect(drawn.get_by_role("link", name="consumer group billing, Stable")).to_be_attached()
    assert page.evaluate("window.isTheSame"), "the map is live"
    link = drawn.get_by_role("link", name="pipeline revenue, running")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("revenue")


def test_a_schema_is_inferred_and_a_change_shows_what_it_changed(window, database):
    page = window.open("/topics/shop.main.orders/schema")
    expect(page.get_by_role("row", name="cents integer all")).to_be_visible()
    expect(page.locator("main")).to_contain_text("Change records")
    page = window.open("/topics/shop.main.orders/records")
    expect(page.locator("#records tr").first).to_be_visible()
    database.pay(7)
    change = page.locator("#records tr", has_text="update").first
    expect(change.locator("summary")).to_contain_text("state: open → paid")
    change.locator("summary").click()
    expect(change.locator(".difference .changed del")).to_have_text("open")
    expect(change.locator(".difference .changed ins")).to_have_text("paid")
    expect(change.locator(".difference caption")).to_have_text("update: 1 of 4 columns changed")


def test_the_group_of_a_derived_system_names_it_and_offers_no_reset(window):
    page = window.open("/groups")
    line = page.get_by_role("row", name="headrace-sync.orders-table")
    expect(line).to_contain_text("running")
    page = window.open("/groups/headrace-sync.orders-table")
    expect(page.locator("main")).to_contain_text("reads here without being a member")
    expect(page.locator("main")).to_contain_text("headrace sync rebuild orders-table")
    assert page.locator('form[action$="/plan"]').count() == 0
    csrf = window.open("/groups/reporting").locator('input[name="csrf"]').first.get_attribute("value")
    answer = page.request.post(
        f"{window.server.url}groups/headrace-sync.orders-table/plan",
        form={"csrf": csrf, "to": "earliest"}, headers={"origin": window.server.url.rstrip("/")},
    )  # fmt: skip
    assert answer.status == 400
    assert "would have no effect" in answer.text()


def test_every_page_has_an_empty_state(window_of, empty_board):
    window = window_of(empty_board)
    for path, words in EMPTY.items():
        page = window.open(path)
        expect(page.locator("main")).to_contain_text(words)
        assert page.evaluate(AUDIT) == [], path
    window.open("/topics?q=zzz")
    expect(window.page.locator("main")).to_contain_text("No topic matches")


def test_every_page_without_a_broker_says_so_and_fills_by_itself(window_of, tmp_path):
    port = free_port()
    with DashboardServer(settings(f"127.0.0.1:{port}")) as server:
        window = window_of(server)
        for path in PAGES:
            page = window.open(path)
            expect(page.locator("main")).to_contain_text("No broker is reachable")
            expect(page.locator("main")).to_contain_text(f"127.0.0.1:{port}")
        page = window.open("/topics")
        expect(page.locator("main")).to_contain_text("No broker is reachable")
        window.shoot("no-broker")
        with Broker(tmp_path, listen=f"127.0.0.1:{port}", durability="os") as broker:
            expect(page.locator("main")).to_contain_text("No topics yet")
            expect(page.get_by_placeholder("Filter by name")).to_be_visible()
            page.evaluate("window.isTheSame = true")
            traffic.write_json(broker.bootstrap_servers, "late", [("k", {}, traffic.now_ms())])
            expect(page.get_by_role("row", name="late")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("The broker is unreachable.")
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
    page.get_by_label("Show internal topics").check()
    expect(page.get_by_role("row", name="__headrace_progress")).to_be_visible()
    page.get_by_label("Sort").select_option("records")
    expect(page.locator("tbody tr").first).to_contain_text("archive")


def test_no_page_scrolls_sideways_on_a_phone(window_of, board):
    window = window_of(board, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    for path in PAGES:
        page = window.open(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        # A column is out of sight only where its table scrolls, which shows a shadow; and no name is cut within a word.
        assert page.evaluate(UNREACHABLE) == [], path
        assert page.evaluate(BROKEN_NAMES) == [], path
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
    expect(page.locator(".tip")).to_contain_text("in ")
    page.get_by_text("Numbers").first.click()
    expect(page.locator("figure.chart table").first.locator("tbody tr")).to_have_count(12)


PHONE = {"viewport": {"width": 360, "height": 740}}
COLOURS = ["color-contrast", "link-in-text-block"]
SOME = ("/topics/orders", "/map")  # a phone's layout is one style sheet for all pages: two show it in a short run


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("full", PAGES),
        ("phone", SOME),
        pytest.param("phone", [path for path in PAGES if path not in SOME], marks=pytest.mark.long, id="phone-others"),
        ("empty", EMPTY),
    ],
)
def test_axe_has_nothing_to_say_about_any_page(window_of, board, empty_board, kind, paths):
    """Contrast, names, roles, structure: every page, full and empty, wide and on a phone; colours also in the dark."""
    server, size = empty_board if kind == "empty" else board, PHONE if kind == "phone" else {}
    window = window_of(server, reduced_motion="reduce", **size)
    violations = []
    for path in [*paths, "/topics/gone", "/nowhere"]:
        page = window.open(path)
        expect(page.locator("h1, .empty").first).to_be_visible()
        page.evaluate("document.querySelectorAll('main details').forEach((part) => { part.open = true; })")
        violations += [f"{path}: {violation}" for violation in _audit(page)]
        if kind != "phone":
            page.emulate_media(color_scheme="dark")
            # What is not colour is the same document.
            violations += [f"{path}: dark: {violation}" for violation in _audit(page, runOnly=COLOURS)]
            page.emulate_media(color_scheme="light")
    assert violations == [], "\n".join(violations)


def _audit(page, **options):
    for violation in Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]:
        nodes = [node["html"][:160] for node in violation["nodes"][:3]]
        yield f"{violation['id']}: {violation['help']}: {nodes}"


# Whatever gets the focus: whether that shows, and what it is.
FOCUSED = """() => {
    window.focused = [];
    document.addEventListener("focusin", ({ target }) => {
        const style = getComputedStyle(target), box = target.querySelector(":scope > rect");
        const border = box && parseFloat(getComputedStyle(box).strokeWidth) >= 2;
        window.focused.push([style.outlineStyle !== "none" || border, target.outerHTML.slice(0, 120)]);
    });
}"""


def test_every_control_can_be_reached_and_shows_the_focus(window):
    for path in PAGES:
        page = window.open(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        wanted = page.locator("a[href]:visible, button:visible, input:visible, select:visible, summary:visible").count()
        page.evaluate("document.activeElement.blur()")
        page.evaluate(FOCUSED)
        for _ in range(min(wanted, 40)):
            page.keyboard.press("Tab")
        focused = page.evaluate("window.focused")
        assert [node for is_seen, node in focused if not is_seen] == [], path
        assert len(focused) >= min(wanted, 40) - 1, path


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
    page.keyboard.type("payments")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("row", name="payments").get_by_role("link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("payments")


def test_a_busy_minute(window_of, shop):
    """Groups that read, one that falls behind; also where the documentation's pictures are taken."""
    looks = 45 if SCREENSHOTS else 5
    with traffic.steady(shop), DashboardServer(settings(shop, allow_writes=True, token=TOKEN)) as server:
        window = window_of(server, viewport={"width": 1360, "height": 900})
        # A page that was opened before the first look at the broker loads itself again after it.
        expect(window.page.locator("body[data-live-page='overview.html']")).to_be_visible()
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
