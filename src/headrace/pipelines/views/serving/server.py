"""Serving views on loopback: until it is told to end, or for as long as a `with` block lasts."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

import uvicorn

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster, RetryPolicy
from headrace.client.errors import ClientError
from headrace.pipelines.views.errors import ViewError
from headrace.pipelines.views.serving.app import Service
from headrace.pipelines.views.sink import ViewSink
from headrace.pipelines.views.status import publish

DEFAULT_PORT = 8300
_HOST = "127.0.0.1"
_MAX_CONNECTIONS = 500
_END_WITHIN_S = 2
_TELL_EVERY_S = 30.0
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SERVED = "@serve"  # behind a view's name in the topic of statuses: where it is served


class _Server(uvicorn.Server):
    """Leaves signals alone: uvicorn would raise them once more after its end, and a clean end would look like none."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


class ViewServer:
    """Serves views; `serve` blocks, a `with` block serves from a thread."""

    def __init__(self, views: Mapping[str, ViewSink], port: int = DEFAULT_PORT, bootstrap: str | None = None) -> None:
        """Take the port: 0 stands for a free one. With `bootstrap` the dashboard is told where views are served."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((_HOST, port))
        except OSError as error:
            self._socket.close()
            raise ViewError(f"cannot listen on {_HOST}:{port} ({error.strerror}): choose another --port") from error
        self.port = int(self._socket.getsockname()[1])
        self._views, self._bootstrap = views, bootstrap
        self.service = Service(views, bootstrap)
        self._server = _Server(
            uvicorn.Config(
                self.service.app,
                log_level="error",
                access_log=False,
                server_header=False,
                lifespan="on",
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=_END_WITHIN_S,
            )
        )
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{_HOST}:{self.port}"

    def serve(self) -> None:
        """Serve until SIGTERM or Ctrl-C, or until `stop`."""
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, lambda *_: self.stop()) for number in _ENDING_SIGNALS}
        telling = threading.Thread(target=self._tell, name="headrace-view-served", daemon=True)
        if self._bootstrap:
            telling.start()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()
            self.service.close()
            if self._bootstrap:
                telling.join(_END_WITHIN_S)
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Serve no more; what is open is closed properly."""
        self._ended.set()
        self.service.end_streams()
        self._server.should_exit = True

    def _tell(self) -> None:
        """Where each view is served, every half minute; a broker that is away is asked again the next time."""
        assert self._bootstrap is not None
        is_ended = False
        while not is_ended:
            is_ended = self._ended.is_set()
            with (
                contextlib.suppress(ClientError),
                Cluster(parse_bootstrap(self._bootstrap), retry=RetryPolicy(retries=1)) as cluster,
            ):
                for name, sink in self._views.items():
                    told = {"kind": sink.store.kind, "state": "served", "url": f"{self.url}/views/{name}"}
                    publish(cluster, name + SERVED, None if is_ended else told)
            self._ended.wait(_TELL_EVERY_S)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve, name="headrace-views", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._thread:
            self._thread.join()
