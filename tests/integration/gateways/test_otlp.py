"""OTLP with the exporters of the SDK, and by hand: durable before it is answered, or refused."""

import gzip
import http.client
import importlib
import json
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_configs
from headrace.client.cluster import Cluster
from headrace.gateways.otlp.kind import KIND
from headrace.gateways.otlp.messages import Signal
from headrace.gateways.otlp.server import OtlpGateway
from headrace.serving.access import add_token
from headrace.serving.sessions import Role
from tests.integration.gateways.running import checked, running, wait_for, written
from tests.ports import free_port

PROTO = "opentelemetry.exporter.otlp.proto.http"
EXPORTERS = {
    "protobuf": (f"{PROTO}._log_exporter", f"{PROTO}.metric_exporter", f"{PROTO}.trace_exporter"),
    "json": (
        "opentelemetry.exporter.otlp.json.http._log_exporter",
        "opentelemetry.exporter.otlp.json.http.metric_exporter",
        "opentelemetry.exporter.otlp.json.http.trace_exporter",
    ),
}
RESOURCE = Resource.create({"service.name": "shop", "replicas": 3})
LOG = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "hello"}, "severityNumber": 17}]}]}]}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


def objects(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in written(bootstrap, topic)]


def until_up(gateway: OtlpGateway) -> str:
    wait_for(lambda: gateway.url, "it listens")
    return gateway.url


def post(
    gateway: OtlpGateway, path: str, body: Any, encoding: str = "application/json", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    until_up(gateway)
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, sent, {"content-type": encoding, **more})
    said = connection.getresponse()
    found = said.read()
    connection.close()
    return said.status, {name.lower(): value for name, value in said.getheaders()}, found


@pytest.mark.filterwarnings("ignore:`LoggingHandler`:DeprecationWarning")
@pytest.mark.parametrize("encoding", list(EXPORTERS))
def test_the_exporters_of_the_sdk(bootstrap: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "gzip")
    for module in EXPORTERS[encoding]:
        pytest.importorskip(module)
    logs_of, metrics_of, spans_of = map(importlib.import_module, EXPORTERS[encoding])
    topics = {signal: f"{encoding}.{signal}" for signal in ("logs", "metrics", "traces")}
    with running(KIND, bootstrap, encoding, port=0, **topics) as gateway:
        url = until_up(gateway)
        tracing = TracerProvider(resource=RESOURCE)
        tracing.add_span_processor(BatchSpanProcessor(spans_of.OTLPSpanExporter(f"{url}/v1/traces")))
        logs = LoggerProvider(resource=RESOURCE)
        exporter = logs_of.OTLPLogExporter(f"{url}/v1/logs")
        logs.add_log_record_processor(BatchLogRecordProcessor(exporter))
        reader = PeriodicExportingMetricReader(metrics_of.OTLPMetricExporter(f"{url}/v1/metrics"), 3_600_000)
        metrics = MeterProvider([reader], resource=RESOURCE)
        logger = logging.Logger("checkout")  # noqa: LOG001 - of this test alone
        logger.addHandler(LoggingHandler(logger_provider=logs))
        meter = metrics.get_meter("tests", "1.2")
        began = time.time_ns()
        with tracing.get_tracer("tests").start_as_current_span("pay", attributes={"amount": 12.5}) as span:
            span.add_event("asked", {"bank": "north"})
            logger.error("no money", extra={"user": "ann", "tries": 3})
            meter.create_counter("payments", unit="1").add(7, {"method": "card"})
            meter.create_histogram("latency", unit="ms").record(3.5)
        for provider in (tracing, logs, metrics):
            assert provider.force_flush() is not False
        assert provider is metrics

        (log,) = objects(bootstrap, topics["logs"])
        (pay,) = objects(bootstrap, topics["traces"])
        points = {each["name"]: each for each in objects(bootstrap, topics["metrics"])}
        context = span.get_span_context()
        assert (log["body"], log["level"], log["severity_text"]) == ("no money", "error", "ERROR")
        assert log["attributes"]["user"] == "ann"
        assert log["attributes"]["tries"] == 3
        assert (log["trace_id"], log["span_id"]) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")
        assert (pay["trace_id"], pay["span_id"]) == (log["trace_id"], log["span_id"])
        assert (pay["name"], pay["kind"], pay["parent_span_id"]) == ("pay", "internal", None)
        assert pay["attributes"] == {"amount": 12.5}
        assert [(each["name"], each["attributes"]) for each in pay["events"]] == [("asked", {"bank": "north"})]
        assert pay["end_time_unix_nano"] - pay["start_time_unix_nano"] == pay["duration_nano"] > 0
        payments, latency = points["payments"], points["latency"]
        assert (payments["type"], payments["value"], payments["is_monotonic"]) == ("sum", 7, True)
        assert (payments["temporality"], payments["attributes"]) == ("cumulative", {"method": "card"})
        assert (latency["type"], latency["count"], latency["sum"], latency["unit"]) == ("histogram", 1, 3.5, "ms")
        assert sum(latency["bucket_counts"]) == 1
        for each in (log, pay, payments, latency):
            assert each["resource"]["service.name"] == "shop"
            assert each["resource"]["replicas"] == 3
        assert payments["scope"] == {"name": "tests", "version": "1.2", "attributes": {}}
        assert began < pay["start_time_unix_nano"] < time.time_ns()
        keys = {topic: {record.key for record in written(bootstrap, topic)} for topic in topics.values()}
        assert keys == {
            topics["logs"]: {b"shop"}, topics["metrics"]: {b"shop"}, topics["traces"]: {pay["trace_id"].encode()},
        }  # fmt: skip
        for provider in (tracing, logs, metrics):
            provider.shutdown()


def test_errors_are_as_the_specification_has_them(bootstrap: str) -> None:
    values = {"logs": "errors", "metrics": "", "max_request": 1, "max_record": 1_000}
    with running(KIND, bootstrap, "errors", port=0, **values) as gateway:
        assert post(gateway, "/v1/logs", LOG)[::2] == (200, b"{}")
        assert post(gateway, "/v1/logs", b"")[0] == 400
        assert post(gateway, "/v1/logs", b"", "application/x-protobuf")[::2] == (200, b"")
        assert post(gateway, "/v1/logs", gzip.compress(json.dumps(LOG).encode()), content_encoding="gzip")[0] == 200
        status, _, said = post(gateway, "/v1/logs", b"not JSON")
        assert (status, json.loads(said)["code"]) == (400, 3)
        status, headers, said = post(gateway, "/v1/logs", b"\xff\xff", "application/x-protobuf")
        assert (status, headers["content-type"]) == (400, "application/x-protobuf")
        assert b"is not protobuf of opentelemetry" in said
        assert post(gateway, "/v1/logs", LOG, "text/plain")[0] == 415
        assert post(gateway, "/v1/logs", LOG, content_encoding="br")[0] == 415
        assert post(gateway, "/v1/logs", b"x", content_encoding="gzip")[0] == 400
        assert post(gateway, "/v1/metrics", {})[0] == 404
        assert post(gateway, "/v1/nothing", {})[0] == 404
        assert post(gateway, "/v1/logs", b"x" * (2**20 + 1))[0] == 413
        assert post(gateway, "/v1/logs", gzip.compress(b"x" * (2**20 + 1)), content_encoding="gzip")[0] == 413
        large = {"body": {"stringValue": "x" * 2_000}}
        said = post(gateway, "/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [large, {}]}]}]})[2]
        assert json.loads(said)["partialSuccess"]["rejectedLogRecords"] == "1"
        assert [each["body"] for each in objects(bootstrap, "errors")] == ["hello", "hello", None]
        assert gateway.progress.refused >= 8


def test_where_the_broker_is_away_or_there_is_no_room_it_may_be_sent_again(bootstrap: str) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with running(KIND, nobody, "away", port=0, timeout_s=0.3, buffer_mb=1) as gateway:
        status, headers, said = post(gateway, "/v1/logs", LOG)
        assert (status, headers["retry-after"]) == (503, "2")
        assert json.loads(said)["code"] == 14
        record = {"body": {"stringValue": "x" * 100_000}}
        many = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record] * 9}]}]}
        assert {post(gateway, "/v1/logs", many)[0] for _ in range(3)} == {503, 429}
        assert gateway._inlet.bytes_waiting <= 2**20
        assert gateway.progress.dropped


def test_who_has_no_token_is_not_let_in(bootstrap: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    token = add_token(tokens, "collector", Role.ADMIN)
    with running(KIND, bootstrap, "guarded", port=0, tokens=str(tokens)) as gateway:
        assert post(gateway, "/v1/logs", LOG)[0] == 401
        assert post(gateway, "/v1/logs", LOG, authorization=f"Bearer {token}")[0] == 200


def test_bodies_on_their_way_are_bounded_in_all(bootstrap: str) -> None:
    with running(KIND, bootstrap, "bounded", port=0, max_request=1) as gateway:
        until_up(gateway)
        slow = []
        for _ in range(9):  # each leaves its last byte out
            connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
            connection.putrequest("POST", "/v1/logs")
            connection.putheader("content-type", "application/json")
            connection.putheader("content-length", str(2**20))
            connection.endheaders()
            slow.append(connection)
        threads = [threading.Thread(target=each.send, args=(b"x" * (2**20 - 1),)) for each in slow]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_for(lambda: gateway._held_bytes > 7 * 2**20, "bodies are on their way")
        assert gateway._held_bytes <= 8 * 2**20 + 2**18
        for connection in slow:
            connection.close()
        wait_for(lambda: gateway._held_bytes == 0, "nothing is held for those who went away")
        assert post(gateway, "/v1/logs", LOG)[0] == 200


def log_records(resource_bytes: int, count: int) -> Any:
    """A request of empty log records that have a large resource together."""
    request = Signal.LOGS.message("Request")()
    group = request.resource_logs.add()
    attribute = group.resource.attributes.add()
    attribute.key, attribute.value.string_value = "pad", "x" * resource_bytes
    scope = group.scope_logs.add()
    for _ in range(count):
        scope.log_records.add()
    return request


def test_what_a_small_request_becomes_is_bounded(bootstrap: str) -> None:
    """Each record has the resource of all: a request of 1 MB would be records of 80 GB."""
    with running(KIND, bootstrap, "bomb", port=0, max_request=1, logs="bomb.logs") as gateway:
        until_up(gateway)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        body = gzip.compress(log_records(400_000, 2_000).SerializeToString())
        status, _, said = post(gateway, "/v1/logs", body, "application/x-protobuf", content_encoding="gzip")
        assert status == 413, (status, len(said))
        assert b"send smaller batches" in said
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
        body = log_records(400_000, 10).SerializeToString()
        assert post(gateway, "/v1/logs", body, "application/x-protobuf")[0] == 200
        assert len(written(bootstrap, "bomb.logs")) == 10


def test_a_client_that_goes_in_the_middle_of_a_body_is_counted_and_fills_no_log(
    bootstrap: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(KIND, bootstrap, "gone", port=0, logs="gone") as gateway:
        host, _, port = until_up(gateway).rpartition("//")[2].rpartition(":")
        capfd.readouterr()
        for _ in range(3):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(
                    b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Content-Length: 100\r\n\r\n{"
                )
        wait_for(lambda: gateway.progress.refused == 3, "all are counted")
        assert "Traceback" not in capfd.readouterr().err


def test_a_gzip_of_several_parts_is_read_to_its_end(bootstrap: str) -> None:
    """As RFC 1952 has it: what is put together of files is one."""
    parts = [gzip.compress(log_records(size, 1).SerializeToString()) for size in (1, 2, 3)]
    with running(KIND, bootstrap, "parts", port=0, logs="parts.logs") as gateway:
        kind, coding = "application/x-protobuf", {"content_encoding": "gzip"}
        assert post(gateway, "/v1/logs", b"".join(parts), kind, **coding)[0] == 200
        assert [len(each["resource"]["pad"]) for each in objects(bootstrap, "parts.logs")] == [1, 2, 3]
        assert post(gateway, "/v1/logs", b"".join(parts)[:-9], kind, **coding)[0] == 400
        assert post(gateway, "/v1/logs", parts[0] + b"more", kind, **coding)[0] == 400
        assert len(objects(bootstrap, "parts.logs")) == 3


def test_a_record_that_the_topic_refuses_is_rejected_alone(bootstrap: str) -> None:
    with running(KIND, bootstrap, "alone", port=0, logs="alone.logs") as gateway:
        until_up(gateway)
        large = {"key": "service.name", "value": {"stringValue": "s" * 600_000}}  # is in the key and in the value
        said = {"resourceLogs": [*LOG["resourceLogs"], {"resource": {"attributes": [large]}, **LOG["resourceLogs"][0]}]}
        status, _, answer = post(gateway, "/v1/logs", said)
        assert (status, json.loads(answer)["partialSuccess"]["rejectedLogRecords"]) == (200, "1")
        with Cluster(parse_bootstrap(bootstrap)) as cluster:
            alter_configs(cluster, "alone.logs", changes={"max.message.bytes": "1000"})
        body = log_records(5_000, 1)
        body.MergeFrom(log_records(1, 1))
        status, _, answer = post(gateway, "/v1/logs", body.SerializeToString(), "application/x-protobuf")
        answered = Signal.LOGS.message("Response").FromString(answer)
        assert (status, answered.partial_success.rejected_log_records) == (200, 1)
        assert len(objects(bootstrap, "alone.logs")) == 2


def test_what_makes_no_sense_is_said_in_a_sentence() -> None:
    for values, sentence in (
        ({"logs": "", "metrics": "", "traces": ""}, "takes neither logs nor metrics nor traces"),
        ({"host": "0.0.0.0"}, "0.0.0.0 can be reached from other machines"),
        ({"logs": "no topic"}, "no topic"),
    ):
        with pytest.raises(Exception, match=sentence):
            checked(KIND, values)
