"""A schema registry that speaks Confluent's interface: schemas looked up by their id, and registered under a subject.

A schema never changes under its id, so each is asked for once. A user and a password may stand in the URL or be given
apart; neither is ever shown in an error.
"""

import json
import threading
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from headrace.errors import HeadraceError
from headrace.http_client import Answer, HttpServer, InvalidServer, NoAnswer, basic_authorization

_LARGEST_BYTES: Final = 16 * 1024 * 1024  # an answer longer than this is not a schema
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_JSON: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
_NOT_LET_IN: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_PASSING: Final = (
    HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
)  # fmt: skip


class RegistryError(HeadraceError):
    """A registry cannot be used."""

    def __init__(self, text: str, schema_id: int | None = None) -> None:
        super().__init__(text)
        self.schema_id = schema_id


class UnknownSchema(RegistryError):
    """Schemas can be looked up, and there is none with this id."""

    def __init__(self, schema_id: int, where: str) -> None:
        super().__init__(f"{where} has no schema with the id {schema_id}", schema_id)


class RegistryUnavailable(RegistryError):
    """The registry does not answer, or not as one; trying again may help."""


class SchemaRefused(RegistryError):
    """The registry does not take a schema, and will not the next time."""


class SchemaRegistry:
    """The registry at a URL; any thread may ask it."""

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        headers = {"Accept": _ACCEPT}
        if user is not None:
            headers["Authorization"] = basic_authorization(user, password or "")
        try:
            self._server = HttpServer(url, timeout_s, headers, ca_file=ca_file, uses_proxies=True)
        except InvalidServer as error:
            raise RegistryError(f"the schema registry's URL {error}") from None
        self._path = self._server.path.partition("?")[0].rstrip("/")
        self._url = self._server.origin + self._path
        self._where = f"the schema registry at {self._url}"
        self._texts: dict[int, str] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def look_up(self, schema_id: int) -> str:
        """The text of the schema with this id; raises `UnknownSchema` or `RegistryUnavailable`."""
        with self._lock:
            if schema_id not in self._texts:
                self._texts[schema_id] = self._ask_for_text(schema_id)
            return self._texts[schema_id]

    def register(self, subject: str, text: str) -> int:
        """The id of a schema under this subject; raises `SchemaRefused` or `RegistryUnavailable`."""
        known = self._ids.get((subject, text))
        if known is None:
            known = self._ids[subject, text] = self._ask_for_id(subject, text)
        return known

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        try:
            return self._server.ask(
                method, self._path + path, body, _JSON if body else None, most_bytes=_LARGEST_BYTES + 1
            )
        except NoAnswer as error:
            raise RegistryUnavailable(
                f"{self._where} does not answer ({error.reason}): check its URL and that it runs"
            ) from None

    def _ask_for_text(self, schema_id: int) -> str:
        try:
            answer = self._ask("GET", f"/schemas/ids/{schema_id}")
        except RegistryUnavailable as error:
            error.schema_id = schema_id
            raise
        if answer.status == HTTPStatus.NOT_FOUND:
            raise UnknownSchema(schema_id, self._where)
        if answer.status in _NOT_LET_IN:
            raise RegistryUnavailable(self._refuses_us(answer.status), schema_id)
        if not answer.is_success:
            said = f"answers HTTP {answer.status} when asked for the schema {schema_id}"
            raise RegistryUnavailable(f"{self._where} {said}", schema_id)
        text = _field(answer.body, "schema")
        if not isinstance(text, str) or len(answer.body) > _LARGEST_BYTES:
            raise RegistryUnavailable(
                f"what answers at {self._url} is not a schema registry: it gives no schema for the id {schema_id}",
                schema_id,
            )
        return text

    def _ask_for_id(self, subject: str, text: str) -> int:
        body = json.dumps({"schema": text}).encode()
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        if answer.is_success:
            try:
                return int(_field(answer.body, "id"))
            except (ValueError, TypeError):
                raise SchemaRefused(f"what answers at {self._url} is not a schema registry: it gives no id") from None
        if answer.status in _NOT_LET_IN:
            raise SchemaRefused(self._refuses_us(answer.status))
        message = _field(answer.body, "message")
        said = "" if message is None else f", {' '.join(str(message).split())[:300]}"
        if answer.status in _PASSING:
            raise RegistryUnavailable(f"{self._where} answers HTTP {answer.status}{said}")
        mend = "look at what the registry allows"
        if answer.status == HTTPStatus.CONFLICT:
            mend = "set the subject's compatibility to NONE or BACKWARD, or write to another topic"
        raise SchemaRefused(f"{self._where} does not take the schema of {subject} (HTTP {answer.status}{said}): {mend}")

    def _refuses_us(self, status: int) -> str:
        return f"{self._where} refuses us (HTTP {status}): check the user and the password"


def _field(body: bytes, name: str) -> Any:
    try:
        return json.loads(body)[name]
    except (ValueError, KeyError, TypeError):
        return None
