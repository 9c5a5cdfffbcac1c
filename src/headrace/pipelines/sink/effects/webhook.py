"""A sender that posts each record as JSON, with its idempotence key, and signed if there is a secret."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.sink.effects.record import Refused
from headrace.pipelines.sink.tables.errors import SinkMisconfigured

# These answers may be another tomorrow; every other 4xx says that this request will never be taken.
_LATER = frozenset({408, 409, 423, 425, 429})


class WebhookFailed(PipelineError):
    """An attempt that did not arrive, or was answered with an error that may pass."""


@dataclass(frozen=True)
class Webhook:
    """POSTs to `url`. With a secret, `X-Headrace-Signature: sha256=…` is the HMAC of the body.

    A 2xx answer is success, a 4xx that will not change is `Refused`, everything else is tried again. Errors name the
    host only: a path or a query may hold a token.
    """

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SinkMisconfigured("a webhook needs a URL that begins with http:// or https:// and names a host")

    def __call__(self, record: Mapping[str, Any], key: str) -> None:
        """Post one record."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        body = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {**self.headers, "Content-Type": "application/json", "Idempotency-Key": _header(key)}
        if self.secret is not None:
            digest = hmac.new(self.secret.encode(), body, hashlib.sha256).hexdigest()
            headers["X-Headrace-Signature"] = f"sha256={digest}"
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(host, parts.port, timeout=self.timeout_s)
        try:
            connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            raise WebhookFailed(f"no answer from {host}: {type(error).__name__}") from error
        finally:
            connection.close()
        if 200 <= status < 300:
            return
        if 400 <= status < 500 and status not in _LATER:
            raise Refused(f"{host} refused the record with status {status}")
        raise WebhookFailed(f"{host} answered with status {status}")


def _header(key: str) -> str:
    """The key as it is if a header can carry it, else its hash: the same for the same key either way."""
    if key.isascii() and key.isprintable() and len(key) <= 255:
        return key
    return hashlib.sha256(key.encode()).hexdigest()


def webhook(
    url: str, secret: str | None = None, *, timeout_s: float = 30.0, headers: Mapping[str, str] | None = None
) -> Webhook:
    """A sender for `outbox(send=…)`."""
    return Webhook(url, secret, timeout_s, dict(headers or {}))
