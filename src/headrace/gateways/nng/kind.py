"""`kind = "nng"`."""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.gateways.gateway import Gateway, GatewayKind
from headrace.gateways.messaging.forms import Form
from headrace.gateways.messaging.settings import PUB, PULL, PUSH, RESPONDENT, SUB, shared_keys
from headrace.section_keys import Key

REP: Final = "rep"


def _check(name: str, values: Mapping[str, Any]) -> object:
    from headrace.gateways.nng.gateway import NngSettings  # what an extra brings is loaded when it is asked for

    return NngSettings.of(name, values)


def _make(name: str, values: Mapping[str, Any], bootstrap: Sequence[Address], stopping: Event) -> Gateway:
    from headrace.gateways.nng.gateway import make

    return make(name, values, bootstrap, stopping)


KIND: Final = GatewayKind(
    "nng",
    "Messages of nng (nanomsg) into topics (pull, sub, and requests answered when durable), out of one (push, pub), "
    "and surveys of a topic's latest values.",
    (
        *shared_keys(
            (PULL, SUB, REP, PUSH, PUB, RESPONDENT),
            (Form.MESSAGE, Form.RAW),
            "Into topics: pull, sub, or rep, which answers each request when its record is durable. Out of a topic: "
            "push, pub, or respondent, which answers surveys with the latest value of the key that is asked for.",
        ),
        Key("certificate", str, "A PEM file of a private key and its certificates, for tls+tcp://."),
        Key(
            "clients",
            str,
            "Where it listens: a PEM file of authorities; only those with a certificate of theirs get in.",
        ),
        Key("authorities", str, "Where it connects: a PEM file of the authorities by which the listener is known."),
        Key("server_name", str, "Where it connects: the name in the listener's certificate; by default the host."),
    ),
    _check,
    _make,
    ("pynng",),
)
