"""The gateway of lines and its broker, killed in turn while a client counts its answers: what had an OK is there."""

import os
import signal
import socket
import threading
from pathlib import Path

from headrace import Broker
from tests.integration.gateways.running import started, values_of, wait_for
from tests.ports import free_port

KILLS = int(os.environ.get("HEADRACE_KILLS", "4"))


class Client(threading.Thread):
    """Sends numbered lines, many in flight, and goes on with another connection when one breaks."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.next = 0
        self.acknowledged: set[int] = set()
        self.refused = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                    self._talk(connection)
            except OSError:
                self.is_over.wait(0.05)

    def _talk(self, connection: socket.socket) -> None:
        said = connection.makefile("rb")
        while not self.is_over.is_set():
            numbers = range(self.next, self.next + 50)
            self.next = numbers.stop
            connection.sendall(b"".join(b"%d\n" % number for number in numbers))
            for number in numbers:
                answer = said.readline()
                if not answer:
                    return
                if answer.startswith(b"OK "):
                    self.acknowledged.add(number)
                else:
                    assert answer.startswith(b"ERR ")
                    self.refused += 1


def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    broker_port, port = free_port(), free_port()

    def broker() -> Broker:
        return Broker(tmp_path / "data", listen=f"127.0.0.1:{broker_port}", own_process=True).start()

    bootstrap = f"127.0.0.1:{broker_port}"
    serving = broker()
    gateway = started("lines", "killed", bootstrap, "--port", str(port), "--ack", "line")
    client = Client(port)
    client.start()
    try:
        for kill in range(KILLS):
            then = len(client.acknowledged)
            wait_for(lambda then=then: len(client.acknowledged) > then + 100, "lines are acknowledged")
            if kill % 2:
                os.kill(serving.pid, signal.SIGKILL)
                serving.stop()
                serving = broker()
            else:
                gateway.kill()
                gateway.communicate()
                gateway = started("lines", "killed", bootstrap, "--port", str(port), "--ack", "line")
        then = len(client.acknowledged)
        wait_for(lambda: len(client.acknowledged) > then + 100, "lines are acknowledged at the end")
    finally:
        client.is_over.set()
        client.join()
        gateway.terminate()
        gateway.communicate()
    found = values_of(bootstrap, "killed")
    serving.stop()
    numbers = [int(value) for value in found]
    assert client.acknowledged <= set(numbers)
    assert len(numbers) == len(set(numbers))  # this client sends none again, and the gateway writes none twice
