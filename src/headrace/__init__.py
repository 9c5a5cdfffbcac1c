"""Headrace: stream processing whole, in one `pip install`."""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.client.look import look
    from headrace.connect.changes import changes
    from headrace.gateways import multicast, nng, zeromq
    from headrace.queues import rpc
    from headrace.queues.message import Reject
    from headrace.queues.queue import AsyncQueue, Queue
    from headrace.version import __version__

__all__ = [
    "AsyncQueue", "Broker", "Queue", "Reject", "__version__", "changes", "look", "multicast", "nng", "rpc", "zeromq"
]  # fmt: skip

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "AsyncQueue": "headrace.queues.queue",
        "Broker": "headrace.broker.embedded",
        "Queue": "headrace.queues.queue",
        "Reject": "headrace.queues.message",
        "changes": "headrace.connect.changes",
        "look": "headrace.client.look",
        "multicast": "headrace.gateways.multicast",
        "nng": "headrace.gateways.nng",
        "rpc": "headrace.queues.rpc",
        "zeromq": "headrace.gateways.zeromq",
        "__version__": "headrace.version",
    },
)
