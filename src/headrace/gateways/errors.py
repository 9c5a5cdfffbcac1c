"""What can be wrong with a gateway, in one sentence each."""

from headrace.errors import HeadraceError


class GatewayError(HeadraceError):
    """A gateway that cannot be: a setting that makes no sense, a place that is not there."""


class NotYours(GatewayError):
    """A socket that belongs to another thread or process, or is closed."""
