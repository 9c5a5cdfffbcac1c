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

import progress
from database import Customers
from facts import Shop
from proof import Proof, killed, looked
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import headrace.dashboard
from headrace.serving.server import AppServer

HERE = Path(__file__).parent
ICON = Path(headrace.dashboard.__file__).parent / "static" / "icon.svg"
MORTAL = ("broker", "cdc.shop", "pipelines.shop", "sync.warehouse")
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'"


@dataclass
class Story:
    """What happened, told as it happens."""

    shop: Shop
    customers: Customers
    facts: dict[str, Any] = field(default_factory=dict)
    lines: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=50))
    proof: Proof | None = None
    wants_buying: bool = True
    is_over: bool = False
    _steps: dict[str, float] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.time)
    _is_open: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, text: str, kind: str = "note") -> None:
        """A line more."""
        self.lines.appendleft({"at": time.time(), "text": text, "kind": kind})

    def watch(self, stop: threading.Event) -> None:
        """Look every second: how far the start has come, and what became of what was killed."""
        while not stop.is_set():
            self.facts = self.shop.look()
            self._steps = progress.reached(self.facts, self._steps, time.time() - self._began_s)
            if not self._is_open and progress.CAPTURED in self._steps:
                self._open()
            with self._lock:
                self._compare()
            self._let_buy()
            stop.wait(1)

    def _open(self) -> None:
        """Let customers in once their names and cities are in the log: an order is worth little without."""
        self._is_open = True
        self.customers.start()
        self.tell("the database is captured, and customers come in")

    def close(self) -> None:
        """Nobody buys any more, and whoever has the page open is let go."""
        self.is_over = True
        if self._is_open:
            self.customers.stop()

    def steps(self) -> list[dict[str, Any]]:
        """How far the start has come."""
        return progress.told(self._steps)

    def _compare(self) -> None:
        if self.proof is not None:
            self.proof, lines = looked(self.proof, self.facts, time.time())
            for line in lines:
                self.tell(line.text, line.kind)

    def told(self) -> dict[str, Any]:
        """All that the page shows."""
        return self.facts | {
            "story": list(self.lines),
            "buying": self.wants_buying,
            "comparing": self.proof is not None,
            "late": self.customers.late,
            "steps": self.steps(),
            "for_s": time.time() - self._began_s,
        }

    def want(self, *, buying: bool) -> None:
        """Customers buy, or rest."""
        self.wants_buying = buying
        self._let_buy()
        self.tell("customers buy again" if buying else "customers are paused: all copies must become equal")

    def _let_buy(self) -> None:
        if self.wants_buying and not (self.proof and self.proof.wants_rest):
            self.customers.running.set()
        else:
            self.customers.running.clear()

    def kill(self, name: str) -> str | None:
        """Kill a part without a warning; None if it cannot be."""
        for part in self.facts.get("parts", ()):
            if part["name"] == name and name in MORTAL and part["pid"] and part["phase"] == "running":
                with self._lock:
                    os.kill(part["pid"], signal.SIGKILL)
                    self.proof = killed(self.proof, name, part["pid"], time.time())
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

    async def icon(_: Request) -> Response:
        return FileResponse(ICON)

    async def live(request: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            while not story.is_over and not await request.is_disconnected():
                yield event()
                await asyncio.sleep(1)
            yield event()  # how it ended, which may be news

        def event() -> str:
            return f"data: {json.dumps(story.told(), default=str)}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def act(request: Request) -> Response:
        if not secrets.compare_digest(request.headers.get("x-token", ""), token):
            return JSONResponse({"error": "this page may not do that: load it anew"}, 403)
        what = request.path_params["what"]
        if what in ("pause", "buy"):
            story.want(buying=what == "buy")
        elif story.kill(what) is None:
            return JSONResponse({"error": f"{what} does not run right now: wait until it is back"}, 409)
        return JSONResponse({})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/page.css", file),
            Route("/page.js", file),
            Route("/icon.svg", icon),
            Route("/favicon.ico", icon),
            Route("/live", live),
            Route("/do/{what:str}", act, methods=["POST"]),
        ],
        # A page from elsewhere that a name server points here is not let in.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
    )


def served(story: Story, bound: socket.socket) -> AppServer:
    """The page, on a socket that has its port."""
    return AppServer(application(story, secrets.token_urlsafe(16)), bound, name="page", connections=50)
