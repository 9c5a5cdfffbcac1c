"""Headrace: stream processing whole, in one `pip install`."""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.client.look import look
    from headrace.connect.changes import changes
    from headrace.version import __version__

__all__ = ["Broker", "__version__", "changes", "look"]

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "Broker": "headrace.broker.embedded",
        "changes": "headrace.connect.changes",
        "look": "headrace.client.look",
        "__version__": "headrace.version",
    },
)
