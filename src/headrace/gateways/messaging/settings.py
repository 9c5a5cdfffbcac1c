"""What gateways of ZeroMQ and nng can be told alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.inward import inward_keys
from headrace.gateways.messaging.forms import Form
from headrace.gateways.messaging.message import subscription
from headrace.model import check_topic_name
from headrace.section_keys import Key

PULL, SUB, PUSH, PUB, RESPONDENT = "pull", "sub", "push", "pub", "respondent"
OUTWARD: Final = frozenset({PUSH, PUB})
_WAITING_MESSAGES: Final = 1000
_ACK_TIMEOUT_S: Final = 30.0


def shared_keys(sockets: Sequence[str], forms: Sequence[Form], socket_meaning: str) -> tuple[Key, ...]:
    """The keys of both kinds; each adds its own for encryption."""
    and_topic = ", topic (two frames, topic and value)" if Form.TOPIC in forms else ""
    return (
        Key("socket", str, socket_meaning, is_needed=True, choices=tuple(sockets)),
        Key("listen", list, "Where to listen: tcp://127.0.0.1:5555, ipc:///run/app/orders.ipc."),
        Key("connect", list, "Where to connect to, as an alternative to listen or besides."),
        Key("topic", str, "The topic; by default one with the gateway's name.", check=check_topic_name),
        Key("topics", list, "Into topics: those that a message may name itself; all others go to topic."),
        Key("form", str, f"How messages stand on the wire: message (key, value, headers, time, topic), raw (the value "
            f"alone, for plain programs){and_topic}.", Form.MESSAGE.value, choices=tuple(form.value for form in forms)),
        Key("key", str, "Into topics: the key of a record, the message's own or its topic.", "message",
            choices=("message", "topic")),
        Key("subscribe", list, "For sub: the topics, as orders, orders.* or *, which is all."),
        Key("from", str, "Out of a topic: where the first start of all begins; later ones go on where it was.",
            choices=("start", "end")),
        Key("high_water_mark", int, "How many messages wait in the socket for whoever is slow; with acks, how many are "
            "not acknowledged at a time.", _WAITING_MESSAGES, least=1, most=8192),
        Key("acks", str, "For push: where to listen for acknowledgements; what is not acknowledged is sent again."),
        Key("ack_timeout", float, "After how many seconds a message that was not acknowledged is sent again.",
            _ACK_TIMEOUT_S, least=0.1, most=86_400),
        Key("insecure", bool, "Listen on another host than loopback though anybody there can read and write.", False),
        Key("overload", str, "What happens when records come faster than they are taken: block, drop-newest, "
            "drop-oldest, or fail. By default whoever sends waits; a publisher drops for a slow subscriber.",
            choices=tuple(each.value for each in Overload)),
        *(key for key in inward_keys() if key.name != "overload"),
    )  # fmt: skip


def texts(values: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """A list of texts, none of them empty."""
    given = tuple(values.get(name) or ())
    for each in given:
        if not each or not each.isprintable():
            raise GatewayError(f"[{where}] {name} has a text in it that is empty or not printable: leave it out")
    return given


@dataclass(frozen=True, slots=True)
class SocketSettings:
    """One gateway between a socket and a topic."""

    name: str
    socket: str
    listen: tuple[str, ...]
    connect: tuple[str, ...]
    topic: str
    topics: frozenset[str]
    form: Form
    is_keyed_by_topic: bool
    subscribe: tuple[str, ...]
    is_from_end: bool
    high_water_mark: int
    overload: Overload
    acks: str | None
    ack_timeout_s: float
    is_insecure: bool

    @property
    def places(self) -> str:
        return ", ".join(self.listen + self.connect)

    @property
    def end(self) -> str:
        """The socket and its places, for people."""
        return f"{self.socket} {self.places}"

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> Self:
        """From a section with its defaults; raises the first thing that is wrong."""
        where = f"gateways.{name}"
        socket = values["socket"]
        topic = values.get("topic") or name
        check_topic_name(topic)
        topics = texts(values, "topics", where)
        for each in topics:
            check_topic_name(each)
        subscribe = texts(values, "subscribe", where)
        for each in subscribe:
            subscription(each)
        is_outward = socket in OUTWARD
        form = Form(values["form"])
        overload = Overload(values.get("overload") or default_overload(socket))
        acks = values.get("acks") or None
        for key, is_set, is_right in (
            ("topics", bool(topics), not is_outward and socket != RESPONDENT),
            ("subscribe", bool(subscribe), socket == SUB),
            ("from", bool(values.get("from")), is_outward),
            ("acks", acks is not None, socket == PUSH),
        ):
            if is_set and not is_right:
                raise GatewayError(f"[{where}] {key} says nothing to a gateway with socket = {socket!r}: leave it out")
        if acks is not None and form is not Form.MESSAGE:
            raise GatewayError(
                f'[{where}] acks needs form = "message", whose session and sequence are acknowledged: leave out form, '
                "or acks"
            )
        if is_outward and overload in (Overload.FAIL, Overload.DROP_OLDEST):
            raise GatewayError(
                f"[{where}] overload = {overload.value!r} cannot be for what goes out of a topic, where records stay: "
                "choose block or drop-newest"
            )
        return cls(
            name, socket, texts(values, "listen", where), texts(values, "connect", where), topic, frozenset(topics),
            form, values["key"] == "topic", subscribe or ("*",), (values.get("from") or default_start(socket)) == "end",
            values["high_water_mark"], overload, acks, float(values["ack_timeout"]), bool(values["insecure"]),
        )  # fmt: skip


def default_overload(socket: str) -> Overload:
    """A publisher is for all, and one that is slow must not hold the others up."""
    return Overload.DROP_NEWEST if socket == PUB else Overload.BLOCK


def default_start(socket: str) -> str:
    """What is published is for those who are there; what is pushed, for somebody."""
    return "end" if socket == PUB else "start"
