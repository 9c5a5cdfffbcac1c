"""`kind = "webhook-sender"`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.durations import positive
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Gateway, GatewayKind
from headrace.gateways.webhook_sender.endpoint import Endpoint, read_endpoint
from headrace.gateways.webhook_sender.gateway import SenderSettings, WebhookSender
from headrace.gateways.webhook_sender.registry import DEFAULT_LOG, DEFAULT_TOPIC
from headrace.model import check_topic_name
from headrace.reach import InvalidNetwork, Reach
from headrace.section_keys import Key


def from_section(name: str, values: Mapping[str, Any]) -> SenderSettings:
    """What a section with its defaults says; raises the first thing that is wrong."""
    where = f"gateways.{name}"
    endpoints: dict[str, Endpoint] = {}
    for each, table in (values.get("endpoints") or {}).items():
        if not isinstance(table, dict):
            raise GatewayError(f"[{where}] endpoints.{each} is no table: write [{where}.endpoints.{each}] and its keys")
        endpoints[each] = read_endpoint(each, table, f"{where}.endpoints.{each}", in_section=True)
    folder = values.get("secrets") or ""
    for endpoint in endpoints.values():
        if endpoint.secret_name and not folder:
            raise GatewayError(f'[{where}] endpoint {endpoint.id} names a secret: write secrets = "FOLDER"')
    if folder and ("\0" in folder or not folder.isprintable()):
        raise GatewayError(f"[{where}] secrets is {folder[:80]!r}: name a folder")
    try:
        reach = Reach.parse(values.get("allow_private") or ())
    except InvalidNetwork as error:
        raise GatewayError(f"[{where}] allow_private: {error}") from None
    return SenderSettings(
        name,
        endpoints,
        values["endpoints_topic"],
        values["log_topic"],
        values["log_mb"] * 1024 * 1024,
        positive(values["log_for"], f"[{where}] log_for") // 1000,
        str(Path(folder)) if folder else "",
        reach,
    )


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    return WebhookSender(from_section(name, values), bootstrap, stopping)


KIND: Final = GatewayKind(
    "webhook-sender",
    "Records of topics to registered endpoints of others: signed, tried again, logged, each at least once.",
    (
        Key("endpoints", dict, "Endpoints, each a table with the keys of headrace webhook add, and secret_file or "
            "secret_env in place of secret_name.", is_secret=True),
        Key("endpoints_topic", str, "The compacted topic with the endpoints that headrace webhook adds and changes.",
            DEFAULT_TOPIC, check=check_topic_name),
        Key("secrets", str, "The folder with a file for each secret_name, as headrace webhook secret writes them."),
        Key("allow_private", list, "Networks that endpoints may be in though they are not public: 10.1.0.0/16, "
            "127.0.0.1, or any."),
        Key("log_topic", str, "Where each attempt is logged.", DEFAULT_LOG, check=check_topic_name),
        Key("log_mb", int, "How many MiB of the log are kept.", 256, least=1, most=1024 * 1024),
        Key("log_for", str, "For how long the log is kept.", "7 days"),
    ),
    from_section,
    _make,
)  # fmt: skip
