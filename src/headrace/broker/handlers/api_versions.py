"""ApiVersions: what this broker can do, told before anything else.

Produce is announced from version 0 on, though versions 0 to 2 are refused: librdkafka reads the span as a sign of a
broker that can take idempotent producers (KAFKA-18659), and Kafka does the same.
"""

import re
from collections.abc import Mapping

from headrace.broker.handler import Context
from headrace.broker.handlers.cluster import FEATURES, OWN_FEATURES
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

NAMED_SINCE = 3  # since then a client says what software it is (KIP-511)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.version >= NAMED_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if ctx.version >= NAMED_SINCE:
        ctx.peer.software_name, ctx.peer.software_version = (
            request.client_software_name,
            request.client_software_version,
        )
    return ApiVersionsResponse(
        api_keys=_announce(ctx.served),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=level, max_version=level)
            for name, level in (FEATURES | OWN_FEATURES).items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in FEATURES.items()
        ],
    )


def fallback(served: Mapping[int, range]) -> ApiVersionsResponse:
    """The answer, in version 0, to a client that asks in a version newer than ours (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_announce(served))


def _announce(served: Mapping[int, range]) -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=key, min_version=0 if key == ApiKey.PRODUCE else versions.start, max_version=versions.stop - 1
        )
        for key, versions in sorted(served.items())
    ]
