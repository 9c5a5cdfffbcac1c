"""`kind = "zeromq"`."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind
from headrace.gateways.messaging.forms import Form
from headrace.gateways.messaging.settings import PUB, PULL, PUSH, SUB, shared_keys
from headrace.section_keys import Key

ROUTER: Final = "router"


def _check(name: str, values: Mapping[str, Any]) -> object:
    from headrace.gateways.zeromq.gateway import ZmqSettings  # what an extra brings is loaded when it is asked for

    return ZmqSettings.of(name, values)


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    from headrace.gateways.zeromq.gateway import make

    return make(name, values, bootstrap, stopping)


KIND: Final = GatewayKind(
    "zeromq",
    "Messages of ZeroMQ into topics (pull, sub, and requests answered when durable), and out of one (push, pub).",
    (
        *shared_keys(
            (PULL, SUB, ROUTER, PUSH, PUB),
            tuple(Form),
            "Into topics: pull, sub, or router, which answers each request of a DEALER or REQ when its record is "
            "durable. Out of a topic: push, or pub.",
        ),
        Key("keys", str, "A file of keys for CURVE, as zeromq.Keys.new().write(…) makes it: encrypt, and let in only "
            "those who know the public one."),
        Key("clients", str, "A file of the public keys of those who may connect, a line each, or a folder of files."),
        Key("server_key", str, "The public key of the listener that is connected to."),
    ),
    _check,
    _make,
    ("zmq",),
)  # fmt: skip
