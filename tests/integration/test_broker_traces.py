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
from headrace.broker.runtime import Runtime
from headrace.broker.settings.setting import InvalidSetting
from headrace.records import Record, build_batch
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


def test_slow_requests_are_spans_and_waiting_for_records_is_not_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "OTEL_BSP_SCHEDULE_DELAY", "100"
    )  # of what is left at the end, only what goes in a moment is sent
    with collector() as (endpoint, spans):
        settings = {"otel_traces_endpoint": endpoint, "otel_slow_ms": "0"}
        with broker_process(tmp_path, **settings) as (process, bootstrap, _), Wire(bootstrap) as wire:
            wire.create("orders")
            assert wire.produce("orders", BATCH) == (0, 0)  # which waits for the disk
            wait_until(lambda: "PRODUCE" in [span.name for span in spans], "no span arrives", patience_s=PATIENCE_S)
            end(process)
        (span,) = [span for span in spans if span.name == "PRODUCE"]
        parts = {each.key: each.value.double_value for each in span.attributes}
        took_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        assert sum(parts.values()) == pytest.approx(took_s, abs=0.001)
        assert parts["headrace.wait_seconds"] > 0

        spans.clear()
        settings["otel_slow_ms"] = "3600000"
        with broker_process(tmp_path, **settings) as (process, bootstrap, _), Wire(bootstrap) as wire:
            assert wire.produce("orders", BATCH) == (0, 1)
            end(process)
        assert spans == []


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
