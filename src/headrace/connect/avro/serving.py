"""The topic's schemas over HTTP, as a registry of Confluent's would answer: for Spark, for other people's readers.

What serializers and deserializers ask is there: schemas by id, subjects and their versions, a schema made known under a
subject. Compatibility is not checked, and says so (`NONE`). It listens on the loopback interface unless told otherwise,
and knows no passwords.
"""

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.connect.avro.places import TopicSchemas
from headrace.schema_registry import UnknownSchema

_LARGEST_BYTES: Final = 1024 * 1024
_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class _Refusal(Exception):
    """An answer that is an error, in the registry's words: a code of five digits, the first three the status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class SchemaServer:
    """Answers for one cluster; use it in a `with` block, or call `serve`."""

    def __init__(self, cluster: Cluster, host: str = "127.0.0.1", port: int = 0) -> None:
        self._schemas = TopicSchemas(cluster)
        self._lock = threading.Lock()  # a cluster belongs to one thread at a time
        owner = self

        class Handler(_Handler):
            answers = owner

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve, name="headrace-schemas", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """Answer no more; from another thread than the one that serves."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: list[str], body: Any) -> Any:
        """What is asked for, as JSON has it; `body` is None unless something is told."""
        with self._lock:
            match path, body:
                case [], None:
                    return {}
                case ["config"], None:
                    return {"compatibilityLevel": "NONE"}
                case ["schemas", "types"], None:
                    return ["AVRO"]
                case ["schemas", "ids", number], None:
                    return {"schema": self._text(number)}
                case ["subjects"], None:
                    return sorted(self._schemas.subjects())
                case ["subjects", subject, "versions"], None:
                    return list(range(1, len(self._ids(subject)) + 1))
                case ["subjects", subject, "versions", version], None:
                    return self._version(subject, version)
                case ["subjects", subject, "versions"], told:
                    return {"id": self._schemas.register(subject, _schema_in(told))}
                case ["subjects", subject], told if told is not None:
                    return self._known(subject, _schema_in(told))
        raise _Refusal(40400, "there is nothing here")

    def _text(self, number: str) -> str:
        try:
            return self._schemas.look_up(int(number))
        except (ValueError, UnknownSchema):
            raise _Refusal(40403, f"Schema {number} not found") from None

    def _ids(self, subject: str) -> list[int]:
        found = self._schemas.subjects().get(subject)
        if not found:
            raise _Refusal(40401, f"Subject {subject!r} not found")
        return found

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        ids = self._ids(subject)
        number = len(ids) if version in ("latest", "-1") else int(version) if version.isdecimal() else 0
        if not 1 <= number <= len(ids):
            raise _Refusal(40402, f"Version {version} not found")
        schema_id = ids[number - 1]
        return {"subject": subject, "version": number, "id": schema_id, "schema": self._schemas.look_up(schema_id)}

    def _known(self, subject: str, text: str) -> dict[str, Any]:
        for number, schema_id in enumerate(self._ids(subject), 1):
            if self._schemas.look_up(schema_id) == text:
                return {"subject": subject, "version": number, "id": schema_id, "schema": text}
        raise _Refusal(40403, "Schema not found")


def _schema_in(told: Any) -> str:
    try:
        text = told["schema"]
        json.loads(text)
    except (KeyError, TypeError, ValueError):
        raise _Refusal(42201, "Invalid schema: send an object with the schema as a text under 'schema'") from None
    if told.get("schemaType", "AVRO") != "AVRO":
        raise _Refusal(42201, "Only Avro schemas are kept here")
    return str(text)


class _Handler(BaseHTTPRequestHandler):
    answers: SchemaServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._respond(None)

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        # A page in a browser can send anything but this type without asking first.
        if "json" not in self.headers.get("Content-Type", "") or not size.isdecimal() or int(size) > _LARGEST_BYTES:
            self.close_connection = True
            self._send(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, {"error_code": 415, "message": f"send {_TYPE}, up to 1 MiB"})
            return
        try:
            told = json.loads(self.rfile.read(int(size)))
        except ValueError:
            told = {}
        self._respond(told)

    def _respond(self, body: Any) -> None:
        path = [unquote(part) for part in urlsplit(self.path).path.split("/") if part]
        try:
            self._send(HTTPStatus.OK, self.answers.answer(path, body))
        except _Refusal as refusal:
            self._send(HTTPStatus(refusal.code // 100), {"error_code": refusal.code, "message": str(refusal)})
        except ClientError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"error_code": 50003, "message": str(error)})

    def _send(self, status: HTTPStatus, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing: who asks is told, and nobody else wants to know."""
