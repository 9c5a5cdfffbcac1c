"""A browser, brokers and dashboards for tests: one Chromium for each file, a fresh window for each test."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from headrace.broker.embedded import Broker
from headrace.cli.dashboard import language
from headrace.client.address import parse_bootstrap
from headrace.dashboard.app import DashboardServer
from headrace.dashboard.settings import Settings
from headrace.serving.access import Access
from headrace.status import CAPTURES, DERIVED
from tests.browser import parts, traffic
from tests.integration.waiting import wait_until

CHROMIUM = os.environ.get("HEADRACE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SCREENSHOTS = Path(__file__).parents[2] / "docs" / "images" if os.environ.get("HEADRACE_SCREENSHOTS") == "1" else None
TOKEN = "a-token-for-the-browser"
BIG = 200_000  # records: enough that a search through them can be seen and stopped
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs a Chromium")


def settings(bootstrap: str, *, token: str | None = None, **others: object) -> Settings:
    access = Access(token=token)
    return Settings(parse_bootstrap(bootstrap), language(), port=0, access=access, interval_s=0.3, **others)  # type: ignore[arg-type]


@pytest.fixture(
    scope="module"
)  # while it is open this thread has a running event loop, which other tests could not bear
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.fail("no Chromium is installed: apt-get install chromium, or set HEADRACE_CHROMIUM to one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> parts.ShopDatabase:
    """The database that is captured."""
    return parts.ShopDatabase(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="session")
def shop(database: parts.ShopDatabase) -> Iterator[str]:
    """The address of a broker on which much goes on, with parts that run."""
    with Broker(durability="os", own_process=True) as broker:
        bootstrap = broker.bootstrap_servers
        traffic.make_topics(bootstrap)
        traffic.write_orders(bootstrap, "orders", 20_000, ago_ms=3_600_000)
        traffic.write_orders(bootstrap, "payments", 3_000, ago_ms=3_600_000)
        traffic.write_orders(bootstrap, "clicks", 10_000, ago_ms=5_000_000)
        traffic.write_orders(bootstrap, "archive", BIG)
        traffic.write_orders(bootstrap, "invoices", 20_000, ago_ms=3_600_000)  # nobody writes more of these
        traffic.read_some(bootstrap, "reporting", "invoices", 5_000)
        traffic.write_orders(bootstrap, "revenue", 300)
        traffic.write_dead_letter(bootstrap, "orders")
        traffic.write_statuses(bootstrap)
        with (
            parts.reporting(bootstrap),
            parts.running(bootstrap, database.path.parent, database),
            traffic.working(bootstrap),
        ):
            yield bootstrap


@pytest.fixture(scope="session")
def board(shop: str) -> Iterator[DashboardServer]:
    """A dashboard of the shop that may write; it has seen all that goes on there."""
    with DashboardServer(settings(shop, allow_writes=True, token=TOKEN)) as server:

        def has_seen_all() -> bool:
            state = server.dashboard.desk.state
            derived = state.statuses.get(DERIVED, {})
            return (
                state.snapshot is not None
                and "headrace-sync.orders-table" in state.snapshot.groups
                and "emails" in state.snapshot.queues
                and "shop" in state.statuses.get(CAPTURES, {})
                and {"orders-table", "later", "customers-index"} <= derived.keys()
                and {"revenue", "enrich"} <= {job for job, _ in state.jobs}
            )

        wait_until(has_seen_all, "a part of the shop does not report", patience_s=120)
        yield server


@pytest.fixture(scope="session")
def empty_board() -> Iterator[DashboardServer]:
    """A dashboard of a broker with nothing in it, that may only look."""
    with Broker(durability="os") as broker, DashboardServer(settings(broker.bootstrap_servers)) as server:
        yield server


class Window:
    """A page of a dashboard, as a person has it before them."""

    def __init__(self, page: Page, server: DashboardServer) -> None:
        self.page = page
        self.server = server
        self.complaints: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(server.entry_url)

    def _heard(self, message: ConsoleMessage) -> None:
        # An answer other than 200 is told by the browser too; which ones are right is each test's own matter.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def open(self, path: str) -> Page:
        self.page.goto(self.server.url.rstrip("/") + path)
        return self.page

    def shoot(self, name: str) -> None:
        """A picture for the documentation, when asked for."""
        if SCREENSHOTS:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=SCREENSHOTS / f"dashboard-{name}.png")


@pytest.fixture
def window_of(chromium: Browser):  # type: ignore[no-untyped-def]
    """Opens a window on a dashboard; afterwards it must have had nothing to complain of."""
    contexts, windows = [], []

    def make(server: DashboardServer, **options: object) -> Window:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 860}} | options)  # type: ignore[arg-type]
        contexts.append(context)
        windows.append(Window(context.new_page(), server))
        return windows[-1]

    yield make
    for context in contexts:
        context.close()
    assert [complaint for window in windows for complaint in window.complaints] == []


@pytest.fixture
def window(window_of, board: DashboardServer) -> Window:  # type: ignore[no-untyped-def]
    """A window on the shop's dashboard."""
    return window_of(board)
