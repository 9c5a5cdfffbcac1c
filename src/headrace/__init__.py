"""Headrace: stream processing whole, in one `pip install`."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker

__version__ = version("headrace")
__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> Any:
    # Loaded when it is first asked for: most imports of `headrace` are of one part of it alone.
    if name == "Broker":
        from headrace.broker.embedded import Broker

        return Broker
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
