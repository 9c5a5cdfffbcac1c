"""One record posted to a receiver as JSON, with its idempotency key, and signed if there is a secret.

With a secret, `X-Headrace-Signature: sha256=…` is the HMAC of the body. An answer of 2xx is success, a 4xx that will
not change is a refusal, everything else may be tried again.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.http_client import HttpServer, NoAnswer
from headrace.stores.values import encode_row

_MOST_BYTES: Final = 64 * 1024  # read of an answer, so that the connection can be used again; its status is what counts
_LATER: Final = frozenset({408, 409, 423, 425, 429})  # these answers may be another tomorrow


class WebhookFailed(HeadraceError):
    """A record that did not arrive, or was answered with an error that may pass."""


class WebhookRefused(HeadraceError):
    """A record that the receiver will never take."""


class Sender:
    """Posts records to one URL; any thread may use it."""

    def __init__(
        self,
        url: str,
        secret: str | None = None,
        *,
        timeout_s: float = 30.0,
        headers: Mapping[str, str] | None = None,
        connections: int = 1,
    ) -> None:
        """Raises `InvalidServer` for a URL that cannot be used."""
        self._server = HttpServer(url, timeout_s, headers, connections=connections)
        self._secret = secret

    def post(self, record: Mapping[str, Any], key: str) -> None:
        """Returns when the receiver has it; raises `WebhookFailed` or `WebhookRefused`."""
        body = encode_row(record).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._secret is not None:
            digest = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
            headers["X-Headrace-Signature"] = f"sha256={digest}"
        try:
            answer = self._server.ask("POST", self._server.path, body, headers, most_bytes=_MOST_BYTES)
        except NoAnswer as error:
            raise WebhookFailed(str(error)) from error
        if answer.is_success:
            return
        if 400 <= answer.status < 500 and answer.status not in _LATER:
            raise WebhookRefused(f"{self._server.host} refused the record with status {answer.status}")
        raise WebhookFailed(f"{self._server.host} answered with status {answer.status}")

    def close(self) -> None:
        """Disconnect."""
        self._server.close()
