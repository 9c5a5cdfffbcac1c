"""What the program `logger` sends is read as it was meant."""

import shutil
import socket
import subprocess
import time

import pytest

from headrace.log_formats import read_syslog


@pytest.mark.skipif(not shutil.which("logger"), reason="needs logger, of Debian's bsdutils")
@pytest.mark.parametrize("form", ["--rfc5424", "--rfc3164"])
def test_messages_of_logger(form: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        port = str(receiver.getsockname()[1])
        command = ["logger", "-n", "127.0.0.1", "-P", port, "-d", form, "-t", "web", "--id=77", "-p", "daemon.warning"]
        subprocess.run([*command, "it is [hot]: é"], check=True, timeout=20)
        data = receiver.recv(65536)
    now_ms = time.time_ns() // 1_000_000
    found = read_syslog(data, received_ms=now_ms)
    assert (found.facility, found.severity, found.level) == (3, 4, "warning")
    assert (found.app, found.process_id, found.message) == ("web", "77", "it is [hot]: é")
    assert found.host
    assert found.time is not None
    if form == "--rfc5424":
        assert abs(found.time.timestamp() * 1000 - now_ms) < 60_000
        assert "timeQuality" in found.data
