"""The topic's schemas over HTTP, as a registry of Confluent's would answer: for Spark, for other people's readers.

What serializers and deserializers ask is there: schemas by id, subjects and their versions, a schema made known under a
subject. Compatibility is not checked, and says so (`NONE`). Who may ask, and who may register, the guard decides.
"""

import asyncio
import json
import threading
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.connect.avro.places import TopicSchemas
from headrace.connect.errors import ConnectError
from headrace.schema_registry import UnknownSchema
from headrace.serving.access import ON_LOOPBACK, Access
from headrace.serving.guard import Guard, Site
from headrace.serving.probes import PROBES, probe_routes
from headrace.serving.server import AppServer, listening

_LARGEST_BYTES: Final = 1024 * 1024
_MAX_CONNECTIONS: Final = 200


class _SchemaResponse(JSONResponse):
    media_type = "application/vnd.schemaregistry.v1+json"


class _Refusal(Exception):
    """An answer that is an error, in the registry's words: its code begins with the status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class SchemaServer(AppServer):
    """Answers for one cluster; `serve` blocks, a `with` block serves from a thread."""

    def __init__(self, cluster: Cluster, port: int = 0, access: Access = ON_LOOPBACK) -> None:
        """Take the port: 0 stands for a free one."""
        self._schemas = TopicSchemas(cluster)
        self._lock = threading.Lock()  # a cluster belongs to one thread at a time
        self._access = access
        bound = listening(access.host, port, ConnectError)
        self.port = int(bound.getsockname()[1])
        anything = Route("/{path:path}", self._respond, methods=["GET", "POST"])
        app = Starlette(routes=[*probe_routes(self._look_ready), anything])
        super().__init__(
            Guard(app, access, self.port, Site(_refuse, open_paths=PROBES, changes=_registers)),
            bound,
            name="headrace-schemas",
            connections=_MAX_CONNECTIONS,
            certificate=access.certificate,
        )

    @property
    def url(self) -> str:
        return self._access.url(self.port)

    async def _look_ready(self) -> dict[str, str]:
        try:
            await asyncio.to_thread(self.answer, ["subjects"], None)
        except ClientError as error:
            return {"cluster": str(error)}
        return {"cluster": ""}

    async def _respond(self, request: Request) -> Response:
        try:
            body = await _read(request) if request.method == "POST" else None
            return _SchemaResponse(await asyncio.to_thread(self.answer, _parts(request), body))
        except _Refusal as refusal:
            return _SchemaResponse({"error_code": refusal.code, "message": str(refusal)}, int(str(refusal.code)[:3]))
        except ClientError as error:
            return _SchemaResponse({"error_code": 50003, "message": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)

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


def _parts(request: Request) -> list[str]:
    # Taken apart before the escapes are read: a subject may hold a slash.
    raw = (request.scope.get("raw_path") or request.url.path.encode()).decode().partition("?")[0]
    return [unquote(part) for part in raw.split("/") if part]


def _registers(request: Request) -> bool:
    """Whether a schema is to be kept; to look one up by its text is a POST as well."""
    return request.method == "POST" and len(_parts(request)) != 2


async def _read(request: Request) -> Any:
    # A page in a browser can send anything but this type without asking first.
    is_json = "json" in request.headers.get("content-type", "")
    body = b""
    if is_json:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST_BYTES:
                break
    if not is_json or len(body) > _LARGEST_BYTES:
        raise _Refusal(415, f"send {_SchemaResponse.media_type}, up to 1 MiB")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return {}


def _refuse(_: Request, status: int, sentence: str) -> Response:
    return _SchemaResponse({"error_code": status, "message": sentence}, status)
