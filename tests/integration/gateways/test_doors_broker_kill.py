"""Streams that are not acknowledged, and the broker, the gateway or the sender is killed: what is there then."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.gateways.lines.kind import KIND as LINES
from headrace.gateways.syslog.kind import KIND as SYSLOG
from tests.integration.gateways.running import running, started, values_of, wait_for
from tests.ports import free_port


@pytest.mark.parametrize(("kind", "values"), [(LINES, {}), (SYSLOG, {"value": "raw"})], ids=["lines", "syslog"])
def test_what_a_stream_sent_is_there_once(tmp_path: Path, kind: Any, values: dict[str, object]) -> None:
    port = free_port()

    def broker() -> Broker:
        return Broker(tmp_path / "data", listen=f"127.0.0.1:{port}", own_process=True).start()

    serving = broker()
    sent: list[bytes] = []
    with running(kind, f"127.0.0.1:{port}", "streamed", port=0, **values) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as client:
            for kill in range(3):
                some = [b"<13>%d.%d " % (kill, number) + b"x" * 100 for number in range(5_000)]
                client.sendall(b"\n".join(some) + b"\n")
                sent += some
                written = gateway.progress.records
                wait_for(lambda written=written: gateway.progress.records > written, "some are written")
                os.kill(serving.pid, signal.SIGKILL)
                serving.stop()
                some = [b"<13>%d.%d away" % (kill, number) for number in range(1_000)]
                client.sendall(b"\n".join(some) + b"\n")
                sent += some
                serving = broker()
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""  # all is durable
        assert gateway.progress.records == len(sent)
    assert sorted(values_of(f"127.0.0.1:{port}", "streamed")) == sorted(sent)
    serving.stop()


@pytest.mark.parametrize("kind", ["lines", "syslog"])
def test_of_a_stream_to_a_gateway_that_is_killed_a_beginning_is_there(tmp_path: Path, kind: str) -> None:
    port = free_port()
    with Broker(tmp_path / "data") as broker:
        options = ("--value", "raw") if kind == "syslog" else ()
        gateway = started(kind, "killed", broker.bootstrap_servers, "--port", str(port), *options)
        number = 0
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client, contextlib.suppress(OSError):
            while True:
                client.sendall(b"".join(b"<13>%d\n" % each for each in range(number, number + 500)))
                number += 500
                if number == 20_000:
                    wait_for(lambda: values_of(broker.bootstrap_servers, "killed"), "some are written")
                    gateway.kill()
        gateway.communicate()
        found = values_of(broker.bootstrap_servers, "killed")
        assert 0 < len(found) <= number
        assert found == [b"<13>%d" % each for each in range(len(found))]


def test_of_a_sender_that_is_killed_what_is_whole_is_there(tmp_path: Path) -> None:
    program = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
    program += "s.sendall(b'5 whole9 only a'); print('sent', flush=True); time.sleep(600)"
    with Broker(durability="os") as broker:
        with running(LINES, broker.bootstrap_servers, "sender", port=0, framing="octets") as gateway:
            sender = subprocess.Popen([sys.executable, "-c", program, str(gateway.port)], stdout=subprocess.PIPE)
            assert sender.stdout is not None
            assert sender.stdout.readline()
            sender.kill()
            sender.communicate()
            wait_for(lambda: gateway.progress.refused == 1, "the frame that is not whole is counted")
        assert values_of(broker.bootstrap_servers, "sender") == [b"whole"]
