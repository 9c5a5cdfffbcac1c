"""nng, the successor of nanomsg: two Python programs that speak to each other without a broker, and gateways to topics.

    from headrace import nng

`sockets.py` publishes and subscribes, pushes and pulls, and has pairs and buses; `requests.py` asks one or everybody;
`wire.py` is a socket of the library with its options. `kind.py` is the gateway.

What always holds: a socket belongs to one thread and one process, and says so; another host than loopback is listened
at only with certificates, or if that is said; and what is dropped is counted, here or by whoever missed it.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.gateways.gateway import Overload
    from headrace.gateways.messaging.calls import RemoteError, Request
    from headrace.gateways.messaging.ends import NotYours, Overfull, TimedOut
    from headrace.gateways.messaging.message import InvalidMessage, Message, decode, encode
    from headrace.gateways.nng.requests import Requester, Respondent, Responder, Surveyor
    from headrace.gateways.nng.sockets import Bus, Pair, Publisher, Puller, Pusher, Subscriber
    from headrace.gateways.nng.wire import TlsClient, TlsServer

__all__ = [
    "Bus",
    "InvalidMessage",
    "Message",
    "NotYours",
    "Overfull",
    "Overload",
    "Pair",
    "Publisher",
    "Puller",
    "Pusher",
    "RemoteError",
    "Request",
    "Requester",
    "Respondent",
    "Responder",
    "Subscriber",
    "Surveyor",
    "TimedOut",
    "TlsClient",
    "TlsServer",
    "decode",
    "encode",
]  # fmt: skip

_SHARED = "headrace.gateways.messaging"
__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "Bus": "headrace.gateways.nng.sockets",
        "InvalidMessage": f"{_SHARED}.message",
        "Message": f"{_SHARED}.message",
        "NotYours": f"{_SHARED}.ends",
        "Overfull": f"{_SHARED}.ends",
        "Overload": "headrace.gateways.gateway",
        "Pair": "headrace.gateways.nng.sockets",
        "Publisher": "headrace.gateways.nng.sockets",
        "Puller": "headrace.gateways.nng.sockets",
        "Pusher": "headrace.gateways.nng.sockets",
        "RemoteError": f"{_SHARED}.calls",
        "Request": f"{_SHARED}.calls",
        "Requester": "headrace.gateways.nng.requests",
        "Responder": "headrace.gateways.nng.requests",
        "Respondent": "headrace.gateways.nng.requests",
        "Subscriber": "headrace.gateways.nng.sockets",
        "Surveyor": "headrace.gateways.nng.requests",
        "TimedOut": f"{_SHARED}.ends",
        "TlsClient": "headrace.gateways.nng.wire",
        "TlsServer": "headrace.gateways.nng.wire",
        "decode": f"{_SHARED}.message",
        "encode": f"{_SHARED}.message",
    },
)
