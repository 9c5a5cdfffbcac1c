"""The page of the demo: what the shop's stack does, live, with the story beside it and buttons that kill its parts."""

import asyncio
import json
import os
import secrets
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from database import Customers
from facts import Shop
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.serving import AppServer

HERE = Path(__file__).parent
MORTAL = ("broker", "cdc.shop", "pipelines.shop", "views.keep", "sync.warehouse")
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'"


@dataclass
class Story:
    """What happened, told as it happens."""

    shop: Shop
    customers: Customers
    facts: dict[str, Any] = field(default_factory=dict)
    lines: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=50))
    _killed: dict[str, tuple[int, float]] = field(default_factory=dict)

    def tell(self, text: str, kind: str = "note") -> None:
        """A line more."""
        self.lines.appendleft({"at": time.time(), "text": text, "kind": kind})

    def watch(self, stop: threading.Event) -> None:
        """Look every second, and tell who came back."""
        while not stop.is_set():
            self.facts = self.shop.look()
            for part in self.facts["parts"]:
                killed = self._killed.get(part["name"])
                if killed and part["phase"] == "running" and part["pid"] != killed[0]:
                    del self._killed[part["name"]]
                    self.tell(f"{part['name']} is back after {time.time() - killed[1]:.1f} s", "good")
            stop.wait(1)

    def kill(self, name: str) -> str | None:
        """Kill a part without a warning; None if it cannot be."""
        for part in self.facts.get("parts", ()):
            if part["name"] == name and name in MORTAL and part["pid"] and part["phase"] == "running":
                os.kill(part["pid"], signal.SIGKILL)
                self._killed[name] = (part["pid"], time.time())
                self.tell(f"{name} was killed (kill -9 {part['pid']}) with orders under way", "bad")
                return name
        return None


def application(story: Story, token: str) -> Starlette:
    """The page and what it asks for."""

    async def page(_: Request) -> Response:
        text = (HERE / "page.html").read_text().replace("TOKEN", token)
        return HTMLResponse(text, headers={"Content-Security-Policy": _POLICY})

    async def file(request: Request) -> Response:
        return FileResponse(HERE / request.url.path.strip("/"))

    async def live(request: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            while not await request.is_disconnected():
                told = story.facts | {"story": list(story.lines), "buying": story.customers.running.is_set(),
                                      "late": story.customers.late}  # fmt: skip
                yield f"data: {json.dumps(told, default=str)}\n\n"
                await asyncio.sleep(1)

        return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def act(request: Request) -> Response:
        if not secrets.compare_digest(request.headers.get("x-token", ""), token):
            return JSONResponse({"error": "this page may not do that: load it anew"}, 403)
        what = request.path_params["what"]
        if what == "pause":
            story.customers.running.clear()
            story.tell("customers rest: now every side must come to the same figures")
        elif what == "buy":
            story.customers.running.set()
            story.tell("customers buy again")
        elif story.kill(what) is None:
            return JSONResponse({"error": f"{what} does not run right now: wait until it is back"}, 409)
        return JSONResponse({})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/page.css", file),
            Route("/page.js", file),
            Route("/live", live),
            Route("/do/{what:str}", act, methods=["POST"]),
        ],
        # A page from elsewhere that a name server points here is not let in.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
    )


def served(story: Story, bound: socket.socket) -> AppServer:
    """The page, on a socket that has its port."""
    return AppServer(application(story, secrets.token_urlsafe(16)), bound, name="page", connections=50)
