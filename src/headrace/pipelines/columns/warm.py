"""Every compiled loop called once, so that a worker finds machine code in memory and need not compile.

The first call on a machine compiles, some seconds, and leaves the result on disk; later ones load it, some tenths.
"""

import json

import numpy as np
import pyarrow as pa

from headrace.pipelines.columns.arrow import headers, spans
from headrace.pipelines.columns.encode import Stamp, encode, outgoing, partitions_by_key
from headrace.pipelines.columns.json import JsonDecoder
from headrace.pipelines.columns.records import RecordColumns, columns_of
from headrace.records import Codec, Header, Record, build_batch, header_at

_ROW = {"text": "a\u00e9", "whole": 1, "real": 1.5, "time": "2026-01-01T00:00:00.5Z", "flag": True, "more": {"a": [1]}}
_SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("flag", pa.bool_()),
    ]
)


def warm() -> None:
    """Call what a task that reads JSON and one that writes records call."""
    records = _read()
    spans(pa.binary(), records.arena, records.value_at, records.value_size)
    headers(records)
    JsonDecoder(_SCHEMA).decode(records)
    out = outgoing(1, values=pa.array([b"v"]), keys=pa.array([b"k"]), headers=None, timestamps=np.zeros(1, np.int64))
    rows = np.zeros(1, np.int64)
    partitions_by_key(out, rows, 3)
    encode(out, rows, Stamp(), Codec.NONE)


def _read() -> RecordColumns:
    value = json.dumps(_ROW).encode()
    batch = build_batch([Record(0, 0, b"k", value, (Header("h", b"x"),)), Record(1, 0, None, value)], codec=Codec.NONE)
    return columns_of([(header_at(batch), memoryview(batch))])
