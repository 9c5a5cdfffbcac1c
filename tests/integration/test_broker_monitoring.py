"""A broker that is watched: numbers that are true, probes that say when it can serve, and who may ask."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from headrace.broker import monitoring
from headrace.broker.client_metrics import Client, ClientMetrics
from headrace.broker.config import BrokerConfig
from headrace.broker.monitoring import CLIENT_PREFIX, FAMILIES, _clients
from headrace.broker.server import BrokerServer
from headrace.broker.settings.setting import InvalidSetting
from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_configs
from headrace.client.cluster import Cluster
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.schema import Uuid
from headrace.records import Header, Record, build_batch
from headrace.serving import server as serving
from headrace.serving.access import add_token
from headrace.serving.sessions import Role
from headrace.telemetry.metrics import render
from headrace.telemetry.otlp import Point
from tests.conformance.clients.sharing import ACCEPT, REJECT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire as SharingWire
from tests.conformance.clients.wire import batch_of
from tests.integration.test_broker_drain import broker_process, client_that_does_not_read
from tests.integration.transaction_wire import WireProducer
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire

NOW = 1_700_000_000_000
BATCH = build_batch([Record(0, NOW, b"k", b"v")])
PATIENCE_S = 60.0
HTTP = urllib3.PoolManager(retries=False, timeout=PATIENCE_S)
Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


def get(url: str, **headers: str) -> tuple[int, str]:
    answer = HTTP.request("GET", url, headers=headers)
    return answer.status, answer.data.decode()


def read(text: str) -> Numbers:
    found: Numbers = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def scrape(url: str, **headers: str) -> Callable[..., float]:
    status, text = get(f"{url}/metrics", **headers)
    assert status == 200, text
    numbers = read(text)
    return lambda name, **labels: numbers.get((name, frozenset(labels.items())), 0.0)


@contextmanager
def watched_broker(data_dir: Path, **settings: str) -> Iterator[tuple[BrokerServer, str, str]]:
    """A broker on a loop in a thread, and where its monitor listens."""
    started, ending = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def serve() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        server = BrokerServer(BrokerConfig(str(data_dir), settings={"metrics.listener": "127.0.0.1:0", **named}))
        (address,) = server.start()
        assert server.monitor is not None
        found.extend([server, str(address), server.monitor.url, asyncio.get_running_loop()])
        started.set()
        await ending.wait()
        await server.drain()
        server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="watched-broker")
    thread.start()
    assert started.wait(PATIENCE_S)
    server, bootstrap, url, loop = found
    try:
        yield server, bootstrap, url
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()


def test_share_groups_are_counted(tmp_path: Path) -> None:
    with watched_broker(tmp_path) as (_, address, url), SharingWire(address) as wire:
        wire.create("emails")
        set_group(wire, "mailers", share_auto_offset_reset="earliest")
        assert wire.produce("emails", batch_of(*[b"x"] * 5)).error_code == 0
        sharer = Sharer(wire, "mailers", "emails")
        sharer.join()
        sharer.fetch_some()
        sharer.acknowledge((0, 1, [ACCEPT]), (3, 3, [RELEASE]))
        sharer.fetch_some()  # what was released
        sharer.acknowledge((2, 2, [RELEASE]))
        number = scrape(url)
    labels = {"group": "mailers", "topic": "emails"}
    assert number("headrace_group_lag_records", **labels) == 3
    assert number("headrace_share_in_flight_records", **labels) == 2
    assert number("headrace_share_redeliveries_total", **labels) == 1


def test_forgotten_ids_and_bindings_that_cannot_be_copied_are_counted(tmp_path: Path) -> None:
    def waiting(trouble: str) -> float:
        return scrape(url)("headrace_bindings_waiting_partitions", topic="orders", target=trouble)

    with (
        watched_broker(tmp_path) as (server, address, url),
        SharingWire(address) as wire,
        Cluster(parse_bootstrap(address)) as cluster,
    ):
        wire.create("orders", configs={"headrace.bindings": '[{"to": "copies"}]'})
        assert wire.produce("orders", batch_of(b"0", b"1")).error_code == 0
        wait_until(lambda: waiting("missing") == 1, "nothing waits for the topic that is missing")
        wire.create("copies", configs={"headrace.overflow": "reject", "headrace.overflow.records": "1"})
        wait_until(lambda: (waiting("missing"), waiting("full")) == (0, 1), "nothing waits for the topic that is full")
        alter_configs(cluster, "copies", changes={"headrace.overflow.records": "2"})
        wait_until(lambda: waiting("full") == 0, "copies still wait")

        wire.create("jobs", configs={"headrace.queue": "true"})
        (follower,) = server.runtime.queues._queues.values()
        follower._window._max_ids = 2  # of 200,000
        records = [
            Record(number, time.time_ns() // 1_000_000, None, b"v", (Header("headrace-dedup-id", b"%d" % number),))
            for number in range(5)
        ]
        assert wire.produce("jobs", build_batch(records)).error_code == 0
        name = "headrace_queue_dedup_dropped_ids_total"
        wait_until(lambda: scrape(url)(name, topic="jobs") == 3, "forgotten ids are not counted")


def test_dead_letters_are_counted_and_so_are_those_that_cannot_be_written(tmp_path: Path) -> None:
    def counts() -> tuple[float, float]:
        number = scrape(url)
        names = "headrace_share_letters_total", "headrace_share_letters_waiting_records"
        return number(names[0], group="mailers"), number(names[1], group="mailers")

    with watched_broker(tmp_path) as (_, address, url), SharingWire(address) as wire:
        wire.create("emails")
        wire.create("dlq.mailers")  # which is not for dead letters yet
        set_group(wire, "mailers", share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name="dlq.mailers")
        assert wire.produce("emails", batch_of(*[b"x"] * 3)).error_code == 0
        sharer = Sharer(wire, "mailers", "emails")
        sharer.join()
        sharer.fetch_some()
        sharer.acknowledge((0, 1, [REJECT]), (2, 2, [ACCEPT]))
        wait_until(lambda: counts() == (0, 2), "nothing waits for its letter")
        with Cluster(parse_bootstrap(address)) as cluster:
            alter_configs(cluster, "dlq.mailers", changes={"errors.deadletterqueue.group.enable": "true"})
        wait_until(lambda: counts() == (2, 0), "the letters are not written")


def test_the_numbers_are_what_happened(tmp_path: Path) -> None:
    with watched_broker(tmp_path) as (_, bootstrap, url), Wire(bootstrap) as wire:
        wire.create("orders", 2)
        for _ in range(3):
            assert wire.produce("orders", BATCH)[0] == 0
        assert wire.produce("nowhere-such", BATCH)[0] == 3
        wire.fetch("orders", 0)
        wire.fetch("orders", 3, wait_ms=50)
        producer = WireProducer(wire, "writer")
        assert producer.send("orders", b"v") == 0
        assert producer.commit_offset("readers", "orders", 1) == 0
        assert producer.end(committed=True) == 0
        with Wire(bootstrap) as hostile:
            hostile.socket.sendall((2**31 - 1).to_bytes(4, "big"))
            assert hostile.socket.recv(1) == b""

        def is_over() -> bool:  # which is after its end was answered
            number = scrape(url)
            lag = number("headrace_group_lag_records", group="readers", topic="orders")
            return lag == 4 and number("headrace_transactions", state="COMPLETE_COMMIT") == 1  # with a marker

        wait_until(is_over, "the transaction does not end")
        number = scrape(url)
        assert number("headrace_ready") == 1
        assert number("headrace_requests_total", api="PRODUCE") == 5
        assert number("headrace_requests_total", api="FETCH") == 2
        assert number("headrace_request_errors_total", api="PRODUCE", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
        assert number("headrace_request_total_seconds_count", api="PRODUCE") == 5
        assert number("headrace_request_total_seconds_sum", api="FETCH") >= 0.03
        assert number("headrace_request_wait_seconds_count", api="FETCH") == 1
        assert number("headrace_request_wait_seconds_sum", api="FETCH") >= 0.03
        assert number("headrace_request_wait_seconds_count", api="PRODUCE") >= 4  # for the disk
        assert number("headrace_request_bytes_total", api="PRODUCE") > 5 * len(BATCH)
        assert number("headrace_response_bytes_total", api="FETCH") > 3 * len(BATCH)
        assert number("headrace_fsync_seconds_count") >= 4
        assert number("headrace_connections", listener="PLAINTEXT") == 1
        assert number("headrace_connections_accepted_total", listener="PLAINTEXT") == 2
        assert number("headrace_connections_rejected_total", reason="frame_too_large") == 1
        assert number("headrace_topic_offsets_total", topic="orders") == 5
        assert number("headrace_topic_size_bytes", topic="orders") >= 3 * len(BATCH)
        assert number("headrace_log_size_bytes") >= number("headrace_topic_size_bytes", topic="orders")
        assert number("headrace_groups", state="Empty") == 1
        assert 0 < number("process_resident_memory_bytes") < 2**40
        assert number("process_cpu_seconds_total") > 0


def test_whoever_chooses_names_does_not_choose_how_much_is_sent(tmp_path: Path) -> None:
    with watched_broker(tmp_path, metrics_series_max="3") as (_, bootstrap, url), Wire(bootstrap) as wire:
        for number in range(8):
            wire.create(f"topic-{number}")
        for _ in range(5):
            assert wire.produce("topic-6", BATCH)[0] == 0
        status, text = get(f"{url}/metrics")
        assert status == 200
        shown = read(text)
        topics = [labels for name, labels in shown if name == "headrace_topic_size_bytes"]
        assert len(topics) == 3
        assert frozenset({("topic", "topic-6")}) in topics
        assert shown["headrace_series_left_out", frozenset({("family", "headrace_topic_size_bytes")})] == 5
        assert shown["headrace_topics", frozenset()] == 8


def test_every_number_that_is_told_is_declared(tmp_path: Path) -> None:
    with watched_broker(tmp_path) as (_, bootstrap, url), Wire(bootstrap) as wire:
        wire.create("orders")
        wire.produce("orders", BATCH)
        wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), MetadataResponse, 9)
        _, text = get(f"{url}/metrics")
    declared = {family.name: family for family in FAMILIES}
    for family in text_string_to_metric_families(text):
        full = f"{family.name}_total" if family.type == "counter" else family.name
        assert full in declared or full.startswith(CLIENT_PREFIX)
        assert declared[full].kind == family.type
        assert declared[full].meaning == family.documentation
    assert len(declared) == len(FAMILIES)


def test_no_client_gives_its_metrics_names_that_break_the_others() -> None:
    clients = ClientMetrics()
    clients.subscribe({"all": {"metrics": "*"}})
    pushing = clients.instance(Uuid(b"x" * 16), Client("app", "wire", "1", "127.0.0.1", 1), NOW)
    attributes = (("__name__", "headrace_ready"), ("__address__", "elsewhere"), ("1\n", 'a"\n\\'))
    pushing.take_in([Point("latency", attributes, 1.0, is_sum=False, is_delta=False)])
    numbers = read(render(_clients(clients.samples(), 100, {})))
    (labels,) = (dict(labels) for name, labels in numbers if name == f"{CLIENT_PREFIX}latency")
    assert not any(label.startswith("__") for label in labels)
    assert labels["_1_"] == 'a"\n\\'


def test_who_connects_and_asks_nothing_keeps_no_probe_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PATIENCE_S", 1.0)
    with watched_broker(tmp_path) as (_, _, url), ExitStack() as held:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        begun = [
            b"",
            b"GET /healthz HTTP/1.1\r\nHost: ",
            b"POST /enter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        ]
        for number in range(monitoring._MAX_CONNECTIONS):
            sock = held.enter_context(socket.create_connection(address, PATIENCE_S))
            sock.sendall(begun[number % len(begun)])
        wait_until(lambda: get(f"{url}/healthz")[0] == 200, "a probe is not answered")


def test_a_broker_is_ready_when_it_can_serve_and_not_while_it_ends(tmp_path: Path) -> None:
    settings = {"metrics_listener": "127.0.0.1:0", "shutdown_drain_timeout_ms": "600000"}
    with broker_process(tmp_path, **settings) as (process, bootstrap, url), client_that_does_not_read(bootstrap):
        assert get(f"{url}/healthz") == (200, '{"status": "alive", "checks": {"loop": "ok"}}\n')
        status, text = get(f"{url}/readyz")
        assert (status, json.loads(text)["checks"]["disk"]) == (200, "ok")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: get(f"{url}/readyz")[0] == 503, "it is ready while it ends")
        assert "answers only what is under way" in get(f"{url}/readyz")[1]
        assert get(f"{url}/healthz")[0] == 200
        assert scrape(url)("headrace_ready") == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        with pytest.raises(urllib3.exceptions.HTTPError):
            get(f"{url}/readyz")


def test_a_broker_that_reads_its_logs_is_alive_and_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str]] = []

    async def run() -> None:
        server = BrokerServer(BrokerConfig(str(tmp_path), settings={"metrics.listener": "127.0.0.1:0"}))

        def look_and_start(*args: Any, **options: Any) -> Any:
            assert server.monitor is not None
            seen.extend(get(f"{server.monitor.url}/{path}") for path in ("healthz", "readyz", "metrics"))
            return opened(*args, **options)

        import headrace.broker.server as module

        opened = module.Runtime
        monkeypatch.setattr(module, "Runtime", look_and_start)
        server.start()
        server.stop()

    asyncio.run(run())
    (alive, _), (ready, why), (told, numbers) = seen
    assert (alive, ready, told) == (200, 503, 200)
    assert "it reads its logs" in why
    assert read(numbers) == {("headrace_ready", frozenset()): 0}


def test_a_disk_that_refuses_writes_is_not_ready_until_it_takes_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched_broker(tmp_path) as (server, _, url):
        assert server.runtime is not None
        server.runtime.disk.is_failing = True

        tried_in = set()

        def refuse(_: str) -> None:
            tried_in.add(threading.current_thread().name)
            raise OSError(5, os.strerror(5))

        with monkeypatch.context() as patched:
            patched.setattr(monitoring, "_try_to_write", refuse)
            status, text = get(f"{url}/readyz")
            assert (status, json.loads(text)["checks"]["disk"]) == (503, "it refuses writes: Input/output error")
            assert scrape(url)("headrace_disk_failing") == 1
            assert tried_in == {"headrace-monitor"}  # and nobody else waits for the disk
        assert get(f"{url}/readyz")[0] == 200  # it tried by itself


def test_numbers_are_for_those_with_a_token_once_the_broker_asks_for_logins(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="headrace user token add"), watched_refused(tmp_path / "a"):
        pass
    token = add_token(tmp_path / "tokens", "prometheus", Role.READ_ONLY)
    settings = {"authorization": "on", "super_users": "User:ANONYMOUS"}
    with watched_broker(tmp_path / "b", metrics_tokens_file=str(tmp_path / "tokens"), **settings) as (_, _, url):
        assert get(f"{url}/metrics")[0] == 401
        assert get(f"{url}/metrics", authorization="Bearer wrong")[0] == 401
        assert scrape(url, authorization=f"Bearer {token}")("headrace_ready") == 1
        assert get(f"{url}/readyz")[0] == get(f"{url}/healthz")[0] == 200
        assert get(f"{url}/readyz", host="elsewhere.example")[0] == 421


@contextmanager
def watched_refused(data_dir: Path) -> Iterator[None]:
    async def run() -> None:
        settings = {"metrics.listener": "127.0.0.1:0", "authorization": "on", "super.users": "User:ANONYMOUS"}
        BrokerServer(BrokerConfig(str(data_dir), settings=settings)).start()

    asyncio.run(run())
    yield


def test_a_broker_without_the_extra_says_how_to_install_it(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['uvicorn'] = None\n")
    command = [sys.executable, "-m", "headrace.cli.main", "broker", "start", "--data-dir", str(tmp_path / "d")]
    command += ["--listen", "127.0.0.1:0", "--set", "metrics.listener=127.0.0.1:0"]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(hidden)}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "pip install 'headrace[dashboard]'" in ended.stderr
