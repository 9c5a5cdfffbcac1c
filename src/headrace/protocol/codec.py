"""Messages to bytes and back, by class and version.

The code for a class and version is compiled when it is first needed, in a millisecond or so, and kept.
"""

from collections.abc import Generator
from functools import cache
from typing import Final, TypeVar

from headrace.protocol.decoder import Decoder, SteppingDecoder, compile_decoder, compile_stepping_decoder, keeps_view
from headrace.protocol.encoder import Encoder, SteppingEncoder, compile_encoder, compile_stepping_encoder
from headrace.protocol.errors import MalformedMessage, UnsupportedVersion
from headrace.protocol.schema import Buffer, Message, Primitive, Struct

_RELEASED_A_STEP: Final = 128

M = TypeVar("M", bound=Message)


@cache
def decoder_of(message: type[Message], version: int) -> Decoder:
    """The compiled decoder: takes a buffer and a position, returns the message and the position after it."""
    _check(message, version)
    return compile_decoder(message, version)


@cache
def stepping_decoder_of(message: type[Message], version: int) -> SteppingDecoder:
    """The compiled decoder of large messages: as `decoder_of`, but a generator that yields now and then."""
    _check(message, version)
    return compile_stepping_decoder(message, version)


@cache
def encoder_of(message: type[Message], version: int) -> Encoder:
    """The compiled encoder: appends the message's bytes to a list, in parts."""
    _check(message, version)
    return compile_encoder(message, version)


@cache
def stepping_encoder_of(message: type[Message], version: int) -> SteppingEncoder:
    """The compiled encoder of large messages: as `encoder_of`, but a generator that yields now and then."""
    _check(message, version)
    return compile_stepping_encoder(message, version)


# Asked once for each frame, of a set of classes that does not grow.
needs_no_copy = cache(keeps_view)


def _check(message: type[Message], version: int) -> None:
    schema = message.__schema__
    if version not in schema.versions:
        raise UnsupportedVersion(-1 if schema.api_key is None else schema.api_key, version)


def decode_prefix(message: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """The message that starts at `position`, and the position after it; what follows is not looked at.

    Record batches come back as views into `data`: they are valid as long as it is left as it is.
    """
    if type(data) is not bytes and not needs_no_copy(message):
        data = bytes(data)
    return decoder_of(message, version)(data, position)


def decoding_prefix(
    message: type[M], version: int, data: Buffer, position: int = 0
) -> Generator[None, None, tuple[M, int]]:
    """As `decode_prefix`, in steps, for a large message; one with more entries than any client needs is refused."""
    if type(data) is not bytes and not needs_no_copy(message):
        data = bytes(data)
    return stepping_decoder_of(message, version)(data, position)


def decode(message: type[M], version: int, data: Buffer) -> M:
    """The message that `data` is, whole."""
    decoded, end = decode_prefix(message, version, data)
    if end != len(data):
        raise MalformedMessage(f"{message.__name__} v{version}: {len(data) - end} bytes are left over", end)
    return decoded


def encode_parts(message: Message, version: int) -> list[Buffer]:
    """The message's bytes, in parts that need not be joined; record batches are among them as they were given."""
    parts: list[Buffer] = []
    encoder_of(type(message), version)(message, parts)
    return parts


def encode(message: Message, version: int) -> bytes:
    return b"".join(encode_parts(message, version))


def releasing(structs: list[Struct]) -> Generator[None, None, None]:
    """Let go of messages in steps, and of the entries of their arrays: to free 20,000 at once takes milliseconds.

    They go if nobody else holds them, so the caller keeps none of them but in the list, which is empty in the end.
    """
    count = 0
    while structs:
        struct = structs.pop()
        for name in _arrays_of(type(struct)):
            structs.extend(getattr(struct, name) or ())
        count += 1
        if not count % _RELEASED_A_STEP:
            yield


@cache
def _arrays_of(struct: type[Struct]) -> tuple[str, ...]:
    return tuple(
        field.name for field in struct.__schema__.fields if field.is_array and not isinstance(field.type, Primitive)
    )
