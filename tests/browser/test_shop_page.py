"""`make demo` as somebody sees it who has its page open: one run of the story, from its first step to its last."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import SCREENSHOTS
from tests.integration.waiting import wait_until

DEMO = Path(__file__).parents[2] / "examples" / "shop" / "demo.py"
AUDIT = (Path(__file__).parent / "audit.js").read_text()
DESK, PHONE = {"width": 1280, "height": 1000}, {"width": 390, "height": 844}
SOON_MS, PATIENCE_MS = 30_000, 200_000

pytestmark = [pytest.mark.browser, pytest.mark.java]


class Demo:
    """The demo in a process of its own, and what it says in its terminal."""

    def __init__(self, folder: str, *options: str) -> None:
        self.log = Path(folder) / "up.log"
        self.lines: list[str] = []
        command = [sys.executable, str(DEMO), "--port", "0", "--folder", folder, *options]
        surroundings = os.environ | {"COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=surroundings
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as words:
            for line in words:
                self.lines.append(line.rstrip())

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    @property
    def url(self) -> str:
        words = [word for line in list(self.lines) for word in line.split() if word.startswith("http://")]
        return words[0] if words else ""

    def end(self) -> int:
        code = self.process.wait(400)
        self._reader.join(10)
        return code


@pytest.fixture
def demo() -> Iterator[Demo]:
    # Not under pytest's own folder: PostgreSQL wants one that nobody else changes.
    with tempfile.TemporaryDirectory() as folder:
        made = Demo(folder, "--story", "--seconds", "14", "--kill", "broker")
        yield made
        if made.process.poll() is None:
            made.process.terminate()
            made.end()


def shoot(page: Page, name: str) -> None:
    """The page in light, in the dark and on a phone, for the documentation."""
    for kind, scheme, size in (("", "light", DESK), ("-dark", "dark", DESK), ("-phone", "light", PHONE)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name}{kind} is too wide"
        if SCREENSHOTS:
            page.screenshot(path=SCREENSHOTS / f"shop-{name}{kind}.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESK)  # type: ignore[arg-type]


@pytest.mark.timeout(720)
def test_the_shop_in_one_page_goes_through_kills_and_every_side_says_the_same(chromium: Browser, demo: Demo) -> None:
    wait_until(lambda: bool(demo.url) or demo.process.poll() is not None, "the demo names no page", patience_s=120)
    assert demo.url, demo.said
    page = chromium.new_page(viewport=DESK)  # type: ignore[arg-type]
    page.set_default_timeout(SOON_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("response", lambda answer: complaints.append(answer.url) if answer.status >= 400 else None)
    page.goto(demo.url)

    # While it starts, it says how far it is.
    expect(page.get_by_role("heading", name="Starting")).to_be_visible()
    expect(page.locator("#steps .now")).to_contain_text("so far")
    expect(page.locator("#steps")).to_contain_text("the database is captured, after", timeout=PATIENCE_MS)
    shoot(page, "starting")
    expect(page.locator("#chart rect").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator("#start")).to_be_hidden(timeout=PATIENCE_MS)
    assert page.evaluate(AUDIT) == []

    # Revenue is live: the worth that the page shows changes without anybody loading it again.
    page.evaluate("window.isTheSame = true")
    before = page.locator("#tiles").inner_text()
    expect(page.locator("#tiles")).not_to_have_text(before)
    expect(page.locator("#late")).to_contain_text("orders placed offline")

    # A button kills; the page says that nothing was lost, having compared.
    page.get_by_role("button", name="Kill the warehouse's feed").click()
    expect(page.locator("#story")).to_contain_text("sync.warehouse was killed (kill -9")
    expect(page.locator("#verdict")).to_contain_text("nothing was lost and nothing counts twice", timeout=PATIENCE_MS)
    page.evaluate("document.activeElement.blur()")
    expect(page.locator("#state")).to_contain_text("live, as of")
    shoot(page, "page")

    # The story kills the broker, and compares by itself.
    expect(page.locator("#story")).to_contain_text("broker was killed", timeout=PATIENCE_MS)
    expect(page.locator("#story")).to_contain_text("broker is back after", timeout=PATIENCE_MS)
    code = demo.end()
    print(demo.said)
    assert code == 0, demo.said + demo.log.read_text(errors="replace")[-4000:]
    expect(page.locator("#state")).to_contain_text("the demo has ended")
    assert page.evaluate("window.isTheSame")
    page.close()
    assert "killed broker" in demo.said
    assert "nothing was lost and nothing counts twice after the kill of" in demo.said
    assert "Traceback" not in demo.said
    assert "all copies are equal" in demo.said
    assert complaints == []
