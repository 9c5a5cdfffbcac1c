"""An HTTP gateway for tests: in a thread of this process, or as a process that can be killed; and a client of each."""

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.gateways.section import check_section, kind_of
from headrace.section_keys import with_defaults
from tests.integration.cli_runs import COMMAND


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


class Client:
    """Asks over one address."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, sent, given)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def produce(self, topic: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", f"/produce/{topic}", body, **{"content_type": "application/json", **headers})

    def consume(self, topic: str, question: str = "") -> Any:
        found = self.ask("GET", f"/consume/{topic}?{question}")
        assert found.status == 200, found
        return found.json


class Events:
    """Reads server-sent events, one at a time."""

    def __init__(self, client: Client, path: str, timeout_s: float = 60, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=timeout_s)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", path, headers=given)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, (self._answer.status, self._answer.read())
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self.last = ""

    def next(self) -> tuple[str, Any]:
        """The next event; a comment is one of the kind `heartbeat`."""
        fields: dict[str, str] = {}
        while True:
            line = self._answer.readline()
            if not line:
                return "end", None
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                fields.setdefault("event", "heartbeat")
                fields.setdefault("data", "null")
            elif not text and fields:
                self.last = fields.get("id", self.last)
                if "event" in fields:
                    return fields["event"], json.loads(fields["data"])
                fields = {}
            else:
                name, colon, value = text.partition(": ")
                if colon:
                    fields[name] = value

    def records(self, count: int) -> list[Any]:
        found = []
        while len(found) < count:
            kind, told = self.next()
            if kind in ("heartbeat", "live"):
                continue
            assert kind == "record", (kind, told)
            found.append(told)
        return found

    def close(self) -> None:
        self._connection.close()


@contextmanager
def running(bootstrap: str, name: str = "web", **values: Any) -> Iterator[Client]:
    """A gateway in this process."""
    kind, stopping = kind_of("http"), threading.Event()
    section = with_defaults(kind.keys, {"kind": "http", "port": 0, **values})
    check_section(name, section)
    gateway: Any = kind.make(name, section, parse_bootstrap(bootstrap), stopping)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            gateway.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not gateway.url and thread.is_alive():
        thread.join(0.01)
    try:
        if failed:
            raise failed[0]
        client = Client(gateway.url)
        client.gateway, client.thread, client.failed = gateway, thread, failed  # type: ignore[attr-defined]
        yield client
    finally:
        stopping.set()
        thread.join(20)
        assert not thread.is_alive()
    for error in failed:
        raise error


class GatewayProcess:
    """A gateway as a process of its own."""

    def __init__(self, bootstrap: str, port: int, *options: str) -> None:
        self.client = Client(f"http://127.0.0.1:{port}")
        self._command = [*COMMAND, "gateway", "http", "--name", "web", "--port", str(port), "--bootstrap", bootstrap]
        self._command += [*options, "--json"]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=dict(os.environ)
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                self.client.ask("GET", "/healthz")
                return
            except OSError:
                assert self._process.poll() is None, self._process.stderr and self._process.stderr.read()
                time.sleep(0.05)
        raise AssertionError("the gateway did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(20)
        if self._process.stderr:
            self._process.stderr.close()
        return code
