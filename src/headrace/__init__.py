"""Headrace: stream processing whole, in one `pip install`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker
    from headrace.client.look import look
    from headrace.connect.changes import changes

    __version__: str

__all__ = ["Broker", "__version__", "changes", "look"]


def __getattr__(name: str) -> Any:
    # Loaded when it is first asked for: most imports of `headrace` are of one part of it alone.
    if name == "Broker":
        from headrace.broker.embedded import Broker

        return Broker
    if name == "changes":
        from headrace.connect.changes import changes

        return changes
    if name == "look":
        from headrace.client.look import look

        return look
    if name == "__version__":
        from headrace.version import version

        return version()
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
