"""What can be wrong with how the dashboard is started or asked."""

from headrace.errors import HeadraceError


class DashboardError(HeadraceError):
    """Something that the dashboard refuses."""


class BadForm(DashboardError):
    """A field of a form that cannot be used as it is."""


class NotThere(DashboardError):
    """Something that the cluster does not have, or not any more."""
