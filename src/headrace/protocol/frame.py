"""Frames: what travels on a connection is a size in four bytes, a header, and a body.

No function here reads or writes anything: bytes come in as arguments and go out as results. Where frames begin and end
in a stream is found by whoever reads it.
"""

from collections.abc import Generator
from functools import cache, lru_cache
from struct import Struct as Layout
from typing import NamedTuple, TypeVar

from headrace.protocol.api import APIS, Api
from headrace.protocol.codec import decode_prefix, decoder_of, encode_parts, needs_no_copy, stepping_encoder_of
from headrace.protocol.decoder import Decoder
from headrace.protocol.errors import MalformedMessage, UnsupportedVersion
from headrace.protocol.schema import Buffer, Message, Struct, int16, int32, nullable_string

# What stands in front of every request and response, and which version of it.
#
# A flexible message has a flexible header. There is one exception: a response to ApiVersions has header version 0 in
# all versions, because the client reads it before it knows what the broker speaks (KIP-511).
#
# Request header 0 belonged to a version of ControlledShutdown that went with Kafka 4.0; no API declared here uses it.

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


M = TypeVar("M", bound=Message)

MAX_FRAME_BYTES = 104_857_600  # Kafka's default for socket.request.max.bytes

_SMALL_PART = 4096

_SIZE = Layout(">i")
_REQUEST_START = Layout(">hhi")  # API key, version and correlation id: the same in every header version
_SIZE_AND_ID = Layout(">ii")
_SIZE_AND_ID_AND_NO_TAGS = Layout(">iix")


class Request(NamedTuple):
    api: Api
    header: RequestHeader
    body: Message


def decode_request_header(frame: Buffer) -> tuple[Api, RequestHeader, int]:
    """The API, the header and where the body starts; the version need not be one that is declared.

    So a broker can answer a version that it does not know, which for ApiVersions it has to.
    """
    if len(frame) < _REQUEST_START.size:
        raise MalformedMessage("RequestHeader: the bytes end here", len(frame))
    api_key, version, correlation_id = _REQUEST_START.unpack_from(frame)
    try:
        api, decode_header = _header_decoder(api_key, version)
    except KeyError:
        raise UnsupportedVersion(api_key, version, correlation_id) from None
    header, position = decode_header(frame, 0)
    return api, header, position


@lru_cache(maxsize=1024)  # more than there are; a client may name any version
def _header_decoder(api_key: int, version: int) -> tuple[Api, Decoder]:
    api = APIS[api_key]
    return api, decoder_of(RequestHeader, request_header_version(api.request, version))


def decode_request(frame: Buffer) -> Request:
    """The request in a frame; record batches in it are views into the frame.

    Bytes after the body are let be, as Kafka does.
    """
    api, header, position = decode_request_header(frame)
    version = header.request_api_version
    if version not in api.versions:
        raise UnsupportedVersion(api.key, version, header.correlation_id)
    body, _ = decode_prefix(api.request, version, frame, position)
    return Request(api, header, body)


def encode_request(body: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    api_key = _api_key(type(body))
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    parts = encode_parts(header, request_header_version(type(body), version)) + encode_parts(body, version)
    return b"".join([_SIZE.pack(sum(map(len, parts))), *parts])


def encode_response_parts(body: Message, version: int, correlation_id: int) -> list[Buffer]:
    """A whole frame with a response in it, in parts for a gathering write; record batches are not copied."""
    parts: list[Buffer] = []
    for _ in encoding_response_parts(body, version, correlation_id, parts):
        pass
    return parts


def encoding_response_parts(
    body: Message, version: int, correlation_id: int, parts: list[Buffer]
) -> Generator[None, None, None]:
    """As `encode_response_parts`, in steps: the parts are in the list when it is through."""
    start = _response_start(type(body), version)
    encoded: list[Buffer] = []
    for _ in stepping_encoder_of(type(body), version)(body, encoded):
        # Joined in each step: as objects of their own, some bytes take several times the room.
        parts += _join_small(encoded)
        encoded.clear()
        yield
    if needs_no_copy(type(body)):  # there are records in it
        parts += _join_small(encoded)
    else:
        parts.append(b"".join(encoded))
    size = start.size - _SIZE.size + sum(map(len, parts))
    parts.insert(0, start.pack(size, correlation_id))


@cache
def _response_start(message: type[Message], version: int) -> Layout:
    _api_key(message)
    return _SIZE_AND_ID_AND_NO_TAGS if response_header_version(message, version) else _SIZE_AND_ID


def _join_small(parts: list[Buffer]) -> list[Buffer]:
    """Runs of small parts as one each: a gathering write costs more for a part than copying a few bytes does."""
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for part in parts:
        if type(part) is bytes and len(part) < _SMALL_PART:
            run.append(part)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(part)
    if run:
        joined.append(b"".join(run))
    return joined


def encode_response(body: Message, version: int, correlation_id: int) -> bytes:
    return b"".join(encode_response_parts(body, version, correlation_id))


def decode_response(message: type[M], version: int, frame: Buffer) -> tuple[ResponseHeader, M]:
    """The header and the body of the response in a frame; record batches in it are views into the frame."""
    if type(frame) is not bytes and not needs_no_copy(message):
        frame = bytes(frame)
    header, position = decode_prefix(ResponseHeader, response_header_version(message, version), frame)
    body, end = decode_prefix(message, version, frame, position)
    if end != len(frame):
        raise MalformedMessage(f"{message.__name__} v{version}: {len(frame) - end} bytes are left over", end)
    return header, body


def _api_key(message: type[Message]) -> int:
    api_key = message.__schema__.api_key
    if api_key is None:
        raise TypeError(f"{message.__name__} is not the body of a request or a response")
    return api_key
