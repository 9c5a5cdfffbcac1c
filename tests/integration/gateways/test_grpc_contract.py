"""What every gateway must do, done by that of gRPC; and nothing acknowledged is lost, whatever is killed."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.gateways.grpc.wire import SERVICE, message
from headrace.testing.contracts.gateway import InwardGatewayContract
from tests.integration.gateways.running import started, values_of, wait_for
from tests.ports import free_port

KILLS = int(os.environ.get("HEADRACE_KILLS", "4"))


def caller(channel: grpc.Channel) -> Any:
    return channel.unary_unary(
        f"/{SERVICE}/Produce", lambda request: request.SerializeToString(), message("ProduceResponse").FromString
    )


def request(topic: str, messages: Sequence[bytes]) -> Any:
    return message("ProduceRequest")(topic=topic, records=[{"value": each} for each in messages])


class TestGrpc(InwardGatewayContract):
    kind = "grpc"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"produce": [topic], "port": port}

    def call(self, section: Mapping[str, Any], asked: Any) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{section['port']}") as channel:
            caller(channel)(asked, timeout=20)

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        try:
            self.call(section, request(section["produce"][0], messages))
        except grpc.RpcError as error:
            raise ConnectionError(error.details()) from error

    def send_bad(self, section: Mapping[str, Any]) -> int:
        for bad in (request("no topic", [b"x"]), request(section["produce"][0], []), request("another", [b"x"])):
            with pytest.raises(grpc.RpcError, match=r"INVALID_ARGUMENT|PERMISSION_DENIED"):
                self.call(section, bad)
        return 3


class Client(threading.Thread):
    """Streams numbered records, and goes on with another call when one ends."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.next = 0
        self.acknowledged: set[int] = set()
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                call = channel.stream_stream(
                    f"/{SERVICE}/ProduceStream", lambda one: one.SerializeToString(),
                    message("ProduceResponse").FromString,
                )  # fmt: skip
                try:
                    for said in call(self.requests(), timeout=60):
                        if not said.HasField("error"):
                            self.acknowledged.add(said.id)
                except grpc.RpcError:
                    self.is_over.wait(0.05)

    def requests(self) -> Iterator[Any]:
        while not self.is_over.wait(0.001):
            number, self.next = self.next, self.next + 1
            yield message("ProduceRequest")(topic="killed", id=number, records=[{"value": b"%d" % number}])


def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    broker_port, port = free_port(), free_port()
    bootstrap = f"127.0.0.1:{broker_port}"

    def broker() -> Broker:
        return Broker(tmp_path / "data", listen=bootstrap, own_process=True).start()

    serving = broker()
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        create_topic(cluster, "killed", partitions=3)
    gateway = started("grpc", "killed", bootstrap, "--port", str(port))
    client = Client(port)
    client.start()
    try:
        for kill in range(KILLS + 1):
            then = len(client.acknowledged)
            wait_for(lambda then=then: len(client.acknowledged) > then + 100, "records are acknowledged")
            if kill == KILLS:
                break
            if kill % 2:
                os.kill(serving.pid, signal.SIGKILL)
                serving.stop()
                serving = broker()
            else:
                gateway.kill()
                gateway.communicate()
                gateway = started("grpc", "killed", bootstrap, "--port", str(port))
    finally:
        client.is_over.set()
        client.join()
        gateway.terminate()
        gateway.communicate()
    found = [int(value) for value in values_of(bootstrap, "killed")]
    serving.stop()
    assert client.acknowledged <= set(found)
    assert len(found) == len(set(found))  # this client sends none again, and the gateway writes none twice
