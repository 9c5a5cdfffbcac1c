"""What stands in front of every request and response, and which version of it.

A flexible message has a flexible header. There is one exception: a response to ApiVersions has header version 0 in all
versions, because the client reads it before it knows what the broker speaks (KIP-511).

Request header 0 belonged to a version of ControlledShutdown that went with Kafka 4.0; no API declared here uses it.
"""

from headrace.protocol.schema import Message, Struct, int16, int32, nullable_string

_API_VERSIONS = 18


class RequestHeader(Message, versions=range(1, 3), flexible_since=2):
    """Which API in which version, and what the client calls this request and itself."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    # Two bytes of length even where the header is flexible: a broker must be able to read the header of an ApiVersions
    # request that is newer than itself.
    client_id: str | None = nullable_string(flexible=False)


class ResponseHeader(Message, versions=range(2), flexible_since=1):
    correlation_id: int = int32()


def request_header_version(message: type[Struct], version: int) -> int:
    return 2 if message.__schema__.is_flexible(version) else 1


def response_header_version(message: type[Struct], version: int) -> int:
    schema = message.__schema__
    return 1 if schema.is_flexible(version) and schema.api_key != _API_VERSIONS else 0
