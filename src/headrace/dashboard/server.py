"""Serving the dashboard: until it is told to end, or for as long as a `with` block lasts."""

from dataclasses import replace

from headrace.dashboard.app import Dashboard
from headrace.dashboard.errors import DashboardError
from headrace.dashboard.settings import Settings
from headrace.serving import AppServer, listening

_MAX_CONNECTIONS = 200


class DashboardServer(AppServer):
    """A dashboard that listens; `serve` blocks, a `with` block serves from a thread."""

    def __init__(self, settings: Settings) -> None:
        """Take the port: 0 stands for a free one."""
        bound = listening(settings.host, settings.port, DashboardError)
        self.settings = replace(settings, port=int(bound.getsockname()[1]))
        self.dashboard = Dashboard(self.settings)
        super().__init__(self.dashboard.app, bound, name="headrace-dashboard", connections=_MAX_CONNECTIONS)

    @property
    def url(self) -> str:
        """Where to point a browser, without the token."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{self.settings.port}/"

    @property
    def entry_url(self) -> str:
        """The address that lets a browser in."""
        return f"{self.url}?token={self.settings.token}" if self.settings.token else self.url

    def stop(self) -> None:
        """Serve no more; what is open is closed properly."""
        self.dashboard.end_streams()
        super().stop()
