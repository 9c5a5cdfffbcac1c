"""What every gateway must do, done by that of HTTP."""

import http.client
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from headrace.testing.contracts.gateway import TOPIC, InwardGatewayContract, Running


def asked(section: Mapping[str, Any], method: str, path: str, body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", section["port"], timeout=20)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise ConnectionError from error
    finally:
        connection.close()


class TestHttp(InwardGatewayContract):
    kind = "http"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"produce": [topic], "consume": [topic], "port": port}

    def is_listening(self, running: Running) -> bool:
        return bool(running.gateway.progress.more.get("url"))

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        records = [{"value": each.decode(), "value_encoding": "text"} for each in messages]
        if asked(section, "POST", f"/produce/{TOPIC}", json.dumps(records).encode()) != 200:
            raise ConnectionError("send again")

    def send_bad(self, section: Mapping[str, Any]) -> int:
        assert asked(section, "POST", f"/produce/{TOPIC}", b"{") == 400
        assert asked(section, "POST", f"/produce/{TOPIC}", b'{"value": 1, "partition": 99}') == 404
        assert asked(section, "POST", "/produce/other", b'{"value": 1}') == 403
        assert asked(section, "GET", f"/consume/{TOPIC}?from=x") == 400
        assert asked(section, "POST", f"/topics/{TOPIC}", b"[]") == 422
        with suppress(OSError):
            asked(section, "POST", "/\x7f", b"")
        return 5
