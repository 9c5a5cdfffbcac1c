"""What every server of ours answers to whoever watches over it: `/healthz`, `/readyz`, and `/metrics` where it counts.

`/healthz` is answered by whatever is alive and not stuck; one that is not should be started again. `/readyz` says
whether it can serve at the moment, and if not, why. Both are 200 or 503, with a line of JSON, and are open to anybody:
a probe has no login, and learns nothing from them that a connection would not tell.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.telemetry.metrics import CONTENT_TYPE

PROBES: Final = ("/healthz", "/readyz")  # open to anybody
METRICS: Final = "/metrics"

Checks = Mapping[str, str]  # by what was looked at: what is wrong with it, or nothing
Look = Callable[[], Awaitable[Checks]]


async def nothing_wrong() -> Checks:
    """For a server that is alive if it answers at all."""
    return {}


def probe_routes(
    ready: Look, *, alive: Look = nothing_wrong, metrics: Callable[[], Awaitable[str]] | None = None
) -> list[Route]:
    async def healthz(_: Request) -> Response:
        return _answer("alive", "stuck", await alive())

    async def readyz(_: Request) -> Response:
        return _answer("ready", "not ready", await ready())

    async def show(_: Request) -> Response:
        assert metrics is not None
        return Response(await metrics(), headers={"content-type": CONTENT_TYPE})

    routes = [Route(PROBES[0], healthz), Route(PROBES[1], readyz)]
    return [*routes, Route(METRICS, show)] if metrics else routes


def _answer(good: str, bad: str, checks: Checks) -> Response:
    is_good = not any(checks.values())
    told = {"status": good if is_good else bad, "checks": {name: problem or "ok" for name, problem in checks.items()}}
    return Response(json.dumps(told) + "\n", 200 if is_good else 503, media_type="application/json")
