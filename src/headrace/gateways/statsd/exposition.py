"""`/metrics` of a StatsD gateway, beside `/healthz` and `/readyz`, for whoever may look."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from headrace.gateways.errors import GatewayError
from headrace.gateways.statsd.settings import StatsdSettings
from headrace.serving.access import Access, TokensFile
from headrace.serving.guard import Guard, Site
from headrace.serving.probes import PROBES, nothing_wrong, probe_routes
from headrace.serving.server import AppServer, listening

_MAX_CONNECTIONS: Final = 50


@contextmanager
def serve_metrics(settings: StatsdSettings, render: Callable[[], str]) -> Iterator[str]:
    """Answer while the block lasts; where."""
    access = Access(
        settings.metrics_host,
        tokens=TokensFile(settings.metrics_tokens) if settings.metrics_tokens else None,
        certificate=settings.metrics_certificate,
    )
    assert settings.metrics_port is not None
    bound = listening(access.host, settings.metrics_port, GatewayError)
    port = int(bound.getsockname()[1])

    async def metrics() -> str:
        return await asyncio.to_thread(render)

    app = Starlette(routes=probe_routes(nothing_wrong, metrics=metrics))
    guard = Guard(app, access, port, Site(_refuse, open_paths=PROBES))
    with AppServer(
        guard, bound, name="headrace-statsd-metrics", connections=_MAX_CONNECTIONS, certificate=access.certificate
    ):
        yield access.url(port)


def _refuse(_: Request, status: int, sentence: str) -> Response:
    return PlainTextResponse(sentence + "\n", status)
