"""What `kind = "grpc"` can be told: where to listen, who may do what, and how much of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.grpc.errors import CallFailed, Code
from headrace.gateways.inward import inward_keys
from headrace.model import InvalidTopicName, check_topic_name
from headrace.section_keys import Key, port
from headrace.serving.access_keys import check_access

DEFAULT_PORT: Final = 50051
_MEBIBYTE: Final = 1024 * 1024

GRPC_KEYS: Final = (
    Key("host", str, "Where to listen; another than loopback needs tokens or clients' certificates.", "127.0.0.1"),
    port("port", "The port; 0 takes a free one.", DEFAULT_PORT),
    Key("produce", list, "The topics that may be written to: names, or patterns with * and ?.", ["*"]),
    Key("consume", list, "The topics that may be read.", ["*"]),
    Key("tokens", str, "A file of tokens, which `headrace user token` writes: who has a read-only one may consume."),
    Key("certificate", str, "A PEM file of a private key and its certificates, to speak TLS."),
    Key("clients", str, "A PEM file of authorities: only who has a certificate that they signed is let in (TLS)."),
    Key("insecure", bool, "Let anybody in who can reach another host than loopback.", False),
    Key("max_message", int, "How many MiB a message may have, in either direction.", 4, least=1, most=512),
    Key("calls", int, "How many calls there may be at once.", 200, least=1, most=100_000),
    Key("consumers", int, "How many of them may consume.", 50, least=1, most=1_000),
    Key("timeout_s", float, "How long a call without a deadline waits for its records to be durable.", 30.0, least=0.1,
        most=3600),
    Key("keepalive_s", float, "After how many seconds of silence a client is asked whether it is still there.", 60.0,
        least=1, most=86_400),
    *inward_keys(Overload.FAIL),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """One server."""

    name: str
    host: str
    port: int
    produce: Sequence[str]
    consume: Sequence[str]
    tokens: str
    certificate: str
    clients: str
    message_bytes: int
    calls: int
    consumers: int
    timeout_s: float
    keepalive_s: float

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> "GrpcSettings":
        """From a section with its defaults; raises the first thing that is wrong."""
        where = f"gateways.{name}"
        clients, certificate = values.get("clients") or "", values.get("certificate") or ""
        if clients and not certificate:
            raise GatewayError(f"[{where}] clients needs TLS: give a certificate as well")
        shown = {**values, "insecure": values["insecure"] or bool(clients), "certificate": ""}
        for _, sentence in check_access(shown, where):
            raise GatewayError(sentence)
        return cls(
            name,
            values["host"],
            values["port"],
            tuple(values["produce"]),
            tuple(values["consume"]),
            values.get("tokens") or "",
            certificate,
            clients,
            values["max_message"] * _MEBIBYTE,
            values["calls"],
            values["consumers"],
            values["timeout_s"],
            values["keepalive_s"],
        )


def check_topic(topic: str, allowed: Sequence[str], doing: str) -> None:
    """Raises `CallFailed` for what is no topic's name, and for what may not be used here."""
    try:
        check_topic_name(topic)
    except InvalidTopicName as error:
        raise CallFailed(Code.INVALID_ARGUMENT, str(error)) from None
    if not is_allowed(topic, allowed):
        raise CallFailed(Code.PERMISSION_DENIED, f"topic {topic!r} may not be {doing} here: see the gateway's keys")


def is_allowed(topic: str, allowed: Sequence[str]) -> bool:
    """What is internal has to be named by what it begins with."""
    return any(
        fnmatchcase(topic, pattern) and (pattern.startswith("__") or not topic.startswith("__")) for pattern in allowed
    )
