"""What `kind = "lines"` can be told: where to listen, how records are framed, and what is answered."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from headrace.gateways.errors import GatewayError
from headrace.gateways.framing import LENGTHS, DelimiterFramer, Framer, LengthFramer, OctetFramer
from headrace.gateways.inward import inward_keys
from headrace.gateways.streams import StreamSettings, stream_keys
from headrace.model import check_topic_name
from headrace.section_keys import Key

LINE_BYTES: Final = 64 * 1024
DEFAULT_PORT: Final = 5170
_MOST_DELIMITER_BYTES: Final = 16
_ESCAPE: Final = re.compile(rb"\\(n|r|t|0|\\|x[0-9a-fA-F]{2})")
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


class Framing(StrEnum):
    """How records are told apart."""

    DELIMITER = "delimiter"
    OCTETS = "octets"
    LENGTH = "length"


class Acks(StrEnum):
    """What is answered once records are durable."""

    NONE = "none"
    LINE = "line"
    BATCH = "batch"


class Keyed(StrEnum):
    """What becomes a record's key."""

    NONE = "none"
    CLIENT = "client"


LINES_KEYS: Final = (
    Key("topic", str, "Where lines go; by default a topic with the gateway's name.", check=check_topic_name),
    *stream_keys(f"The TCP port, {DEFAULT_PORT} if neither it nor unix is given; 0 takes a free one.",
        "The path of a Unix stream socket to listen on."),
    Key("framing", str, "How records are told apart: a delimiter, octets (a count in digits and a space before each, "
        "as RFC 6587 has it), or length (a binary length before each).", Framing.DELIMITER.value,
        choices=tuple(each.value for each in Framing)),
    Key("delimiter", str, r"What ends a record; \n, \r, \t, \0, \\ and \xHH stand for what they do in Python. Before "
        r"\n, a \r goes as well.", r"\n"),
    Key("length_bytes", int, "How many bytes a length has: 1, 2 or 4, the greatest first.", 4),
    Key("max_line", int, "How many bytes of a record are kept; the rest is cut, and counted. With ack it is refused.",
        LINE_BYTES, least=1, most=16 * 1024 * 1024),
    Key("ack", str, "What is answered once records are durable: nothing, or OK and ERR, per line or per batch, which "
        "an empty line ends.", Acks.NONE.value, choices=tuple(each.value for each in Acks)),
    Key("key", str, "The key of a record: none, or the client's address.", Keyed.NONE.value,
        choices=tuple(each.value for each in Keyed)),
    Key("header", str, "The name of a header with the client's address, if one is wanted."),
    *inward_keys(),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LinesSettings:
    """One listener for lines."""

    name: str
    topic: str
    streams: StreamSettings
    framing: Framing = Framing.DELIMITER
    delimiter: bytes = b"\n"
    length_bytes: int = 4
    line_bytes: int = LINE_BYTES
    acks: Acks = Acks.NONE
    key: Keyed = Keyed.NONE
    header: str | None = None

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> "LinesSettings":
        """From a section with its defaults; raises the first thing that is wrong."""
        topic = values.get("topic") or name
        check_topic_name(topic)
        where = f"gateways.{name}"
        given = dict(values)
        if given.get("port") is None and not given.get("unix"):
            given["port"] = DEFAULT_PORT
        if values["length_bytes"] not in LENGTHS:
            raise GatewayError(f"[{where}] length_bytes is {values['length_bytes']}: choose 1, 2 or 4")
        return cls(
            name,
            topic,
            StreamSettings.of(where, given),
            Framing(values["framing"]),
            read_delimiter(values["delimiter"], where),
            values["length_bytes"],
            values["max_line"],
            Acks(values["ack"]),
            Keyed(values["key"]),
            values.get("header"),
        )

    def framer(self) -> Framer:
        """For a new connection."""
        match self.framing:
            case Framing.OCTETS:
                return OctetFramer(self.line_bytes)
            case Framing.LENGTH:
                return LengthFramer(self.line_bytes, self.length_bytes)
        return DelimiterFramer(self.line_bytes, self.delimiter)


def read_delimiter(text: str, where: str) -> bytes:
    """The bytes that a delimiter is written as; raises for none, and for too many."""
    delimiter = _ESCAPE.sub(_escaped, text.encode(errors="replace"))
    if not 0 < len(delimiter) <= _MOST_DELIMITER_BYTES:
        raise GatewayError(
            f'[{where}] delimiter is {text!r}: give 1 to {_MOST_DELIMITER_BYTES} bytes, for example "\\\\n" or "\\\\0"'
        )
    return delimiter


def _escaped(found: re.Match[bytes]) -> bytes:
    name = found[1]
    return bytes([int(name[1:], 16)]) if name[:1] == b"x" else _ESCAPES[name]
