"""The pages of patterns: nothing, two that run, a match that comes while one looks, a pattern that does not compile."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from headrace.broker.embedded import Broker
from headrace.cep import Pattern
from headrace.cep.pictures.diagram import as_json
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.dashboard.app import DashboardServer
from headrace.pipelines.jobs.progress import Written
from headrace.pipelines.jobs.publish import ProgressTopic
from headrace.status import PROGRESS
from tests.browser import parts, traffic
from tests.browser.conftest import settings

pytestmark = pytest.mark.browser
AUDIT = (Path(__file__).parent / "audit.js").read_text()
PHONE = {"viewport": {"width": 390, "height": 844}}

SMALL_THEN_LARGE = (
    Pattern.begin("small", "amount < 2")
    .followed_by("large", "amount > 500 AND amount > 100 * small.amount")
    .within("1 minute")
    .skip_past_last()
)
TRIED = (
    Pattern.begin("refused", "status = 'refused'")
    .times_or_more(3)
    .not_followed_by("call", "status = 'confirmed by phone'")
    .followed_by("paid", "status = 'paid' AND amount > 100")
    .within("10 minutes")
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


def pattern(name: str, given: Pattern, batch: int, **others: Any) -> dict[str, Any]:
    counts = {
        "matches": batch // 4,
        "timed_out": 40 * batch,
        "dropped": 0,
        "partial": 300 + 7 * (batch % 13),
        "matches_in_batch": 1,
    }
    keys = [{"key": f"c{number:02d} · Oslo", "partial": 19 - 3 * number} for number in range(5)]
    return {
        "name": name, "version": None, "state": "running", "problem": None, **counts, "keys": keys,
        "diagram": as_json(given.compile()), **others,
    }  # fmt: skip


def write_reports(cluster: Cluster, batches: range, **others: Any) -> None:
    writer = Writer(cluster, PROGRESS)
    frauds = Written("topic", "frauds", "topic frauds")
    for batch in batches:
        report = parts.report("fraud", batch, 800, "payments", 4_000, frauds, late_rows_total=3).as_json()
        patterns = [pattern("small then large", SMALL_THEN_LARGE, batch), pattern("tried", TRIED, batch, **others)]
        report |= {"patterns": patterns, "events_matched": 800 * batch}
        at_ms = traffic.now_ms() - (batches[-1] - batch) * 2000
        writer.add(NewRecord(b"fraud", json.dumps(report).encode(), at_ms))
    writer.flush()


def match(card: str) -> dict[str, Any]:
    return {"pattern": "small then large", "card": card, "tried": 0.5, "stolen": 899}


def test_patterns_are_seen_as_they_run(window_of: Any, cluster: Cluster) -> None:
    with DashboardServer(settings(str(cluster))) as board:
        window = window_of(board)
        page = window.open("/patterns")
        expect(page.locator("main")).to_contain_text("No patterns yet")
        assert page.evaluate(AUDIT) == []
        ProgressTopic(cluster).write([])  # makes the topic
        now_ms = traffic.now_ms()
        traffic.write_json(
            str(cluster), "frauds", [(f"c{number:02d}", match(f"c{number:02d}"), now_ms) for number in range(9)]
        )
        write_reports(cluster, range(60))
        line = page.get_by_role("row", name="fraud:tried")
        expect(line).to_contain_text("running")
        expect(line).to_contain_text("refused, paid within 10 minutes")
        assert line.locator("td.number").nth(0).inner_text() == "14"
        assert page.evaluate(AUDIT) == []
        window.shoot("patterns")

        page.get_by_role("link", name="fraud:small then large").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("fraud:small then large")
        drawing = page.get_by_role("img", name="pattern of small, large within 1 minute")
        expect(drawing).to_contain_text("amount > 500")
        colour = "getComputedStyle(document.querySelector('.hp-box')).fill"
        assert page.evaluate(colour) == "rgb(234, 240, 242)", "the drawing has the colours of the page"
        expect(page.get_by_role("row", name="c00 · Oslo")).to_contain_text("19")
        expect(page.get_by_role("region", name="Records of matches")).to_contain_text('"card": "c08"')
        assert page.evaluate(AUDIT) == []
        window.shoot("pattern")

        page.evaluate("window.isTheSame = true")
        traffic.write_json(str(cluster), "frauds", [("c77", match("c77"), traffic.now_ms())])
        write_reports(cluster, range(60, 61), dropped=4)
        expect(page.get_by_role("region", name="Records of matches")).to_contain_text('"card": "c77"')
        expect(page.locator("dl.figures")).to_contain_text("no key had too many partial matches")
        assert page.evaluate("window.isTheSame"), "it came without loading the page again"

        page = window.open("/patterns/fraud:tried")
        expect(page.locator("dl.figures")).to_contain_text("some matches may be missing")
        problem = "unknown column 'stat': did you mean 'status'?\n  stat = 'paid'\n  ^^^^"
        write_reports(cluster, range(61, 62), state="failed", problem=problem, diagram=None, keys=[])
        expect(page.get_by_role("alert")).to_contain_text("did you mean 'status'?")
        expect(page.locator("main")).to_contain_text("There is none until the pattern is mended.")
        expect(page.locator("main")).to_contain_text("no key has a partial match now")
        assert page.evaluate(AUDIT) == []

        phone = window_of(board, **PHONE)
        shown = phone.open("/patterns/fraud:small%20then%20large")
        expect(shown.get_by_role("img", name="pattern of small, large")).to_be_visible()
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert shown.evaluate(AUDIT) == []
        phone.shoot("phone-pattern")

        dark = window_of(board, color_scheme="dark").open("/patterns/fraud:small%20then%20large")
        expect(dark.get_by_role("img", name="pattern of small, large")).to_be_visible()
        assert dark.evaluate(AUDIT) == []
