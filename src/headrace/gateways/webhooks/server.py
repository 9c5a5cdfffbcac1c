"""Webhooks over HTTP, and their records with their ids in one transaction.

What always holds: 2xx is answered when the record and the id are durable together, or were before; what was answered
otherwise may be sent again without harm, because its id is known by then if it was written after all.
"""

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Final, Self

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.client.address import Address
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.connect.delivery import Entry, read_committed
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Progress
from headrace.gateways.inlet import Inlet, Overloaded, Stopped, Uncertain
from headrace.gateways.inward import durable
from headrace.gateways.webhooks.delivery import Delivery, InvalidDelivery, read_delivery
from headrace.gateways.webhooks.memory import Memory, identity
from headrace.gateways.webhooks.secrets import NoSecret
from headrace.gateways.webhooks.settings import Endpoint, WebhookSettings
from headrace.gateways.webhooks.signatures import Headers, InvalidSecret, InvalidSignature, keys_of, verify
from headrace.gateways.writing import Lot, Placed, Remembering
from headrace.protocol.errors import ErrorCode
from headrace.secret_files import ExposedSecret
from headrace.serving.answers import json_answer
from headrace.serving.probes import Checks, probe_routes
from headrace.serving.server import AppServer, listening

IDS_TOPIC: Final = "__headrace_webhook_ids"
_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
_LOOK_EVERY_S: Final = 0.05
_FORGOTTEN_TOGETHER: Final = 50  # tombstones that a delivery takes along
_IN_THREAD_BYTES: Final = 128 * 1024  # a larger body is hashed and parsed beside the loop
_SOON_S, _LATER_S = 1, 5
_DISCARDED_BYTES: Final = 16 * 1024 * 1024
_DISCARDED_S: Final = 1.0


class _Refusal(GatewayError):
    """An answer that is no success; `why` is for the log alone."""

    def __init__(
        self, status: int, sentence: str, *, why: str = "", retry_s: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.why = why or sentence
        self.headers = {**({"retry-after": str(retry_s)} if retry_s else {}), **(headers or {})}

    @property
    def is_ours(self) -> bool:
        """Whether the sender did nothing wrong."""
        return self.status >= 500


@dataclass
class WebhookGateway:
    settings: WebhookSettings
    bootstrap: Sequence[Address]
    stopping: Event
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self._endpoints = {each.path: each for each in self.settings.endpoints}
        self._taking = _Taking(self.settings, self.bootstrap, self.progress)
        self._bad = BadInput(self.settings.name, self.progress)
        self._reading_bytes = 0
        self._port = self.settings.port

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def source(self) -> str:
        scheme = "https" if self.settings.certificate else "http"
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{scheme}://{host}:{self._port} {', '.join(sorted(self._endpoints))}"

    @property
    def target(self) -> str:
        return ", ".join(self.settings.topics)

    def run(self) -> None:
        for each in self.settings.endpoints:
            if each.scheme is not None and each.secrets is not None:
                try:
                    keys_of(each.scheme, each.secrets.current())
                except InvalidSecret as error:
                    raise InvalidSecret(f"endpoint {each.name}: {error}") from None
        bound = listening(self.settings.host, self._port, GatewayError)
        self._port = int(bound.getsockname()[1])
        app = Starlette(
            routes=[*probe_routes(self._ready), Route("/{rest:path}", self._serve, methods=_METHODS)],
        )
        server = AppServer(
            app,
            bound,
            name=f"headrace-webhooks-{self.name}",
            connections=self.settings.max_connections,
            certificate=self.settings.certificate,
        )
        self._taking.start()
        try:
            with server:
                while not self.stopping.wait(_LOOK_EVERY_S):
                    self._taking.check()
                self._taking.end()
        finally:
            self._taking.close()

    async def _ready(self) -> Checks:
        return {"broker": self.progress.problem or self.progress.waiting}

    # --- a request

    async def _serve(self, request: Request) -> Response:
        self.progress.received += 1
        self.progress.connections += 1
        try:
            return await self._answer(request)
        except _Refusal as error:
            if not error.is_ours:
                self._bad.refuse(error.why, request.client.host if request.client else "")
            await _discard(request)
            return json_answer({"error": str(error)}, error.status, {**error.headers, "connection": "close"})
        finally:
            self.progress.connections -= 1

    async def _answer(self, request: Request) -> Response:
        endpoint = self._endpoints.get(request.scope["path"])
        if endpoint is None:
            raise _Refusal(404, "there is nothing here: look at the path of the URL")
        if request.method != "POST":
            raise _Refusal(405, "a webhook is sent by POST", headers={"allow": "POST"})
        headers = [(name.decode("latin-1").lower(), _header_text(value)) for name, value in request.headers.raw]
        if endpoint.scheme is None and _is_from_page(headers):
            raise _Refusal(403, "a page in a browser may send nothing here")
        async with _Room(self, request) as room:
            body = await room.read()
            if len(body) > _IN_THREAD_BYTES:
                delivery = await asyncio.to_thread(self._read, endpoint, headers, body)
            else:
                delivery = self._read(endpoint, headers, body)
            is_new = await self._taking.take(endpoint, delivery)
        return json_answer({"status": "taken" if is_new else "known", **({"id": delivery.id} if delivery.id else {})})

    def _read(self, endpoint: Endpoint, headers: Headers, body: bytes) -> Delivery:
        """A request that is signed as it should be, as a record."""
        now_s = time.time()
        if endpoint.scheme is not None and endpoint.secrets is not None:
            try:
                keys = keys_of(endpoint.scheme, endpoint.secrets.current())
                verify(endpoint.scheme, keys, headers, body, now_s, endpoint.tolerance_s)
            except InvalidSignature as error:
                why = f"endpoint {endpoint.name}: {error}"
                raise _Refusal(401, "the signature is missing, old, or does not match", why=why) from None
            except (NoSecret, ExposedSecret, InvalidSecret) as error:
                self.progress.problem = str(error)
                raise _Refusal(503, "signatures cannot be checked at the moment", retry_s=_LATER_S) from None
        try:
            return read_delivery(endpoint.wanted, headers, body, int(now_s * 1000))
        except InvalidDelivery as error:
            raise _Refusal(400, str(error), why=f"endpoint {endpoint.name}: {error}") from None

    def reserve(self, size: int) -> None:
        """Room for a body that comes in."""
        if size > self.settings.max_body:
            raise _Refusal(413, f"a body may have {self.settings.max_body:,} bytes at the most")
        if self._reading_bytes + size > self.settings.buffer_bytes:
            raise _Refusal(503, "too much comes in at the moment: send it again later", retry_s=_SOON_S)
        self._reading_bytes += size

    def release(self, size: int) -> None:
        self._reading_bytes -= size


async def _discard(request: Request) -> None:
    """Read on for a moment: who is still sending when the connection is closed would not see the answer."""
    left = _DISCARDED_BYTES
    with suppress(ClientDisconnect, TimeoutError, RuntimeError):  # the last, if all was read before
        async with asyncio.timeout(_DISCARDED_S):
            async for chunk in request.stream():
                left -= len(chunk)
                if left < 0:
                    return


def _header_text(value: bytes) -> str:
    """With marks in the place of what is not UTF-8, several ids would be one, and all but the first no records."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _is_from_page(headers: Headers) -> bool:
    """Whether a browser sent it for some page: a program has no origin."""
    return any(
        name == "origin" or (name == "sec-fetch-site" and value not in ("same-origin", "none"))
        for name, value in headers
    )


class _Room:
    """The body of one request, and the memory that it takes until it is answered."""

    def __init__(self, gateway: WebhookGateway, request: Request) -> None:
        self._gateway = gateway
        self._request = request
        self._held = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gateway.release(self._held)

    def _hold(self, size: int) -> None:
        if size > self._held:
            more = size - self._held
            if size > self._gateway.settings.max_body:
                self._gateway.reserve(size)  # which refuses it
            self._gateway.reserve(more)
            self._held = size

    async def read(self) -> bytes:
        length = self._request.headers.get("content-length", "")
        if length:
            if not (length.isascii() and length.isdecimal() and len(length) < 16):
                raise _Refusal(400, "the length of the body is no number")
            self._hold(int(length))
        body = bytearray()
        try:
            async for chunk in self._request.stream():
                body += chunk
                self._hold(len(body))
        except ClientDisconnect:
            raise _Refusal(400, "the body did not come whole") from None
        return bytes(body)


# --- records and ids


class _Writing(Remembering):
    """Writes records with their ids; reads the ids whenever it takes over."""

    def __init__(self, taking: "_Taking") -> None:
        super().__init__(taking.settings.name, IDS_TOPIC)
        self._taking = taking

    def reconnect(self, cluster: Cluster) -> None:
        for topic in self._taking.settings.topics:
            ensure_topic(cluster, topic)
        super().reconnect(cluster)
        self._taking.load(cluster)


class _Taking:
    """What was taken, what is being written, and the inlet that writes it."""

    def __init__(self, settings: WebhookSettings, bootstrap: Sequence[Address], progress: Progress) -> None:
        self.settings = settings
        self._progress = progress
        self._prefix = settings.name.encode() + b"/"
        self._lock = threading.Lock()
        self._memory = Memory(settings.remember_most)
        self._is_loaded = False
        self._flights: dict[bytes, Future[list[Placed]]] = {}
        self._nonces = (f"{os.urandom(4).hex()}{number:x}" for number in itertools.count())
        self._known = 0
        self._inlet = Inlet(
            bootstrap,
            settings.name,
            progress,
            limit_bytes=settings.buffer_bytes,
            overload=settings.overload,
            open_writing=lambda _: _Writing(self),
        )
        progress.waiting = "for the broker"
        progress.more = {"duplicates": 0, "ids": 0}

    def start(self) -> None:
        self._inlet.start()

    def check(self) -> None:
        """Raise what ended the writing: another gateway of this name."""
        if self._inlet.failure is not None:
            raise self._inlet.failure

    def end(self) -> None:
        """Write what waits, while who waits for it can still be answered."""
        self._inlet.close(0.3 if self._progress.waiting else 5.0)

    def close(self) -> None:
        self._inlet.close(0.3)

    def load(self, cluster: Cluster) -> None:
        """Read the ids that are kept; in the inlet's thread, after it has taken over."""
        known: dict[bytes, int] = {}
        for key, value in read_committed(cluster, IDS_TOPIC, self._is_own).items():
            with suppress(ValueError):  # anybody may write to a topic
                known[bytes.fromhex(key[len(self._prefix) :].decode())] = int(value.partition(b".")[0])
        memory = Memory(self.settings.remember_most)
        memory.load(known, time.time_ns() // 1_000_000)
        with self._lock:
            self._memory = memory
            self._is_loaded = True
            self._count()
        self._progress.waiting = self._progress.problem = ""

    def _is_own(self, key: bytes) -> bool:
        return key.startswith(self._prefix) and b"/" not in key[len(self._prefix) :]

    def _count(self) -> None:
        self._progress.more["ids"] = len(self._memory)
        self._progress.more["duplicates"] = self._known
        if self._memory.forgotten_early:
            self._progress.more["forgotten_early"] = self._memory.forgotten_early

    async def take(self, endpoint: Endpoint, delivery: Delivery) -> bool:
        """Wait until the delivery is durable; whether it is a new one. Raises `_Refusal`."""
        ids = []
        if delivery.id:
            ids.append(identity(endpoint.name, delivery.id))
        if endpoint.by_body:
            ids.append(identity(f"{endpoint.name}\0body", (delivery.entry[1] or b"").hex()))
        try:
            async with asyncio.timeout(self.settings.answer_within_s):
                while True:
                    flight, is_new = self._offer(endpoint, delivery, ids)
                    if flight is not None:
                        await durable(flight)
                        return is_new
                    if not is_new:
                        return False
                    await self._inlet.room()
        except _Refusal:
            raise
        except TimeoutError:
            raise _Refusal(503, "the record is not durable yet: send it again later", retry_s=_LATER_S) from None
        except Overloaded:
            raise _Refusal(503, "too much waits for the broker: send it again later", retry_s=_SOON_S) from None
        except (Stopped, Uncertain):
            raise _Refusal(503, "this server ends: send it again later", retry_s=_SOON_S) from None
        except Refused as error:
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                raise _Refusal(413, "the topic takes no records of this size") from None
            if error.code is ErrorCode.INVALID_RECORD:
                raise _Refusal(400, "the topic does not take this record: it may want a key", why=str(error)) from None
            raise _Refusal(503, "the broker does not take the record: send it again later", retry_s=_LATER_S) from None
        except HeadraceError as error:
            self._progress.problem = str(error)
            raise _Refusal(503, "the record cannot be written: send it again later", retry_s=_LATER_S) from None

    def _offer(
        self, endpoint: Endpoint, delivery: Delivery, ids: Sequence[bytes]
    ) -> tuple[Future[list[Placed]] | None, bool]:
        """What is under way for it, and whether that is new; nothing if it is known, or there is no room just now."""
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            if not self._is_loaded:
                raise _Refusal(503, "the broker is away: send it again later", retry_s=_LATER_S)
            if any(self._memory.knows(each, now_ms) for each in ids):
                self._known += 1
                self._count()
                return None, False
            for each in ids:
                if each in self._flights:
                    self._known += 1
                    return self._flights[each], False
            if self._progress.waiting:
                raise _Refusal(503, "the broker is away: send it again later", retry_s=_LATER_S)
            until_ms = now_ms + self.settings.remember_ms
            flight = self._inlet.offer(Lot(endpoint.topic, (delivery.entry,), kept=self._kept(ids, until_ms, now_ms)))
            if flight is None:
                return None, True
            self._flights.update(dict.fromkeys(ids, flight))
        flight.add_done_callback(lambda done: self._settle(done, ids, until_ms))
        return flight, True

    def _kept(self, ids: Sequence[bytes], until_ms: int, now_ms: int) -> tuple[Entry, ...]:
        """What is kept with a record: its ids, and that others are over."""
        value = f"{until_ms}.{next(self._nonces)}".encode()
        entries: list[Entry] = [(self._prefix + each.hex().encode(), value, now_ms, ()) for each in ids]
        if ids:
            forgotten = self._memory.take_forgotten(_FORGOTTEN_TOGETHER)
            entries += [(self._prefix + each.hex().encode(), None, now_ms, ()) for each in forgotten if each not in ids]
        return tuple(entries)

    def _settle(self, done: "Future[list[Placed]]", ids: Sequence[bytes], until_ms: int) -> None:
        """In the inlet's thread, before anybody who waits goes on."""
        with self._lock:
            if not done.cancelled() and done.exception() is None:
                self._memory.remember(ids, until_ms, time.time_ns() // 1_000_000)
            for each in ids:
                if self._flights.get(each) is done:
                    del self._flights[each]
            self._count()


__all__ = ["IDS_TOPIC", "WebhookGateway"]
