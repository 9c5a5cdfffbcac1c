"""Which version of Headrace this is."""

from functools import cache


@cache
def version() -> str:
    """As it was installed; `unknown` where it runs from its sources alone."""
    # Loaded here: it takes as long as a tenth of the broker, and hardly anybody asks.
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("headrace")
    except PackageNotFoundError:
        return "unknown"


def __getattr__(name: str) -> str:
    if name == "__version__":
        return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
