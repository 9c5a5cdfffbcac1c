"""A schema registry that speaks Confluent's interface: schemas made known there, and looked up.

Looking up is what pipelines do as well, and is theirs; here it only learns to tell what may pass from what stays.
"""

import http.client
import json
import urllib.error
import urllib.request
from http import HTTPStatus
from urllib.parse import quote

from headrace.connect.avro.errors import SchemaRefused, SchemasUnavailable, UnknownSchemaId
from headrace.connect.errors import InvalidConnectSetting
from headrace.pipelines.registry import NoSuchSchema, RegistryError, SchemaRegistry

_PASSING = (
    HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
)  # fmt: skip


class Registry(SchemaRegistry):
    """Makes schemas known, and looks them up; from any thread."""

    def __init__(self, url: str) -> None:
        try:
            super().__init__(url)
        except RegistryError as error:
            raise InvalidConnectSetting("registry", "…", str(error)) from None
        self._ids: dict[tuple[str, str], int] = {}

    def look_up(self, schema_id: int) -> str:
        """The text of a schema."""
        try:
            return self(schema_id)
        except NoSuchSchema:
            raise UnknownSchemaId(schema_id, f"the schema registry at {self._url}") from None
        except RegistryError as error:
            raise SchemasUnavailable(str(error)) from None

    def register(self, subject: str, text: str) -> int:
        """The id of a schema under this subject, which is made known if it is not."""
        known = self._ids.get((subject, text))
        if known is None:
            known = self._ids[subject, text] = self._ask_for_id(subject, text)
        return known

    def _ask_for_id(self, subject: str, text: str) -> int:
        request = urllib.request.Request(  # noqa: S310 - its scheme was checked
            f"{self._url}/subjects/{quote(subject, safe='')}/versions",
            data=json.dumps({"schema": text}).encode(),
            headers={**self._headers, "Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return int(json.loads(answer.read())["id"])
        except urllib.error.HTTPError as error:
            with error:
                raise self._not_taken(subject, error.code, error.read(10_000)) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise SchemasUnavailable(
                f"the schema registry at {self._url} does not answer ({why}): check registry and that it runs"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise SchemaRefused(f"what answers at {self._url} is not a schema registry: it gives no id") from None

    def _not_taken(self, subject: str, status: int, body: bytes) -> SchemaRefused | SchemasUnavailable:
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return SchemaRefused(
                f"the schema registry at {self._url} refuses us (HTTP {status}): check the user and the password"
            )
        said = _said(body)
        if status in _PASSING:
            return SchemasUnavailable(f"the schema registry at {self._url} answers HTTP {status}{said}")
        mend = "set the subject's compatibility to NONE or BACKWARD, or write to another topic"
        if status != HTTPStatus.CONFLICT:
            mend = "look at what the registry allows"
        return SchemaRefused(
            f"the schema registry at {self._url} does not take the schema of {subject} (HTTP {status}{said}): {mend}"
        )


def _said(body: bytes) -> str:
    try:
        return f", {' '.join(str(json.loads(body)['message']).split())[:300]}"
    except (ValueError, KeyError, TypeError):
        return ""
