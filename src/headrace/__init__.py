"""Headrace: stream processing whole, in one `pip install`."""

from importlib.metadata import version

__version__ = version("headrace")
