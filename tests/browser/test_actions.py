"""What one does on the pages: look for records, follow them, write one, move a group, come in."""

import itertools
import json
import threading

import pytest
from playwright.sync_api import expect

from headrace.broker.embedded import Broker
from headrace.cli.dashboard import language
from headrace.client.address import parse_bootstrap
from headrace.client.security import settings_from
from headrace.dashboard.app import DashboardServer
from headrace.dashboard.search import matcher
from headrace.dashboard.settings import Settings
from headrace.serving.access import Access, users_of
from tests.browser import traffic
from tests.browser.conftest import BIG, TOKEN
from tests.browser.test_pages import AUDIT
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.browser


def search(page, **fields):
    for label, text in fields.items():
        page.locator(f'#search [name="{label}"]').fill(text)
    page.get_by_role("button", name="Search").click()


def test_a_long_search_shows_its_progress_and_can_be_stopped(window, monkeypatch):
    """However slow the browser is: the search waits half-way until somebody has pressed the button."""
    looked, has_stopped = itertools.count(), threading.Event()

    def matcher_that_waits(query):
        is_wanted = matcher(query)

        def look(record):
            if next(looked) == BIG // 2:
                assert has_stopped.wait(60)
            return is_wanted(record)

        return look

    monkeypatch.setattr("headrace.dashboard.search.matcher", matcher_that_waits)
    page = window.open("/topics/archive/records?where=.order%20==%20-1")
    expect(page.locator("#search-progress")).not_to_have_js_property("value", 0)
    window.shoot("search")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#search-state")).to_contain_text("stopped: 0 matches in")
    read = int(page.locator("#search-state").inner_text().split(" in ")[1].split(" of ")[0].replace(",", ""))
    assert 0 < read < BIG
    has_stopped.set()
    readers = window.server.dashboard.desk.readers
    wait_until(lambda: readers.running == 0, "somebody reads on for somebody who has stopped")
    assert next(looked) < BIG


def test_a_search_by_key_text_condition_and_place(window):
    page = window.open("/topics/invoices/records")
    search(page, key="c7", **{"from": "earliest"})
    expect(page.locator("#search-state")).to_contain_text("done: 200 matches")
    assert set(page.locator("#records .key").all_inner_texts()) == {"c7"}
    search(page, key="", text="porto")
    expect(page.locator("#search-state")).to_contain_text("done: 200 matches")
    assert all("Porto" in text for text in page.locator("#records summary").all_inner_texts())
    search(page, text="", where='.order == 77 and .customer != "nobody"')
    expect(page.locator("#search-state")).to_contain_text("done: 1 matches in 20,000 of 20,000")
    page.locator("#records summary").click()
    expect(page.locator("#records pre")).to_contain_text('"order": 77')
    search(page, where="", partition="2", **{"from": "-5"})
    expect(page.locator("#search-state")).to_contain_text("done: 5 matches in 5 of 5")
    search(page, partition="", **{"from": "10m"})
    expect(page.locator("#search-state")).to_contain_text("done: 200 matches")
    search(page, text="no such words", **{"from": "-50"})
    expect(page.locator("#no-records")).to_contain_text("No record matches")
    page.reload()
    expect(page.locator('#search [name="text"]')).to_have_value("no such words")


def test_a_mistake_in_a_search_is_pointed_at(window):
    page = window.open("/topics/orders/records")
    search(page, where=".cents = 5")
    expect(page.locator("#search-problem")).to_contain_text("write == to compare")
    expect(page.locator("#search-problem")).to_contain_text("^")
    search(page, where="", **{"from": "the day before"})
    expect(page.locator("#search-problem")).to_contain_text("not a place to start")


def test_records_show_up_as_they_are_written(window, shop):
    page = window.open("/topics/customers/records")
    expect(page.locator("#no-records")).to_contain_text("No records yet")
    expect(page.get_by_role("button", name="Follow live")).to_have_attribute("aria-pressed", "true")
    note = "<b>bold</b><script>window.isHacked = true</script>"
    traffic.write_json(shop, "customers", [("c1", {"note": note}, traffic.now_ms())])
    expect(page.locator("#records tr")).to_have_count(1)
    expect(page.locator("#records summary")).to_contain_text(json.dumps({"note": note}))
    assert page.evaluate("window.isHacked") is None
    assert page.locator("#records b").count() == 0


def test_a_record_written_by_hand(window):
    page = window.open("/topics/payments/records")
    form = page.locator("#produce form")
    form.get_by_label("Key", exact=True).fill("by-hand")
    form.get_by_label("Value", exact=True).fill('{"cents": 1}')
    form.get_by_text("Headers and tombstone").click()
    form.get_by_label("Headers, one per line").fill("trace: 42")
    form.get_by_role("button", name="Write").click()
    expect(page.locator("#produce .banner.good")).to_contain_text("Written: partition")
    row = page.locator("#records tr", has_text="by-hand").first
    row.locator("summary").click()
    expect(row.locator(".headers")).to_contain_text("42")
    form.get_by_label("Partition", exact=True).fill("99")
    form.get_by_role("button", name="Write").click()
    expect(page.get_by_role("alert")).to_contain_text("has no partition 99")


def test_a_dashboard_that_only_looks_offers_nothing_else(window_of, empty_board, board):
    page = window_of(empty_board).open("/topics")
    expect(page.locator(".mode")).to_have_text("Read-only")
    assert page.locator('form[method="post"]').count() == 0


def test_a_group_is_moved_after_what_would_happen_was_shown(window, shop):
    traffic.read_some(shop, "movable", "payments", 100)
    page = window.open("/groups/movable")
    expect(page.get_by_role("row", name="payments").first).to_be_visible()
    page.get_by_label("Start from").fill("soon")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("not a place to continue from")
    page.get_by_role("link", name="Back").click()
    page.get_by_label("Start from").fill("latest")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Reset movable to latest?")
    window.shoot("move")
    page.get_by_role("button", name="Reset offsets").click()
    expect(page.get_by_role("status").filter(has_text="The offsets were reset")).to_be_visible()
    expect(page.locator("dd .value").first).to_have_text("0")


def test_only_who_has_the_token_comes_in(chromium, board):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{board.url}topics")
    expect(page.get_by_role("heading", level=1)).to_have_text("This dashboard needs a token")
    page.get_by_label("Token").fill("not the token, surely")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Wrong token")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert page.evaluate("document.cookie") == "", "no script can read the cookie"
    context.close()


def test_users_of_the_broker_sign_in_and_out(chromium, tmp_path):
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("alice=geheim\n")
    login = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice",
        "sasl.password": "geheim",
    }  # fmt: skip
    known = {"users.file": str(users)}
    with Broker(listen="SASL_PLAINTEXT://127.0.0.1:0", durability="os", settings=known) as broker:
        bootstrap, connection = parse_bootstrap(broker.bootstrap_servers), settings_from(login)
        access = Access(users=users_of(bootstrap, connection))
        with DashboardServer(Settings(bootstrap, language(), 0, access=access, connection=connection)) as board:
            context = chromium.new_context()
            page = context.new_page()
            page.goto(f"{board.url}topics")
            for password in ("wrong", "geheim"):
                page.get_by_label("Name").fill("alice")
                page.get_by_label("Password").fill(password)
                page.get_by_role("button", name="Sign in").click()
                if password == "wrong":
                    expect(page.get_by_role("alert")).to_contain_text("Wrong name or password")
            expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
            expect(page.get_by_role("navigation")).to_contain_text("alice")
            assert page.evaluate("document.cookie") == ""
            assert page.evaluate(AUDIT) == []
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
            page.goto(f"{board.url}topics")
            expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
            context.close()
