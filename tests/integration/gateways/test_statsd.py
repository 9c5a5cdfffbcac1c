"""StatsD over real sockets: what was sent is aggregated, drops are counted, clients of others are understood."""

import contextlib
import json
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datadog
import pytest
from prometheus_client.parser import text_string_to_metric_families

import statsd
from headrace import Broker
from headrace.client.errors import ClientError
from headrace.extras import MissingExtra
from headrace.gateways.statsd import server
from headrace.gateways.statsd.plain import PlainAggregator
from headrace.testing.contracts.gateway import TOPIC, InwardGatewayContract, Running, free_port, read_topic, until


class TestStatsd(InwardGatewayContract):
    """Messages are the titles of events: they are written one by one."""

    kind = "statsd"
    is_lossy = True

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"topic": "metrics", "events_topic": topic, "port": port, "internal": "none"}

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        send(section["port"], *(b"_e{%d,1}:%s|x" % (len(message), message) for message in messages))

    def send_bad(self, section: Mapping[str, Any]) -> int:
        send(section["port"], b"no value", b"a:1", b"a:x|c", b"a:1|c|@7", b"_e{9,9}:a|b", b"_sc|a|9", b"\xff" * 9000)
        return 7

    def found(self, bootstrap: str) -> list[bytes]:
        return [json.loads(value)["title"].encode() for _, value in read_topic(bootstrap, TOPIC)]

    def is_listening(self, running: Running) -> bool:
        return bool(getattr(running.gateway, "is_listening", False))


def send(port: int, *packets: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        for packet in packets:
            there.sendto(packet, ("127.0.0.1", port))


# --- what is aggregated


class _Setting(TestStatsd):
    """Sections of our own on the ground of the contract."""

    __test__ = False

    def __init__(self, **given: Any) -> None:
        self._given = given

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"port": port, **self._given}


@contextlib.contextmanager
def gateway(bootstrap: str, **given: Any) -> Iterator[tuple[Any, int]]:
    """One at work, and its port."""
    port = free_port()
    setting = _Setting(**{"topic": "metrics", "interval_s": 0.2, "internal": "none", **given})
    with setting.running(bootstrap, setting.section(port)) as running:
        until(lambda: running.errors or getattr(running.gateway, "is_listening", False), "it listens")
        yield running.gateway, port


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as started:
        yield started


def records(bootstrap: str, topic: str = "metrics") -> list[dict[str, Any]]:
    with contextlib.suppress(ClientError):
        return [json.loads(value) for _, value in read_topic(bootstrap, topic)]
    return []


def totals(bootstrap: str) -> Counter[str]:
    """Of counters, and how many values of timers and members of sets there were."""
    found: Counter[str] = Counter()
    for one in records(bootstrap):
        found[one["name"]] += one["count"] if "count" in one else one["value"]
    return found


def test_all_doors_lead_to_one_sum(broker: Broker, tmp_path: Path) -> None:
    packets, streams = str(tmp_path / "packets"), str(tmp_path / "streams")
    doors = {"tcp": True, "unix": packets, "unix_stream": streams, "unix_mode": "0600"}
    with gateway(broker.bootstrap_servers, **doors) as (one, port):
        assert stat.S_IMODE(Path(packets).stat().st_mode) == 0o600
        send(port, b"a:1|c\na:2|c")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
            there.sendto(b"a:4|c", packets)
        with socket.create_connection(("127.0.0.1", port)) as there:
            there.sendall(b"a:8|c\na:1")
            there.sendall(b"6|c\na:never|")
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(streams)
            there.sendall(b"a:32|c\n")
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(streams)
            there.sendall((6).to_bytes(4, "little") + b"a:64|c")
        until(lambda: totals(broker.bootstrap_servers)["a"] == 127, "all is added up")
        until(lambda: one.progress.refused == 1, "the line that did not end is refused")
        assert one.source == f"udp://127.0.0.1:{port}, unix:{packets}, tcp://127.0.0.1:{port}, unix:{streams}"
    assert not Path(packets).exists()
    assert not Path(streams).exists()


def test_the_form_of_records(broker: Broker) -> None:
    given = {"percentiles": "50", "rules": ["slow.*: percentiles 90; buckets 10 inf"], "internal": "own"}
    with gateway(broker.bootstrap_servers, **given) as (_, port):
        send(port, b"slow.t:5:15|ms|#env:prod,bare", b"g:7|g", b"s:x|s", b"c:3|c|T17", b"_sc|db|1|#x:1|m:slow", b"bad")
        until(lambda: {"slow.t", "g", "s", "c"} <= totals(broker.bootstrap_servers).keys(), "all is there")
        until(lambda: records(broker.bootstrap_servers, "metrics-checks"), "the check is there")
        until(lambda: totals(broker.bootstrap_servers)["own.bad_lines_seen"] == 1, "the bad line is told of")
    found = {one["name"]: one for one in records(broker.bootstrap_servers)}
    timer = found["slow.t"]
    assert 100 <= timer.pop("end_ms") - timer.pop("start_ms") < 10_000
    assert timer.pop("count_ps") == pytest.approx(10)
    assert timer == {
        "name": "slow.t", "tags": {"env": "prod", "bare": ""}, "type": "timer", "count_90": 2, "mean_90": 10,
        "upper_90": 15, "sum_90": 20, "sum_squares_90": 250, "std": 5, "upper": 15, "lower": 5, "count": 2, "sum": 20,
        "sum_squares": 250, "mean": 10, "median": 10, "samples": 2, "histogram": {"bin_10": 1, "bin_inf": 1},
    }  # fmt: skip
    assert found["c"] == {"name": "c", "tags": {}, "type": "counter", "time_ms": 17_000, "value": 3}
    assert found["own.packets_received"]["type"] == "counter"
    (check,) = records(broker.bootstrap_servers, "metrics-checks")
    assert (check["name"], check["state"], check["message"], check["tags"]) == ("db", "warning", "slow", {"x": "1"})
    keys = {key for key, _ in read_topic(broker.bootstrap_servers, "metrics")}
    assert b"slow.t;bare;env=prod" in keys
    # A gauge is written in each interval, what came once is not.
    assert sum(one["name"] == "slow.t" for one in records(broker.bootstrap_servers)) == 1
    assert sum(one["name"] == "g" for one in records(broker.bootstrap_servers)) > 1


def test_clients_of_others(broker: Broker, tmp_path: Path) -> None:
    packets, streams = str(tmp_path / "packets"), str(tmp_path / "streams")
    doors = {"tcp": True, "unix": packets, "unix_stream": streams}
    with gateway(broker.bootstrap_servers, **doors) as (_, port):
        for client in (statsd.StatsClient("127.0.0.1", port, prefix="py"), statsd.TCPStatsClient("127.0.0.1", port)):
            with client.pipeline() as pipe:
                pipe.incr("hits", 3, rate=1)
                pipe.timing("took", 12)
                pipe.gauge("level", 7)
                pipe.gauge("level", -2, delta=True)
                pipe.set("users", "ada")
            client.close()
        for place in ({"host": "127.0.0.1", "port": port}, {"socket_path": packets}):
            dog(datadog.DogStatsd(**place, disable_telemetry=True))
        dog(datadog.DogStatsd(socket_path=f"unixstream://{streams}", disable_telemetry=True))
        wanted = {"py.hits": 3, "hits": 3, "py.took": 1, "took": 1, "dog.hits": 6, "dog.took": 3, "dog.spread": 3}

        def is_there() -> bool:
            found = totals(broker.bootstrap_servers)
            return {name: found[name] for name in wanted} == wanted

        until(is_there, "all is added up")
        for topic in ("metrics-events", "metrics-checks"):
            until(lambda name=topic: len(records(broker.bootstrap_servers, name)) == 3, f"{topic} has all three")
    latest = {one["name"]: one for one in records(broker.bootstrap_servers)}
    assert (latest["level"]["value"], latest["dog.level"]["value"]) == (5, 9)
    assert latest["dog.hits"]["tags"] == {"env": "test"}
    event = records(broker.bootstrap_servers, "metrics-events")[0]
    assert (event["title"], event["text"], event["alert_type"]) == ("Tïtle", "two\nlines", "error")
    assert records(broker.bootstrap_servers, "metrics-checks")[0]["message"] == "it is m: fine"


def dog(client: Any) -> None:
    tags = ["env:test"]
    client.increment("dog.hits", 2, tags=tags)
    client.timing("dog.took", 5, tags=tags)
    client.distribution("dog.spread", 5, tags=tags)
    client.gauge("dog.level", 9, tags=tags)
    client.event("Tïtle", "two\nlines", alert_type="error", tags=tags)
    client.service_check("dog.up", client.OK, message="it is m: fine", tags=tags)
    client.flush()
    client.close_socket()


# --- what is lost, and what is told of it


def test_what_the_kernel_drops_is_counted(broker: Broker) -> None:
    with gateway(broker.bootstrap_servers, receive_buffer=4096, internal="own") as (one, port):
        with one._lock:  # it is busy
            send(port, *[b"a:1|c"] * 2_000)
        until(lambda: one.kernel_drops > 0 and one.progress.more["packets"] + one.kernel_drops == 2_000, "all count")
        assert one.progress.dropped == one.progress.more["kernel_drops"] == one.kernel_drops
        until(lambda: totals(broker.bootstrap_servers)["own.kernel_drops"] == one.kernel_drops, "it is told")
        assert totals(broker.bootstrap_servers)["a"] == 2_000 - one.kernel_drops


def test_packets_of_several_receivers_are_one_sum(broker: Broker) -> None:
    with gateway(broker.bootstrap_servers, receivers=3) as (_, port):
        for _ in range(30):
            send(port, *[b"a:1|c"] * 10)  # from a port of its own: the kernel chooses by it
        until(lambda: totals(broker.bootstrap_servers)["a"] == 300, "all is added up")


def test_no_more_connections_than_may_be(broker: Broker) -> None:
    with (
        gateway(broker.bootstrap_servers, udp=False, tcp=True, connections=1) as (one, port),
        socket.create_connection(("127.0.0.1", port)) as first,
    ):
        first.sendall(b"a:1|c\n")
        until(lambda: one.progress.connections == 1, "it has the first")
        with socket.create_connection(("127.0.0.1", port)) as second:
            assert second.recv(1) == b""
        until(lambda: one.progress.more.get("connections_refused") == 1, "the second is counted")
        first.sendall(b"a:1|c\n")
        until(lambda: totals(broker.bootstrap_servers)["a"] == 2, "the first is served")


@pytest.mark.parametrize("overload", ["drop-oldest", "block"])
def test_a_broker_that_is_away(tmp_path: Path, overload: str) -> None:
    at = free_port()
    names = [b"n%d-%s:1|c" % (number, b"x" * 800) for number in range(1_500)]  # more than a MiB an interval
    with gateway(f"127.0.0.1:{at}", overload=overload, buffer_mb=1) as (one, port):
        for whole in (1_500, 3_000, 4_500):
            before = one.intervals
            for number in range(0, len(names), 50):
                send(port, b"\n".join(names[number : number + 50]))
            if overload == "drop-oldest":
                until(lambda before=before: one.intervals >= before + 2, "intervals go on")
            until(lambda whole=whole: one.progress.received == whole, "it is taken")
        if overload == "drop-oldest":
            until(lambda: one.progress.dropped > 0, "drops are counted")
        with Broker(tmp_path / "broker", listen=f"127.0.0.1:{at}") as broker:

            def is_there() -> bool:
                return sum(totals(broker.bootstrap_servers).values()) + one.progress.dropped == whole

            until(is_there, "what was not dropped is there")
    assert one.progress.dropped == 0 or overload == "drop-oldest"


def test_a_gateway_that_is_killed_loses_its_interval_and_no_more(broker: Broker, tmp_path: Path) -> None:
    path = str(tmp_path / "packets")

    def start() -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "headrace.cli.main",
            "gateway",
            "statsd",
            "--bootstrap",
            broker.bootstrap_servers,
        ]
        command += ["--no-udp", "--unix", path, "--topic", "metrics", "--interval-s", "0.5", "--internal", "none"]
        command += ["--percentiles", "50", "--name", "killed"]
        made = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(lambda: made.poll() is not None or is_taken(b""), "it listens")
        return made

    def is_taken(packet: bytes) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there, contextlib.suppress(OSError):
            there.sendto(packet, path)
            return True
        return False

    first = start()
    try:
        assert is_taken(b"a:1|c\nlevel:5|g")
        until(lambda: totals(broker.bootstrap_servers)["a"] == 1, "the first interval is written")
        assert is_taken(b"a:10|c")
        first.kill()
        first.wait()
        assert not is_taken(b"a:1|c")
        second = start()
        try:
            assert is_taken(b"a:100|c\nlevel:+1|g")
            until(lambda: totals(broker.bootstrap_servers)["a"] >= 101, "what came after is written")
        finally:
            second.terminate()
            second.wait()
    finally:
        first.kill()
        first.wait()
    written = [one for one in records(broker.bootstrap_servers) if one["name"] == "a"]
    assert sorted(one["value"] for one in written) in ([1, 100], [1, 10, 100])  # the second may just have been written
    assert [one["value"] for one in records(broker.bootstrap_servers) if one["name"] == "level"][-1] == 1
    assert second.returncode == 0


def test_a_gateway_that_is_told_to_end_writes_its_interval(broker: Broker) -> None:
    with gateway(broker.bootstrap_servers, interval_s=600) as (one, port):
        send(port, b"a:5|c")
        until(lambda: one.progress.received == 1, "it has it")
        assert totals(broker.bootstrap_servers) == {}
    (record,) = records(broker.bootstrap_servers)
    assert record["value"] == 5
    assert record["rate"] == pytest.approx(5_000 / (record["end_ms"] - record["start_ms"]), rel=0.2)


def test_what_was_sent_before_the_end_is_written(broker: Broker) -> None:
    with gateway(broker.bootstrap_servers, interval_s=600, tcp=True) as (_, port):
        with socket.create_connection(("127.0.0.1", port)) as sender:
            sender.sendall(b"a:1|c\n" * 200_000)
        send(port, *[b"b:1|c\n" * 100] * 1_000)
    assert totals(broker.bootstrap_servers) == {"a": 200_000, "b": 100_000}


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_an_interval_is_as_long_as_it_was_when_the_clock_jumps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, jump_ms: int
) -> None:
    with gateway(broker.bootstrap_servers, interval_s=600) as (one, port):
        send(port, b"a:5|c")
        until(lambda: one.progress.received == 1, "it has it")
        monkeypatch.setattr(server, "_now_ms", lambda: time.time_ns() // 1_000_000 + jump_ms)
    (record,) = records(broker.bootstrap_servers)
    assert record["rate"] == pytest.approx(5_000 / (record["end_ms"] - record["start_ms"]), rel=0.05)


def test_where_nothing_is_compiled_the_same_is_done(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "look_for", lambda package, what: MissingExtra(package, "statsd"))
    with gateway(broker.bootstrap_servers, tcp=True) as (one, port):
        assert isinstance(one._aggregator, PlainAggregator)
        send(port, b"a:1|c\na:2|c", b"_sc|up|0", b"x" * 9000)
        until(lambda: totals(broker.bootstrap_servers)["a"] == 3, "all is added up")
        until(lambda: records(broker.bootstrap_servers, "metrics-checks"), "the check is there")
        assert one.progress.refused == 1


# --- Prometheus


def test_prometheus_reads_the_same(broker: Broker) -> None:
    port = free_port()
    with gateway(broker.bootstrap_servers, metrics_port=port, percentiles="50 90") as (one, door):
        send(door, b"a.b:1|c|#env:prod", b"a.b:2|c|#zone:x", b"g:7|g", b"s:1|s\ns:2|s", b"t:1:2:3:4|ms|@0.5", b"g:1|c")
        until(lambda: one.intervals > 1 and "a_b_total" in read(port), "it is told")
        send(door, b"a.b:10|c|#env:prod", b"t:5|ms")
        until(lambda: 'a_b_total{env="prod",zone=""} 11.0' in read(port), "counters grow")
        until(lambda: "t_count 9.0" in read(port), "timers grow")
        found = {family.name: family for family in text_string_to_metric_families(read(port))}
    told = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in found.values()
        for sample in family.samples
        if not sample.name.startswith("headrace_")
    }
    assert told == {
        ("a_b_total", ("env", "prod"), ("zone", "")): 11,
        ("a_b_total", ("env", ""), ("zone", "x")): 2,
        ("g_gauge",): 7,
        ("g_counter_total",): 1,
        ("s",): 2,
        ("t", ("quantile", "0.5")): 5,
        ("t", ("quantile", "0.9")): 5,
        ("t_sum",): 25,
        ("t_count",): 9,
    }
    assert found["headrace_statsd_lines"].samples[0].value == 9


def read(port: int) -> str:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return answer.read().decode()
    return ""
