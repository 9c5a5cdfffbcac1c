"""Syslog from real senders (`logger`, Python's handler) by UDP, TCP, TLS and a Unix socket, as records."""

import json
import logging
import logging.handlers
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.gateways.syslog.kind import KIND
from tests.certificates import make_authority, make_certificate
from tests.integration.gateways.running import checked, running, values_of, wait_for, written
from tests.ports import free_port


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


def log(*arguments: str) -> None:
    subprocess.run(["logger", *arguments], check=True, capture_output=True, timeout=30)


def messages(bootstrap: str, topic: str, count: int) -> list[dict[str, Any]]:
    wait_for(lambda: len(values_of(bootstrap, topic)) >= count, f"{count} messages in {topic}")
    return [json.loads(value) for value in values_of(bootstrap, topic)]


def test_messages_of_logger_in_each_form_by_each_way(bootstrap: str, tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with running(KIND, bootstrap, "logger", port=0, udp_port=0, unix=path, key="app", header="from") as gateway:
        tcp = ("--server", "127.0.0.1", "--tcp", "--port", str(gateway.port))
        udp = ("--server", "127.0.0.1", "--udp", "--port", str(gateway.udp_port))
        here = ("--socket", path)
        sent = 0
        for way in (tcp, udp):
            for form in ("--rfc5424", "--rfc3164"):
                log(*way, form, "-t", "tests", "-p", "local3.warning", "--id=77", f"message {sent}")
                sent += 1
        log(*tcp, "--octet-count", "--rfc5424", "-t", "tests", "-p", "local3.warning", "--id=77", f"message {sent}")
        log(*here, "-t", "tests", "-p", "local3.warning", "--id=77", f"message {sent + 1}")
        sent += 2
        found = messages(bootstrap, "logger", sent)
        assert sorted(each["message"] for each in found) == [f"message {number}" for number in range(sent)]
        for each in found:
            assert (each["facility"], each["severity"], each["level"]) == (19, 4, "warning")
            assert (each["app"], each["process_id"]) == ("tests", "77")
            assert each["time"].endswith("Z")
        records = written(bootstrap, "logger")
        assert {record.key for record in records} == {b"tests"}
        assert {header.value for record in records for header in record.headers} == {b"127.0.0.1", b"unix"}
        assert gateway.progress.refused == 0
        assert gateway.progress.records == sent


def test_what_was_sent_before_the_end_is_written(bootstrap: str) -> None:
    count = 50_000
    with (
        running(KIND, bootstrap, "ended", port=0) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port)) as sender,
    ):
        sender.sendall(b"".join(b"<13>%d\n" % number for number in range(count)) + b"<13>last")
        sender.shutdown(socket.SHUT_WR)
        wait_for(lambda: gateway.progress.received, "it reads")
    found = [json.loads(value)["message"] for value in values_of(bootstrap, "ended")]
    assert found == [*map(str, range(count)), "last"]


def test_messages_of_pythons_handler(bootstrap: str) -> None:
    with running(KIND, bootstrap, "handler", port=0, udp_port=0) as gateway:
        for kind, port in ((socket.SOCK_STREAM, gateway.port), (socket.SOCK_DGRAM, gateway.udp_port)):
            handler = logging.handlers.SysLogHandler(("127.0.0.1", port), "local0", kind)
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            logger = logging.Logger("shop")  # noqa: LOG001 - of this test alone
            logger.addHandler(handler)
            logger.error("no bread")
            logger.info("ünïcode")
            handler.close()
        found = messages(bootstrap, "handler", 4)
        assert sorted((each["message"], each["level"]) for each in found) == [
            ("shop: no bread", "error"), ("shop: no bread", "error"),
            ("shop: ünïcode", "info"), ("shop: ünïcode", "info"),
        ]  # fmt: skip


def test_a_stream_by_tls_as_rfc_5425_has_it(bootstrap: str, tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    server = make_certificate(tmp_path, "server", "authority", alternative="IP:127.0.0.1")
    with running(KIND, bootstrap, "secret", port=0, certificate=str(server), value="raw") as gateway:
        assert gateway.source == f"tls://127.0.0.1:{gateway.port}"
        context = ssl.create_default_context(cafile=str(authority))
        sent = [b"<165>1 - h a - - - one", b"<165>1 - h a - - - two\nlines"]
        with context.wrap_socket(
            socket.create_connection(("127.0.0.1", gateway.port)), server_hostname="127.0.0.1"
        ) as client:
            client.sendall(b"".join(b"%d %s" % (len(each), each) for each in sent))
            client.unwrap()
        wait_for(lambda: gateway.progress.records == 2, "both are written")
    assert values_of(bootstrap, "secret") == sent


@pytest.mark.parametrize("unreadable", ["drop", "keep"])
def test_what_is_no_message_is_counted_and_harms_nothing(bootstrap: str, unreadable: str) -> None:
    name = f"bad-{unreadable}"
    with running(KIND, bootstrap, name, port=0, udp_port=0, unreadable=unreadable) as gateway:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for sent in (b"no syslog at all", b"<999>too high", b"<13>1 broken", b"", b"<13>good"):
            udp.sendto(sent, ("127.0.0.1", gateway.udp_port))
        wait_for(lambda: gateway.progress.received == 5, "all came")
        assert gateway.progress.refused == 3
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            client.sendall(b"<13>before\nno syslog\n<13>after\n999 <13>cut off")
        wait_for(lambda: gateway.progress.refused == 5, "also the frame that was cut off is counted")
        good = ["<13>good", "<13>before", "<13>after"]
        kept = ["no syslog at all", "<999>too high", "<13>1 broken", "no syslog"] * (unreadable == "keep")
        found = messages(bootstrap, name, len(good) + len(kept))
        assert sorted(each["message"] for each in found) == sorted([*(text[4:] for text in good), *kept])
        udp.close()


def test_a_broker_that_is_away_slows_streams_down_and_datagrams_are_dropped_and_counted(bootstrap: str) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with running(KIND, nobody, "away", port=0, udp_port=0, buffer_mb=1) as gateway:
        message = b"<13>" + b"x" * 1000
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(60_000):
            udp.sendto(message, ("127.0.0.1", gateway.udp_port))
        wait_for(lambda: gateway.progress.waiting, "it waits for the broker")
        assert gateway._inlet.bytes_waiting <= 2**20
        # What is counted as dropped is read with the next batch: there is none while there is no room.
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=0.5) as client:
            sent = 0
            try:
                while sent < 64 * 2**20:
                    sent += client.send((message + b"\n") * 64)
            except TimeoutError:
                pass
            assert sent < 20 * 2**20
        udp.close()
        assert gateway._inlet.bytes_waiting <= 2**20


def test_datagrams_that_the_kernel_dropped_are_counted(bootstrap: str) -> None:
    from headrace.gateways.datagrams import Datagrams
    from headrace.gateways.gateway import Progress

    progress = Progress()
    here = Datagrams.udp("127.0.0.1", 0, progress)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sent = 40_000
    for _ in range(sent):
        sender.sendto(b"x" * 1000, ("127.0.0.1", here.port or 0))
    got = 0
    while more := here.receive():
        got += len(more)
    here.close()
    sender.close()
    assert 0 < got < sent
    assert progress.more["kernel_drops"] == sent - got


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"host": "0.0.0.0", "udp_port": 0}, "host 0.0.0.0 can be reached from other machines"),
        ({"zone": "Mars/Base"}, "zone is 'Mars/Base': give a time zone"),
        ({"udp_port": 0, "port": 0, "certificate": "a", "clients": "b"}, "UDP has none"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        checked(KIND, values)
