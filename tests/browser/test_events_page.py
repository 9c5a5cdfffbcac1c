"""The pages of events in a browser: from the list of stores to a state, forward and back."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from headrace.dashboard.app import DashboardServer
from tests.browser.conftest import settings
from tests.browser.test_pages import AUDIT
from tests.integration.shown_bank import shown_bank

pytestmark = pytest.mark.browser


def test_somebody_steps_through_the_states_of_an_account(window_of, tmp_path: Path) -> None:
    with shown_bank(tmp_path) as (bootstrap, sections), DashboardServer(settings(bootstrap, stores=sections)) as server:
        window = window_of(server)
        page = window.open("/events")
        expect(page.get_by_role("row", name="bank", exact=False).first).to_contain_text("127")
        expect(page.get_by_role("row", name="missing")).to_contain_text("there is no file")
        assert page.evaluate(AUDIT) == []
        page.get_by_role("link", name="bank", exact=True).click()
        expect(page.get_by_role("link", name="account", exact=True)).to_be_visible()
        assert page.evaluate(AUDIT) == []
        page.get_by_role("link", name="account", exact=True).click()
        expect(page.get_by_role("link", name="customer-a/b?")).to_have_count(0)
        page.get_by_role("link", name="account-1", exact=True).click()
        expect(page.locator("main h2")).to_contain_text("State after event 4")
        expect(page.locator("#state ins").first).to_have_text("42")
        page.get_by_role("link", name="‹ Back").click()
        expect(page.locator("main h2")).to_contain_text("State after event 3")
        expect(page.locator("#state del").first).to_have_text("30")
        expect(page.locator("#state ins").first).to_have_text("35")
        page.get_by_role("link", name="Forward ›").click()
        expect(page.locator("#state ins").first).to_have_text("42")
        page.locator("summary", has_text='"owner"').click()
        expect(page.locator("main")).to_contain_text("owner:ann")
        expect(page.locator("#live-text")).to_have_text("live")
        assert page.evaluate(AUDIT) == []
        assert Axe().run(page).response["violations"] == []
        page.locator("summary", has_text='"owner"').click()
        window.shoot("events")
        page.get_by_role("link", name="event 1", exact=True).click()
        page.get_by_role("link", name="request").first.click()
        expect(page.locator("main h2")).to_contain_text("What followed from r-1")
        phone = window_of(server, viewport={"width": 390, "height": 800}).open("/events/bank/account-1?version=3")
        assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
