"""ZeroMQ: two Python programs that speak to each other without a broker, and gateways between ZeroMQ and topics.

    from headrace import zeromq

`sockets.py` publishes and subscribes, pushes and pulls; `requests.py` asks and answers; `curve.py` encrypts and says
who may connect; `wire.py` is a socket of the library with its options. `kind.py` is the gateway.

What always holds: a socket belongs to one thread and one process, and says so; another host than loopback is listened
at only with keys, or if that is said; and what is dropped is counted, here or by whoever missed it.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.gateways.gateway import Overload
    from headrace.gateways.messaging.calls import RemoteError, Request
    from headrace.gateways.messaging.ends import NotYours, Overfull, TimedOut
    from headrace.gateways.messaging.message import InvalidMessage, Message, decode, encode
    from headrace.gateways.zeromq.curve import CurveClient, CurveServer, Keys
    from headrace.gateways.zeromq.requests import Requester, Responder
    from headrace.gateways.zeromq.sockets import Publisher, Puller, Pusher, Subscriber

__all__ = [
    "CurveClient", "CurveServer", "InvalidMessage", "Keys", "Message", "NotYours", "Overfull", "Overload", "Publisher",
    "Puller", "Pusher", "RemoteError", "Request", "Requester", "Responder", "Subscriber", "TimedOut", "decode",
    "encode",
]  # fmt: skip

_SHARED = "headrace.gateways.messaging"
__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "CurveClient": "headrace.gateways.zeromq.curve",
        "CurveServer": "headrace.gateways.zeromq.curve",
        "InvalidMessage": f"{_SHARED}.message",
        "Keys": "headrace.gateways.zeromq.curve",
        "Message": f"{_SHARED}.message",
        "NotYours": f"{_SHARED}.ends",
        "Overfull": f"{_SHARED}.ends",
        "Overload": "headrace.gateways.gateway",
        "Publisher": "headrace.gateways.zeromq.sockets",
        "Puller": "headrace.gateways.zeromq.sockets",
        "Pusher": "headrace.gateways.zeromq.sockets",
        "RemoteError": f"{_SHARED}.calls",
        "Request": f"{_SHARED}.calls",
        "Requester": "headrace.gateways.zeromq.requests",
        "Responder": "headrace.gateways.zeromq.requests",
        "Subscriber": "headrace.gateways.zeromq.sockets",
        "TimedOut": f"{_SHARED}.ends",
        "decode": f"{_SHARED}.message",
        "encode": f"{_SHARED}.message",
    },
)
