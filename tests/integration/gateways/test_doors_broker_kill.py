"""Streams that are not acknowledged while the broker is killed and comes back: all of them are there, each once."""

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.gateways.lines.kind import KIND as LINES
from headrace.gateways.syslog.kind import KIND as SYSLOG
from tests.integration.gateways.running import running, values_of, wait_for
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
