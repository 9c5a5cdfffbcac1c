"""OTLP over HTTP: `POST /v1/logs`, `/v1/metrics`, `/v1/traces`.

What always holds: a request is answered with 200 once every record of it that is not rejected is durable; what may be
sent again is answered with 429 (there is no room) or 503 (the broker is away, or slow), with `Retry-After`, and may
then be there twice; what is bad in itself is answered with 400 and a sentence. Bodies that are on their way have an
upper bound in all, and no more of them are taken apart at once than there are threads for it.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.client.address import Address
from headrace.client.errors import ClientError, Refused
from headrace.connect.delivery import Entry
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Progress
from headrace.gateways.inlet import Dropped, Inlet, Overloaded, Stopped
from headrace.gateways.inward import accepted, durable
from headrace.gateways.otlp import messages
from headrace.gateways.otlp.messages import JSON, PROTOBUF, InvalidTelemetry, Rejected, Signal, TooLarge
from headrace.gateways.otlp.records import Made, records_of
from headrace.gateways.otlp.settings import OtlpSettings
from headrace.gateways.writing import Lot, PartlyWritten, Uncertain
from headrace.protocol.errors import ErrorCode
from headrace.serving.access import Access
from headrace.serving.asking import chunks_of
from headrace.serving.guard import Guard, Site
from headrace.serving.probes import PROBES, Checks, probe_routes
from headrace.serving.server import AppServer, listening

_LOOK_EVERY_S: Final = 0.1
_RETRY_S: Final = "2"
_READERS: Final = 2  # bodies that are taken apart at once
_ON_THE_WAY: Final = 8  # times the largest request: bodies of all connections together
_BECOMES: Final = 8  # times the largest request: the records of one
_CLOSE_S: Final = 1.0
_ENCODINGS: Final = {PROTOBUF: PROTOBUF, "application/protobuf": PROTOBUF, JSON: JSON}
_STATUS: Final = {400: messages.INVALID_ARGUMENT, 401: messages.UNAUTHENTICATED, 404: messages.UNIMPLEMENTED,
                  429: messages.RESOURCE_EXHAUSTED, 503: messages.UNAVAILABLE}  # fmt: skip


class _Refused(HeadraceError):
    """A request that is answered with a status of its own."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class OtlpGateway:
    """One receiver of telemetry."""

    def __init__(
        self, settings: OtlpSettings, access: Access, inlet: Inlet, bootstrap: Sequence[Address], stopping: Event
    ) -> None:
        self.name = settings.name
        self.target = ", ".join(settings.topics.values())
        self.progress: Progress = inlet.progress
        self.url = ""
        self._settings = settings
        self._access = access
        self._inlet = inlet
        self._bootstrap = bootstrap
        self._stopping = stopping
        self._bad_input = BadInput(settings.name, self.progress)
        self._readers = ThreadPoolExecutor(_READERS, f"headrace-{settings.name}")
        self._held_bytes = 0
        routes = [Route(f"/v1/{signal.path}", self._route(signal), methods=["POST"]) for signal in Signal]
        self._app = Starlette(
            routes=[*probe_routes(self._ready), *routes],
            exception_handlers={HeadraceError: self._failed, HTTPException: self._failed},
        )

    @property
    def source(self) -> str:
        return self.url or self._access.url(self._settings.port)

    def run(self) -> None:
        bound = listening(self._access.host, self._settings.port, GatewayError)
        port = int(bound.getsockname()[1])
        self.url = self.progress.more["url"] = self._access.url(port)
        server = AppServer(
            Guard(self._app, self._access, port, Site(_refuse, open_paths=PROBES)),
            bound,
            name=f"headrace-otlp-{self.name}",
            connections=self._settings.connections,
            certificate=self._access.certificate,
        )
        self._inlet.start()
        try:
            with server:
                while not self._stopping.wait(_LOOK_EVERY_S):
                    pass
                self._inlet.close(_CLOSE_S)  # whoever waits for an answer has one before the server ends
        finally:
            self._inlet.close(0.0)
            self._readers.shutdown()

    async def _ready(self) -> Checks:
        return {"broker": self.progress.problem if self.progress.waiting else ""}

    # --- requests

    def _route(self, signal: Signal):  # type: ignore[no-untyped-def]  # what starlette calls
        async def take(request: Request) -> Response:
            encoding = _encoding_of(request)
            topic = self._settings.topics.get(signal.path)
            if topic is None:
                raise _Refused(404, f"no {signal.path} are taken here: name a topic for them")
            made = await self._read(signal, request, encoding)
            self.progress.received += len(made.entries) + made.rejected
            if made.rejected:
                self._bad_input.refuse(made.reason, _sender(request), made.rejected)
            rejected = await self._write(topic, made)
            return Response(messages.answer(signal, rejected, encoding), 200, media_type=encoding)

        return take

    async def _read(self, signal: Signal, request: Request, encoding: str) -> Made:
        settings = self._settings
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("identity", "gzip", ""):
            raise _Refused(415, f"content-encoding {coding[:40]!r} is not read here: use gzip, or none")
        body = bytearray()
        try:
            async for chunk in chunks_of(request):
                body += chunk
                self._held_bytes += len(chunk)
                if len(body) > settings.request_bytes:
                    size = settings.request_bytes // 2**20
                    raise _Refused(413, f"a request has at most {size} MiB: send smaller batches")
                if self._held_bytes > settings.request_bytes * _ON_THE_WAY:
                    raise _Refused(429, "too much is on its way at once: send again later")

            def read() -> Made:
                data = bytes(body) if coding != "gzip" else messages.inflate(bytes(body), settings.request_bytes)
                message = messages.read_request(signal, data, encoding, settings.request_bytes)
                most_in_all = settings.request_bytes * _BECOMES
                return records_of(signal, message, time.time_ns() // 1_000_000, settings.record_bytes, most_in_all)

            return await asyncio.get_running_loop().run_in_executor(self._readers, read)
        finally:
            self._held_bytes -= len(body)

    async def _write(self, topic: str, made: Made) -> Rejected:
        entries: list[Entry] = made.entries
        if not entries:
            return made.rejection
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await durable(await accepted(self._inlet, Lot(topic, entries)))
        except TimeoutError:
            why = self.progress.problem or "the broker is slow"
            raise _Refused(503, f"not durable within {self._settings.timeout_s:g} s ({why}): send again") from None
        except Overloaded as error:
            self.progress.dropped += len(entries)
            raise _Refused(429, str(error)) from None
        except Dropped as error:
            return Rejected(made.rejected + len(entries), made.reason or f"dropped: {error}")
        except PartlyWritten as error:
            self.progress.dropped += error.refused
            return Rejected(made.rejected + error.refused, made.reason or str(error.refusal))
        except (Stopped, Uncertain, ClientError) as error:
            is_too_large = isinstance(error, Refused) and error.code is ErrorCode.MESSAGE_TOO_LARGE
            raise _Refused(400 if is_too_large else 503, str(error)) from None
        return made.rejection

    # --- answers

    async def _failed(self, request: Request, error: Exception) -> Response:
        match error:
            case _Refused():
                status, sentence = error.status, str(error)
            case HTTPException():
                status, sentence = error.status_code, error.detail
                if status == 404:
                    sentence = "there is nothing here: POST to /v1/logs, /v1/metrics or /v1/traces"
            case TooLarge():
                status, sentence = 413, str(error)
            case _:
                status, sentence = 400, str(error)
        if status < 500 and status not in (404, 405, 429):
            self._bad_input.refuse(sentence, _sender(request))
        return _refuse(request, status, sentence)


def _encoding_of(request: Request) -> str:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in _ENCODINGS:
        raise _Refused(415, f"content-type {given[:40]!r} is not OTLP's: use {PROTOBUF} or {JSON}")
    return _ENCODINGS[given]


def _sender(request: Request) -> str:
    return request.client.host if request.client else ""


def _refuse(request: Request, status: int, sentence: str) -> Response:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = _ENCODINGS.get(given, JSON)
    headers = {"retry-after": _RETRY_S} if status in (429, 503) else {}
    code = _STATUS.get(status, messages.INVALID_ARGUMENT)
    return Response(messages.refusal(code, sentence, encoding), status, headers, encoding)


__all__ = ["InvalidTelemetry", "OtlpGateway"]
