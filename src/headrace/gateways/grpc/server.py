"""The server: it listens, says how it is (health), what it offers (reflection), and ends in order.

What always holds: it takes its port when it is made, and shares it with nobody; health is SERVING while the broker is
there; at its end calls that wait for records to be durable have their answers first.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headrace.client.address import Address
from headrace.gateways.bad_input import BadInput
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Progress
from headrace.gateways.grpc.service import Service
from headrace.gateways.grpc.settings import GrpcSettings
from headrace.gateways.grpc.watch import Watch
from headrace.gateways.grpc.wire import SERVICE, pool
from headrace.gateways.inlet import Inlet
from headrace.gateways.inward import close, stopped
from headrace.serving.access import TokensFile
from headrace.serving.listening import load_certificate

_ENDING_S: Final = 0.5
_KEEPALIVE_ANSWER_S: Final = 20.0
_PINGS_AT_LEAST_S: Final = 10  # apart, of a client that asks whether we are still there


class GrpcGateway:
    """One server."""

    def __init__(self, settings: GrpcSettings, inlet: Inlet, bootstrap: Sequence[Address], stopping: Event) -> None:
        self.name = settings.name
        self.target = ", ".join(settings.produce)
        self.progress: Progress = inlet.progress
        self.port = settings.port
        self._settings = settings
        self._inlet = inlet
        self._bootstrap = bootstrap
        self._stopping = stopping
        self._tokens = TokensFile(settings.tokens) if settings.tokens else None
        self._credentials = _credentials(settings)

    @property
    def source(self) -> str:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{'grpcs' if self._settings.certificate else 'grpc'}://{host}:{self.port}"

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        settings = self._settings
        server = grpc.aio.server(options=self._options(), maximum_concurrent_rpcs=settings.calls)
        watch = Watch(self._bootstrap, self.name)
        bad_input = BadInput(self.name, self.progress)
        service = Service(settings, self._bootstrap, self._inlet, watch, bad_input, self._tokens)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, service.handlers()),))
        states = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(states, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server, pool())
        self._listen(server)
        self._inlet.start()
        await server.start()

        def tell() -> Any:
            """Where nothing is written just now, the watch is who knows of the broker."""
            if not self._inlet.bytes_waiting:
                self.progress.waiting = "for the broker" if watch.problem else ""
                self.progress.problem = watch.problem
            said = health_pb2.HealthCheckResponse
            state = said.NOT_SERVING if watch.problem else said.SERVING
            return asyncio.gather(states.set("", state), states.set(SERVICE, state))

        looking = asyncio.get_running_loop().create_task(watch.keep_looking(tell))
        try:
            await stopped(self._stopping)
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
            await states.enter_graceful_shutdown()
            await close(self._inlet, self.progress)
            await server.stop(_ENDING_S)
            service.close()
            watch.close()

    def _listen(self, server: Any) -> None:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        address = f"{host}:{self._settings.port}"
        try:
            if self._credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, self._credentials)
        except RuntimeError:
            raise GatewayError(f"cannot listen on {address}: choose another port, or see who has it") from None
        self.progress.more["url"] = self.source

    def _options(self) -> list[tuple[str, int]]:
        settings = self._settings
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", settings.message_bytes),
            ("grpc.max_send_message_length", settings.message_bytes),
            ("grpc.max_concurrent_streams", settings.calls),
            ("grpc.keepalive_time_ms", int(settings.keepalive_s * 1000)),
            ("grpc.keepalive_timeout_ms", int(_KEEPALIVE_ANSWER_S * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _PINGS_AT_LEAST_S * 1000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", _PINGS_AT_LEAST_S * 1000),
        ]


def _credentials(settings: GrpcSettings) -> Any:
    if not settings.certificate:
        return None
    load_certificate(settings.certificate)  # what is wrong with it is said in a sentence here, and by nobody there
    pair = Path(settings.certificate).read_bytes()
    clients = None
    if settings.clients:
        try:
            clients = Path(settings.clients).read_bytes()
        except OSError as error:
            raise GatewayError(f"clients {settings.clients} cannot be read ({error.strerror}): check it") from None
    return grpc.ssl_server_credentials([(pair, pair)], clients, require_client_auth=clients is not None)
