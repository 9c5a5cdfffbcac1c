"""`kind = "webhook"`."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind
from headrace.gateways.webhooks.settings import WEBHOOK_KEYS, WebhookSettings


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    from headrace.gateways.webhooks.server import WebhookGateway  # what serves is an extra

    return WebhookGateway(WebhookSettings.of(name, values), bootstrap, stopping)


KIND: Final = GatewayKind(
    "webhook",
    "Webhooks of GitHub, Stripe and others into topics: verified, each once, answered when it is durable.",
    WEBHOOK_KEYS,
    WebhookSettings.of,
    _make,
    modules=("starlette", "uvicorn"),
)
