"""The gateway at work: a server that listens, and inlets that write.

What always holds: it listens before anything else is done, and answers also while the broker is away; at its end
listeners are let go with the places that they reached, and what was taken in is written if the broker takes it in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from starlette.requests import Request

from headrace.client.address import Address
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Progress
from headrace.gateways.http.app import SHOWN_HEADERS, Service
from headrace.gateways.http.settings import HttpSettings
from headrace.gateways.inlet import Inlet
from headrace.serving.access import Access
from headrace.serving.answers import refuse
from headrace.serving.guard import Guard, Site, changes_by_method
from headrace.serving.probes import PROBES
from headrace.serving.server import AppServer, listening

_LOOK_S: Final = 0.2
_LAST_S: Final = 1.0
_CONSUMERS: Final = "/consumers"


def _changes(request: Request) -> bool:
    """A consumer of the REST proxy's kind reads, though it is made and asked by POST."""
    return changes_by_method(request) and not request.scope["path"].startswith(_CONSUMERS)


@dataclass(slots=True)
class HttpGateway:
    """One gateway."""

    settings: HttpSettings
    access: Access
    bootstrap: Sequence[Address]
    stopping: Event
    progress: Progress = field(default_factory=Progress)
    url: str = ""

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def source(self) -> str:
        return self.url or self.access.url(self.settings.port)

    @property
    def target(self) -> str:
        return ", ".join(self.settings.produce)

    def run(self) -> None:
        settings = self.settings
        bound = listening(self.access.host, settings.port, GatewayError)
        port = int(bound.getsockname()[1])
        self.url = self.access.url(port)
        self.progress.more["url"] = self.url
        inlet = Inlet(
            self.bootstrap, settings.name, self.progress, settings.limit_bytes, settings.overload, settings.codec
        )
        service = Service(settings, self.bootstrap, self.progress, inlet)
        site = Site(refuse, open_paths=PROBES, changes=_changes, origins=settings.origins, shown_headers=SHOWN_HEADERS)
        server = AppServer(
            Guard(service.app, self.access, port, site),
            bound,
            name=f"headrace-http-{settings.name}",
            connections=settings.connections,
            certificate=self.access.certificate,
            message_bytes=settings.body_bytes,
        )
        inlet.start()
        try:
            with server:
                while not self.stopping.wait(_LOOK_S):
                    if not server.is_serving:
                        raise GatewayError(f"the server at {self.url} has ended by itself: see its log")
                    if service.failure is not None:
                        raise service.failure
                service.end_streams()
        finally:
            inlet.close(_LAST_S)
            service.close()
