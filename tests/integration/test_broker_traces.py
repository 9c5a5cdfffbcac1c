"""Spans of requests, as a collector receives them."""

import http.server
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from headrace.broker.config import BrokerConfig
from headrace.broker.metrics import ApiStats
from headrace.broker.runtime import Runtime
from headrace.broker.settings.setting import InvalidSetting
from headrace.protocol.api import ApiKey
from headrace.records import Record, build_batch
from headrace.telemetry.traces import RequestTraces
from tests.integration.test_broker_drain import PATIENCE_S, broker_process, end
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

BATCH = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")])


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Where traces may be sent to, and every span that was."""
    spans: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {each.key: each.value.string_value for each in resource.resource.attributes}
                assert names["service.name"] == "headrace-broker"
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="collector")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def sent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is left at the end, only what goes in a moment is sent."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")


def test_slow_requests_are_spans_which_name_what_was_waited_for(tmp_path: Path) -> None:
    with collector() as (endpoint, spans):
        settings = {"otel_traces_endpoint": endpoint, "otel_slow_ms": "0"}
        with broker_process(tmp_path, **settings) as (process, bootstrap, _), Wire(bootstrap) as wire:
            wire.create("orders")
            assert wire.produce("orders", BATCH) == (0, 0)  # which waits for the disk
            assert wire.fetch("orders", 1, wait_ms=2000) == (0, [])  # which waits for records
            wait_until(lambda: "FETCH" in [span.name for span in spans], "no span arrives", patience_s=PATIENCE_S)
            end(process)
        for name, waited_s in (("PRODUCE", 0.0), ("FETCH", 0.5)):
            (span,) = [span for span in spans if span.name == name]
            parts = {each.key: each.value.double_value for each in span.attributes}
            took_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
            assert sum(parts.values()) == pytest.approx(took_s, abs=0.001)
            assert parts["headrace.wait_seconds"] > waited_s

        spans.clear()
        settings["otel_slow_ms"] = "3600000"
        with broker_process(tmp_path, **settings) as (process, bootstrap, _), Wire(bootstrap) as wire:
            assert wire.produce("orders", BATCH) == (0, 1)
            end(process)
        assert spans == []


def test_waiting_for_records_or_for_other_members_is_not_slow_and_waiting_for_the_disk_is() -> None:
    with collector() as (endpoint, spans):
        traces = RequestTraces(endpoint, service="headrace-broker", instance="1", slow_s=1.0, share=0.0)
        for api in (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.PRODUCE):
            stats = ApiStats(api, traces)
            stats.finish(received_s=10.0, began_s=10.1, handled_s=10.2, now_s=100.0)
            stats.finish(received_s=10.0, began_s=10.1, handled_s=11.2, now_s=100.0)
        wait_until(lambda: len(spans) >= 5, "the spans do not arrive", patience_s=PATIENCE_S)
        traces.close()
        assert [span.name for span in spans] == ["FETCH", "JOIN_GROUP", "SYNC_GROUP", "PRODUCE", "PRODUCE"]


def test_a_collector_that_is_away_holds_nothing_up(tmp_path: Path) -> None:
    settings = {"otel_traces_endpoint": "http://127.0.0.1:1/v1/traces", "otel_sample_ratio": "1"}
    with broker_process(tmp_path, **settings) as (process, bootstrap, _), Wire(bootstrap) as wire:
        wire.create("orders")
        for number in range(20):
            assert wire.produce("orders", BATCH) == (0, number)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_what_is_not_an_address_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    settings = {"otel.traces.endpoint": "127.0.0.1:4318"}
    with pytest.raises(InvalidSetting, match="must be the URL of an OTLP collector"):
        Runtime(BrokerConfig(str(tmp_path / "data"), settings=settings))
    assert not (tmp_path / "data").exists()
