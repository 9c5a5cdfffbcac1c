"""Serving views on loopback: until it is told to end, or for as long as a `with` block lasts."""

import contextlib
import threading
from collections.abc import Iterator, Mapping

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.errors import ClientError
from headrace.pipelines.views.serving.app import Service
from headrace.pipelines.views.sink import ViewSink
from headrace.serving import AppServer, listening
from headrace.status import EVERY_S, VIEWS, Status, StatusWriter
from headrace.stores.errors import ViewError

DEFAULT_PORT = 8300
_HOST = "127.0.0.1"
_MAX_CONNECTIONS = 500
_END_WITHIN_S = 2
SERVED = "@serve"  # behind a view's name in the topic of statuses: where it is served


class ViewServer(AppServer):
    """Serves views; `serve` blocks, a `with` block serves from a thread."""

    def __init__(self, views: Mapping[str, ViewSink], port: int = DEFAULT_PORT, bootstrap: str | None = None) -> None:
        """Take the port: 0 stands for a free one. With `bootstrap` the dashboard is told where views are served."""
        bound = listening(_HOST, port, ViewError)
        self.port = int(bound.getsockname()[1])
        self._views, self._bootstrap = views, bootstrap
        self.service = Service(views, bootstrap)
        self._ended = threading.Event()
        super().__init__(self.service.app, bound, name="headrace-views", connections=_MAX_CONNECTIONS)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{_HOST}:{self.port}"

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """The dashboard is told, and what views keep open is closed at the end."""
        telling = threading.Thread(target=self._tell, name="headrace-view-served", daemon=True)
        if self._bootstrap:
            telling.start()
        try:
            yield
        finally:
            self._ended.set()
            self.service.close()
            if self._bootstrap:
                telling.join(_END_WITHIN_S)

    def stop(self) -> None:
        """Serve no more; what is open is closed properly."""
        self._ended.set()
        self.service.end_streams()
        super().stop()

    def _tell(self) -> None:
        """Where each view is served, every half minute; a broker that is away is asked again the next time."""
        assert self._bootstrap is not None
        is_ended = False
        while not is_ended:
            is_ended = self._ended.is_set()
            with (
                contextlib.suppress(ClientError),
                Cluster(parse_bootstrap(self._bootstrap), retry=PATIENT.at_most(1)) as cluster,
            ):
                writer = StatusWriter(cluster, VIEWS)
                for name, sink in self._views.items():
                    if is_ended:
                        writer.remove(name + SERVED)
                    else:
                        url = f"{self.url}/views/{name}"
                        writer.write(Status.of(name + SERVED, sink.store.kind, "served", url=url))
            self._ended.wait(EVERY_S)
