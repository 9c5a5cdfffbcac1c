"""Every message in every version, against kio: another implementation, generated from Kafka's own schemas.

Our bytes are read by kio and written again by kio: the bytes must be the same, and field by field kio must have read
what we wrote. Then kio's bytes are read by us: the message must be the one that we began with.
"""

import dataclasses
import datetime as dt
import enum
import io
import uuid
from functools import cache
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from headrace.protocol.api import APIS
from headrace.protocol.codec import decode, encode
from headrace.protocol.frame import RequestHeader, ResponseHeader
from headrace.protocol.schema import INT64, ZERO_UUID, Primitive
from tests.property.message_strategies import PRIMITIVES, messages
from tests.property.storage_model import examples

BODIES = [
    (f"kio.schema.{api.key.name.lower()}.v{version}.{kind}", message, version)
    for api in APIS.values()
    for kind, message in (("request", api.request), ("response", api.response))
    for version in api.versions
]
HEADERS = [
    (f"kio.schema.{name}.v{version}.header", message, version)
    for name, message in (("request_header", RequestHeader), ("response_header", ResponseHeader))
    for version in message.__schema__.versions
]
CASES = [pytest.param(*case, id=f"{case[1].__name__}-v{case[2]}") for case in BODIES + HEADERS]

# kio has types of its own for some fields, with fewer values than the wire has: an error code must be in its table, and
# a time or a duration must fit Python's `datetime`. It refuses tagged fields that it does not know, so `unknown_tags`
# stay empty here; `test_messages_roundtrip.py` has them.
ERROR_CODES = st.sampled_from([code.value for code in KioErrorCode])
MILLISECONDS = st.sampled_from([0, 1, 1_700_000_000_123, 2**42])
NARROWED = {
    "log_append_time_ms": st.just(-1) | MILLISECONDS,
    "transaction_start_time_ms": MILLISECONDS,
    "retention_time_ms": st.just(-1) | MILLISECONDS,
    "session_lifetime_ms": MILLISECONDS,
}


OWN_TAGS = 10_000  # from here on fields are ours, which no Kafka declares


def _is_own(field):
    return field.tag is not None and field.tag >= OWN_TAGS


def _narrowed(field):
    if _is_own(field):
        return None
    if field.name.endswith("error_code"):
        return ERROR_CODES
    if field.type is INT64 and field.name in NARROWED:
        return NARROWED[field.name]
    return PRIMITIVES[field.type]


@cache
def _kio(module, name):
    entity = getattr(import_module(module), name)
    return entity_reader(entity), entity_writer(entity)


def _same(theirs, ours):
    """Whether a value that kio has read means what we wrote."""
    match theirs:
        case None:
            return ours is None or ours in (ZERO_UUID, -1)  # kio reads a uuid of zeros, and no time, as None
        case enum.Enum():
            return theirs.value == ours
        case uuid.UUID():
            return theirs.bytes == ours
        case dt.timedelta():
            return round(theirs.total_seconds() * 1000) == ours
        case dt.datetime():
            return round(theirs.timestamp() * 1000) == ours
        case tuple():
            return len(theirs) == len(ours) and all(map(_same, theirs, ours))
    return theirs == ours


def _assert_same_struct(theirs, ours, version):
    declared = [field for field in type(ours).__schema__.fields if field.exists(version) and not _is_own(field)]
    generated = dataclasses.fields(theirs)
    assert len(declared) == len(generated)
    for mine, other in zip(declared, generated, strict=True):
        # kio takes the unit off the names of times and durations; the order is the schema's in both.
        assert mine.name.removesuffix("_ms") == other.name.removesuffix("_ms")
        wrote, read = getattr(ours, mine.name), getattr(theirs, other.name)
        if wrote is None or read is None or isinstance(mine.type, Primitive):
            assert _same(read, wrote), f"{type(ours).__name__}.{mine.name}: {wrote!r} was read as {read!r}"
        elif mine.is_array:
            assert len(read) == len(wrote)
            for their_item, our_item in zip(read, wrote, strict=True):
                _assert_same_struct(their_item, our_item, version)
        else:
            _assert_same_struct(read, wrote, version)


@pytest.mark.parametrize(("module", "message", "version"), CASES)
def test_kio_reads_and_writes_the_same_bytes(module, message, version):
    read, write = _kio(module, message.__name__)

    @examples(10, derandomize=True, database=None)
    @given(messages(message, version, primitive=_narrowed))
    def check(ours):
        sent = encode(ours, version)
        theirs, size = read(sent, 0)
        assert size == len(sent)
        _assert_same_struct(theirs, ours, version)
        buffer = io.BytesIO()
        write(buffer, theirs)
        assert buffer.getvalue() == sent
        assert decode(message, version, buffer.getvalue()) == ours

    check()
