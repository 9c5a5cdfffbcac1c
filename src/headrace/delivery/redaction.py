"""An event that was redacted: a stand-in where its data was, with the digest of that, and a trace behind it. Pure.

A stand-in is known by its first bytes, which no store appends as data. It is JSON, so that whoever reads such data
meets an object without the fields that he looks for, and not a broken text. The digest stays so that a hash over the
event (`eventsourcing/hash_chain.py`) is what it was.
"""

import json
import re
from hashlib import sha256
from typing import Final, NamedTuple

REDACTION: Final = "headrace:redaction"  # the type of the event that says so, in the stream of what was redacted
STAND_IN: Final = b'{"headrace:redacted":"'
_STAND_IN: Final = re.compile(rb'\{"headrace:redacted":"([0-9a-f]{64})"\}')


def make_stand_in(digest: bytes) -> bytes:
    """What takes the place of data with this digest."""
    return STAND_IN + digest.hex().encode() + b'"}'


def read_stand_in(data: bytes) -> bytes | None:
    """The digest of what was there before; None if this is data."""
    found = _STAND_IN.fullmatch(data)
    return bytes.fromhex(found[1].decode()) if found else None


def digest_of(data: bytes) -> bytes:
    """Of an event's data, be it there or redacted."""
    if data.startswith(STAND_IN) and (digest := read_stand_in(data)) is not None:
        return digest
    return sha256(data).digest()


class Told(NamedTuple):
    """Which event a trace is about."""

    stream: str
    version: int
    digest: bytes  # of its data


def read_redaction(data: bytes) -> Told | None:
    """Which event a trace says was redacted; None if it does not."""
    try:
        match json.loads(data):
            case {"stream": str(stream), "version": int(version), "sha256": str(digest)}:
                return Told(stream, version, bytes.fromhex(digest))
    except (ValueError, RecursionError):
        pass
    return None
