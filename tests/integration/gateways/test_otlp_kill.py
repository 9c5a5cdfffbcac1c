"""The gateway of OTLP and its broker, killed in turn while a client counts its 200s: what was answered so is there."""

import http.client
import json
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from headrace import Broker
from tests.integration.gateways.running import started, wait_for, written
from tests.ports import free_port

KILLS = int(os.environ.get("HEADRACE_KILLS", "4"))


class Exporter(threading.Thread):
    """Sends numbered records, ten a request, and sends what may be sent again as often as it must."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.acknowledged: set[int] = set()
        self.statuses: set[int] = set()
        self.is_over = threading.Event()

    def run(self) -> None:
        first = 0
        while not self.is_over.is_set():
            numbers = range(first, first + 10)
            if self._export(numbers):
                self.acknowledged.update(numbers)
                first = numbers.stop
            else:
                self.is_over.wait(0.05)

    def _export(self, numbers: Sequence[int]) -> bool:
        records = [{"body": {"intValue": str(number)}} for number in numbers]
        body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", "/v1/logs", body, {"content-type": "application/json"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        self.statuses.add(status)
        return status == 200


def test_nothing_that_was_answered_with_200_is_lost(tmp_path: Path) -> None:
    broker_port, port = free_port(), free_port()
    bootstrap = f"127.0.0.1:{broker_port}"
    options = ("--port", str(port), "--logs", "killed", "--timeout-s", "1")

    def broker() -> Broker:
        return Broker(tmp_path / "data", listen=bootstrap, own_process=True).start()

    serving = broker()
    gateway = started("otlp", "killed", bootstrap, *options)
    exporter = Exporter(port)
    exporter.start()
    try:
        for kill in range(KILLS + 1):
            then = len(exporter.acknowledged)
            wait_for(lambda then=then: len(exporter.acknowledged) > then + 100, "records are acknowledged")
            if kill == KILLS:
                break
            if kill % 2:
                os.kill(serving.pid, signal.SIGKILL)
                serving.stop()
                exporter.statuses.clear()
                wait_for(lambda: exporter.statuses & {503}, "it is said that the broker is away")
                serving = broker()
            else:
                gateway.kill()
                gateway.communicate()
                gateway = started("otlp", "killed", bootstrap, *options)
    finally:
        exporter.is_over.set()
        exporter.join()
        gateway.terminate()
        gateway.communicate()
    found = {json.loads(record.value or b"")["body"] for record in written(bootstrap, "killed")}
    serving.stop()
    assert exporter.acknowledged <= found
