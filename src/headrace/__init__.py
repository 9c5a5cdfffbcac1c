"""Headrace: stream processing whole, in one `pip install`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker

    __version__: str

__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> Any:
    # Loaded when it is first asked for: most imports of `headrace` are of one part of it alone.
    if name == "Broker":
        from headrace.broker.embedded import Broker

        return Broker
    if name == "__version__":
        from importlib.metadata import version

        return version("headrace")
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
