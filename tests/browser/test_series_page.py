"""The page of a StatsD gateway: a real one takes packets, and its series are seen with their numbers as they come."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from headrace.broker.embedded import Broker
from headrace.client.reader import ReadRecord
from headrace.dashboard.app import DashboardServer
from headrace.dashboard.pages.gateways import series_of
from headrace.model import TopicPartition
from headrace.records import Record
from headrace.testing.contracts.gateway import free_port
from tests.browser.conftest import settings
from tests.integration.gateways.running import started, values_of, wait_for

AUDIT = (Path(__file__).parent / "audit.js").read_text()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(durability="os") as made:
        yield made


def send(port: int, *packets: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        for packet in packets:
            there.sendto(packet, ("127.0.0.1", port))


@pytest.mark.browser
def test_metrics_of_programs_are_seen_as_they_come(window_of: Any, broker: Broker) -> None:
    bootstrap, port = broker.bootstrap_servers, free_port()
    options = ("--topic", "metrics", "--port", str(port), "--interval-s", "1", "--internal", "none")
    gateway = started("statsd", "shop metrics", bootstrap, *options)
    try:
        with DashboardServer(settings(bootstrap)) as board:
            page = window_of(board).open("/gateways")
            row = page.get_by_role("row", name="shop metrics")
            expect(row).to_contain_text("running", timeout=120_000)  # its loops are compiled
            page.get_by_role("link", name="shop metrics").click()
            expect(page.locator("main")).to_contain_text("No metrics yet")
            assert page.evaluate(AUDIT) == []
            page.evaluate("window.isTheSame = true")
            send(port, b"orders:3|c|#city:Porto", b"level:7|g", b"users:ada|s", b"took:10:30|ms", b"<i>:1|c")
            wait_for(lambda: values_of(bootstrap, "metrics"), "an interval is written")
            series = page.get_by_role("region", name="Series")
            expect(series.get_by_role("row", name="orders")).to_contain_text("city:Porto")
            expect(series.get_by_role("row", name="level")).to_contain_text("7")
            took = series.get_by_role("row", name="took")
            expect(took).to_contain_text("20")
            expect(took).to_contain_text("count 2, lower 10, upper 30, upper 90 30")
            assert page.evaluate(AUDIT) == []
            send(port, b"level:8|g")
            expect(series.get_by_role("row", name="level")).to_contain_text("8")
            assert page.evaluate("window.isTheSame"), "it came without loading the page again"
            page.get_by_placeholder("Filter by name or tag").fill("porto")
            expect(series.get_by_role("row")).to_have_count(2)
    finally:
        gateway.terminate()
        gateway.communicate(timeout=20)
    assert gateway.returncode == 0


def metric(value: object, key: bytes | None = b"a", offset: int = 0) -> ReadRecord:
    held = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    return ReadRecord(TopicPartition("metrics", 0), Record(offset, 0, key, held))


def test_records_of_others_are_no_series() -> None:
    one = {"name": "a", "type": "gauge", "end_ms": 2000, "value": 5, "tags": {"env": "", "city": "Porto"}}
    strange: list[object] = [
        None, b"", b"[", b"[" * 100_000, b"\xff", 7, [], {}, {"type": "gauge"}, {**one, "type": ["gauge"]},
        {**one, "type": "note"}, {**one, "end_ms": "2000"}, {**one, "name": 7},
    ]  # fmt: skip
    found = series_of(
        [
            *map(metric, strange),
            metric({**one, "end_ms": 1000, "value": None}, None),
            metric(one),
            metric({**one, "tags": 7, "value": True}, b"b"),
        ]
    )
    assert [(each["key"], each["last"], each["tags"]) for each in found] == [
        ("", None, ["env", "city:Porto"]), ("a", 5.0, ["env", "city:Porto"]), ("b", None, [])
    ]  # fmt: skip
