"""What every gateway must do, done by those of lines and of syslog."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.testing.contracts.gateway import InwardGatewayContract, Running


def connected(section: Mapping[str, Any]) -> socket.socket:
    return socket.create_connection(("127.0.0.1", section["port"]), timeout=20)


def sent(section: Mapping[str, Any], data: bytes) -> bytes:
    """What is answered to it, once all of it was taken."""
    with connected(section) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        found = b""
        while piece := client.recv(65536):
            found += piece
        return found


class TestLines(InwardGatewayContract):
    kind = "lines"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"topic": topic, "port": port, "framing": "octets", "ack": "line", "max_line": 1000}

    def is_listening(self, running: Running) -> bool:
        return True

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        said = sent(section, b"".join(b"%d %s" % (len(each), each) for each in messages))
        assert said.count(b"OK ") == len(messages), said

    def send_bad(self, section: Mapping[str, Any]) -> int:
        assert sent(section, b"no count").startswith(b"ERR a count and a space")
        assert sent(section, b"1001 " + b"x" * 1001) == b"ERR the line has more than 1000 bytes\n"
        assert sent(section, b"10 cut sho") == b"ERR the stream ended within a frame\n"
        assert sent(section, b"\xff" * 100_000).startswith(b"ERR ")
        return 4


class TestSyslog(InwardGatewayContract):
    kind = "syslog"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"topic": topic, "port": port, "udp_port": port, "value": "raw", "key": "host"}

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        assert sent(section, b"".join(b"%d <13>%s" % (len(each) + 4, each) for each in messages)) == b""

    def found(self, bootstrap: str) -> list[bytes]:
        return [value.removeprefix(b"<13>") for value in super().found(bootstrap)]

    def send_bad(self, section: Mapping[str, Any]) -> int:
        sent(section, b"not syslog\n<192>neither\n20 <13>cut short")
        with socket.socket(type=socket.SOCK_DGRAM) as udp:
            udp.sendto(b"\xff\x00", ("127.0.0.1", section["udp_port"]))
        return 4
