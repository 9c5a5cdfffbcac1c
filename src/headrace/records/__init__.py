"""Record batches of Kafka's format v2: the unit that is produced, stored, fetched and compacted.

A batch is opaque to nearly everybody: `batch.py` reads its 61-byte header and no more. Only compaction, look-up by
time inside a batch and whoever shows records to a person decode what is inside (`record.py`).
"""

from headrace.records.batch import (
    COPY_SEQUENCE,
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    crc_of,
    header_at,
    headers_in,
    prefix,
)
from headrace.records.building import ControlType, build_batch, build_marker, control_type_of, marker_in
from headrace.records.compression import Codec, compress, decompress
from headrace.records.errors import (
    BatchTooLarge,
    BodyTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordsError,
    UnsupportedFormat,
)
from headrace.records.record import Header, Record, records_of
from headrace.records.validation import Rules, validate, validate_in_steps

__all__ = [
    "COPY_SEQUENCE",
    "HEADER_SIZE",
    "BatchHeader",
    "BatchTooLarge",
    "BodyTooLarge",
    "Buffer",
    "Codec",
    "ControlType",
    "CorruptBatch",
    "Header",
    "InvalidRecord",
    "InvalidTimestamp",
    "Record",
    "RecordsError",
    "Rules",
    "UnsupportedFormat",
    "build_batch",
    "build_marker",
    "compress",
    "control_type_of",
    "crc_of",
    "decompress",
    "header_at",
    "headers_in",
    "marker_in",
    "prefix",
    "records_of",
    "validate",
    "validate_in_steps",
]
