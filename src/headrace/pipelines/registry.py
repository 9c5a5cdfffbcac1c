"""Look-ups in a schema registry that speaks Confluent's interface: `GET /schemas/ids/{id}`.

A schema never changes under its id, so each is asked for once. A user and a password may stand in the URL or be given
apart; neither is ever shown in an error.
"""

import base64
import http.client
import json
import ssl
import threading
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace.pipelines.columns.avro_schema import UnknownSchema
from headrace.pipelines.errors import PipelineError

_LARGEST = 16 * 1024 * 1024  # an answer longer than this is not a schema
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryError(PipelineError):
    """A schema cannot be had from the registry."""

    def __init__(self, text: str, schema_id: int | None = None) -> None:
        super().__init__(text)
        self.schema_id = schema_id


class NoSuchSchema(RegistryError, UnknownSchema):
    """The registry answers, and has no schema with this id."""


class SchemaRegistry:
    """Gives a schema's text for its id; call it, from any thread."""

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._url, told = _split(url)
        if user is not None:
            told = f"{user}:{password or ''}"
        self._headers = {"Accept": _ACCEPT}
        if told is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(told.encode()).decode()
        self._timeout_s = timeout_s
        self._known: dict[int, str] = {}
        self._lock = threading.Lock()
        # A redirect could carry the password to another host, or the question to a file; a registry needs none.
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.ProxyHandler()]
        if self._url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_trust(ca_file)))
        self._opener = urllib.request.build_opener(*handlers)

    def __call__(self, schema_id: int) -> str:
        """The text of the schema with this id; raises `RegistryError`."""
        with self._lock:
            if schema_id not in self._known:
                self._known[schema_id] = self._ask(schema_id)
            return self._known[schema_id]

    def _ask(self, schema_id: int) -> str:
        request = urllib.request.Request(f"{self._url}/schemas/ids/{schema_id}", headers=self._headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                data = answer.read(_LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                missing = error.code == http.HTTPStatus.NOT_FOUND
                kind = NoSuchSchema if missing else RegistryError
                raise kind(self._refused(schema_id, error.code), schema_id) from None
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError; so are time-outs and TLS
            why = getattr(error, "reason", None) or error
            raise RegistryError(
                f"the schema registry at {self._url} does not answer ({why}): check schemaRegistry and that it runs",
                schema_id,
            ) from None
        return self._schema_in(data, schema_id)

    def _refused(self, schema_id: int, status: int) -> str:
        if status == http.HTTPStatus.NOT_FOUND:
            return f"the schema registry at {self._url} has no schema with the id {schema_id}"
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            return f"the schema registry at {self._url} refuses us (HTTP {status}): check the user and the password"
        return f"the schema registry at {self._url} answers HTTP {status} when asked for the schema {schema_id}"

    def _schema_in(self, data: bytes, schema_id: int) -> str:
        try:
            text = json.loads(data)["schema"]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str) or len(data) > _LARGEST:
            raise RegistryError(
                f"what answers at {self._url} is not a schema registry: it gives no schema for the id {schema_id}",
                schema_id,
            )
        return text


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_more: object) -> None:
        return None


def _split(url: str) -> tuple[str, str | None]:
    """The URL without its secrets, and the user with the password if it has them."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RegistryError("the schema registry's URL cannot be read: write it as http://host:8081") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RegistryError("the schema registry's URL must begin with http:// or https:// and name a host")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    plain = urlunsplit((parts.scheme, host if port is None else f"{host}:{port}", parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return plain, None
    return plain, f"{unquote(parts.username)}:{unquote(parts.password or '')}"


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise RegistryError(f"the CA file {ca_file!r} cannot be read: {error}") from None
