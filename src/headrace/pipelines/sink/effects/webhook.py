"""The sender of webhooks as an outbox calls it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.http_client import InvalidServer
from headrace.pipelines.sink.effects.record import Refused
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.webhook.sender import Sender, WebhookRefused


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
        self._sender()

    def __call__(self, record: Mapping[str, Any], key: str) -> None:
        """Post one record."""
        sender = self._sender()
        try:
            sender.post(record, _header(key))
        except WebhookRefused as error:
            raise Refused(str(error)) from error
        finally:
            sender.close()

    def _sender(self) -> Sender:
        try:
            return Sender(self.url, self.secret, timeout_s=self.timeout_s, headers=self.headers)
        except InvalidServer as error:
            raise SinkMisconfigured(f"a webhook's URL {error}") from None


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
