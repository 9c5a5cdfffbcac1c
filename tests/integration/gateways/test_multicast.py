"""Groups and topics on loopback: the contract of gateways both ways, late joiners, kills, overload."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headrace.gateways.multicast import Group, Publisher, Subscriber
from headrace.testing.contracts.gateway import InwardGatewayContract, OutwardGatewayContract, Running

ADDRESS = "239.255.43.1"


class TestInward(InwardGatewayContract):
    kind = "multicast"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"direction": "in", "topic": topic, "group": f"{ADDRESS}:{port}"}

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        with Publisher(section["group"]) as publisher:
            for message in messages:
                publisher.publish(message)

    def send_bad(self, section: Mapping[str, Any]) -> int:
        group = Group.parse(section["group"])
        bad = [b"", b"hello", b"HM", b"HM\x01\x01" + b"\0" * 30, b"HM\x09\x01" + b"\0" * 60, b"\xff" * 1_400]
        with group.open_data_sender() as sender:
            for datagram in bad:
                sender.sendto(datagram, group.data_address)
        return len(bad)

    def is_listening(self, running: Running) -> bool:
        return running.gateway._subscriber is not None


class TestOutward(OutwardGatewayContract):
    kind = "multicast"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"direction": "out", "topic": topic, "group": f"{ADDRESS}:{port}"}

    @contextlib.contextmanager
    def receiving(self, section: Mapping[str, Any]) -> Iterator[Callable[[], list[bytes]]]:
        found: list[bytes] = []
        with Subscriber(section["group"]) as subscriber:
            thread = threading.Thread(
                target=lambda: found.extend(each.value or b"" for each in subscriber), daemon=True
            )
            thread.start()

            def seen() -> list[bytes]:
                return list(found)

            yield seen
        thread.join()
