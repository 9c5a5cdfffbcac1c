"""What every gateway must do, done by that of OTLP."""

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.testing.contracts.gateway import InwardGatewayContract


def posted(section: Mapping[str, Any], body: bytes, encoding: str = "application/json") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", section["port"], timeout=20)
    try:
        connection.request("POST", "/v1/logs", body, {"content-type": encoding})
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise ConnectionError from error
    finally:
        connection.close()


class TestOtlp(InwardGatewayContract):
    kind = "otlp"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"logs": topic, "port": port}

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        records = [{"body": {"stringValue": each.decode()}} for each in messages]
        said = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
        if posted(section, json.dumps(said).encode()) != 200:
            raise ConnectionError("send again")

    def found(self, bootstrap: str) -> list[bytes]:
        return [json.loads(value)["body"].encode() for value in super().found(bootstrap)]

    def send_bad(self, section: Mapping[str, Any]) -> int:
        assert posted(section, b"no JSON") == 400
        assert posted(section, b"\xff\xff", "application/x-protobuf") == 400
        assert posted(section, b"{}", "text/html") == 415
        return 3
