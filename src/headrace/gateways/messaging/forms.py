"""How messages stand on the wire: in our form, as bare values, or as topic and value. Pure.

`message` is `message.py`'s. `raw` is for plain programs: one frame is the value, and all else is left out. `topic` is
what plain publishers of ZeroMQ send, two frames, topic and value; nng has no second frame.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from headrace.gateways.messaging.message import (
    Headers,
    InvalidMessage,
    Message,
    decode,
    subscription,
    topic_prefix,
)

Frame = bytes | list[bytes]


class Form(StrEnum):
    MESSAGE = "message"
    RAW = "raw"
    TOPIC = "topic"

    @property
    def is_multipart(self) -> bool:
        """Whether several frames may come as one message, which are taken together."""
        return self is not Form.MESSAGE


def _decode_message(frame: Frame) -> Message:
    if isinstance(frame, list):
        raise InvalidMessage(f"a message of {len(frame)} frames came where one frame is read: send one")
    return decode(frame)


def _decode_raw(frame: Frame) -> Message:
    if isinstance(frame, bytes):
        return Message(frame)
    if len(frame) != 1:
        raise InvalidMessage(f"a message of {len(frame)} frames came where values alone are read: send one frame")
    return Message(frame[0])


def _decode_topic(frame: Frame) -> Message:
    if isinstance(frame, bytes) or len(frame) != 2:
        count = 1 if isinstance(frame, bytes) else len(frame)
        raise InvalidMessage(f"a message of {count} frames came where topic and value are read: send two frames")
    try:
        return Message(frame[1], topic=frame[0].decode())
    except UnicodeDecodeError:
        raise InvalidMessage("a message came whose topic, its first frame, is not UTF-8: name it in text") from None


DECODERS: Final[dict[Form, Callable[[Frame], Message]]] = {
    Form.MESSAGE: _decode_message,
    Form.RAW: _decode_raw,
    Form.TOPIC: _decode_topic,
}


def encode_plain(form: Form, value: bytes | None, key: bytes | None, topic: str, headers: Headers) -> Frame:
    """A value in a form of plain programs, which must not be given what it cannot say."""
    if key is not None or headers or (topic and form is Form.RAW):
        what = "a key" if key is not None else "headers" if headers else "a topic"
        raise InvalidMessage(f"{what} cannot be sent as form {form.value!r}: leave it out, or use form='message'")
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidMessage(f"the value to be sent is a {type(value).__name__}: send bytes")
    if form is Form.TOPIC:
        return [topic_prefix(topic)[:-1], bytes(value)]
    return bytes(value)


def subscriptions(topics: str | Sequence[str], form: Form) -> list[bytes]:
    """What the messages begin with that are wanted; plain publishers do not say where a topic ends."""
    given = (topics,) if isinstance(topics, str) else tuple(topics)
    if not given:
        raise InvalidMessage("a subscriber to no topic gets nothing: name topics, or * for all")
    if form is Form.MESSAGE:
        return [subscription(each) for each in given]
    return [topic_prefix(each.removesuffix("*"))[:-1] for each in given]
