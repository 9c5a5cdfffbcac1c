"""GetTelemetrySubscriptions, PushTelemetry: a client asks which of its metrics are wanted, and pushes them (KIP-714).

What is pushed is decompressed and read in a thread, up to a limit: nobody's metrics hold up anybody's records.
"""

from collections.abc import Iterable
from itertools import islice
from uuid import uuid4

from headrace.broker.client_metrics import ACCEPTED_CODECS, Client, Instance, is_reserved
from headrace.broker.errors import BrokerError
from headrace.broker.handler import Context
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from headrace.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from headrace.protocol.schema import ZERO_UUID, Uuid
from headrace.records import Codec, decompress
from headrace.telemetry.otlp import Point, read_metrics

_OUTDATED = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_MAX_PLAIN_BYTES = 4 * 1024 * 1024  # of what is pushed, decompressed
_MAX_POINTS = 10_000  # of one push that are looked at


def get_subscriptions(ctx: Context, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = Uuid(uuid4().bytes)
    now_ms = ctx.broker.now_ms()
    instance = ctx.broker.client_metrics.instance(instance_id, _client_of(ctx), now_ms)
    try:
        instance.ask(now_ms)
    except BrokerError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=ctx.broker.config.number("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


async def push(ctx: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
    if is_reserved(request.client_instance_id):
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    now_ms = ctx.broker.now_ms()
    instance = ctx.broker.client_metrics.instance(request.client_instance_id, _client_of(ctx), now_ms)
    try:
        instance.push(now_ms, is_last=request.terminating)
        _check(request, instance, ctx.broker.config.number("telemetry.max.bytes"))
    except BrokerError as error:
        instance.is_outdated = error.code in _OUTDATED
        return PushTelemetryResponse(error_code=error.code)
    if request.metrics:
        try:
            points = await ctx.broker.look_up(lambda: _read(request.compression_type, request.metrics))
        except HeadraceError:
            instance.refused += 1
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
        instance.take_in(points)
    return PushTelemetryResponse()


def _check(request: PushTelemetryRequest, instance: Instance, max_bytes: int) -> None:
    if request.subscription_id != instance.subscription_id:
        raise BrokerError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the client is subscribed to something else by now")
    if request.compression_type not in (Codec.NONE, *ACCEPTED_CODECS):
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {request.compression_type} is unknown")
    if len(request.metrics) > max_bytes:
        raise BrokerError(ErrorCode.TELEMETRY_TOO_LARGE, f"telemetry.max.bytes is {max_bytes}")


def _read(codec: int, metrics: bytes) -> list[Point]:
    points: Iterable[Point] = read_metrics(decompress(codec, metrics, _MAX_PLAIN_BYTES))
    return list(islice(points, _MAX_POINTS))


def _client_of(ctx: Context) -> Client:
    peer = ctx.peer
    return Client(ctx.client_id or "", peer.software_name, peer.software_version, ctx.client_host, peer.port)
