"""Every date and time from the year 1 to 9999, in each format that is read and into each that is written."""

import io
import json
from datetime import UTC, date, datetime, timedelta

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from headrace.pipelines.columns.arrow import MICROSECONDS_UTC
from headrace.pipelines.columns.avro import AvroDecoder
from headrace.pipelines.columns.csv import CsvDecoder
from headrace.pipelines.columns.encode import Stamp, encode
from headrace.pipelines.columns.json import JsonDecoder
from headrace.pipelines.columns.protobuf import ProtobufDecoder
from headrace.pipelines.sink.topic.outgoing import columns_of
from headrace.records import Codec, records_of
from headrace.stores.postgres.batch import copy_text
from headrace.stores.sqlite.database import cell_values
from tests.value_columns import rows_of, value_columns

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The ends of Python's, Spark's and SQL's years; where nanoseconds end, and where doubles no longer hold microseconds.
TIMES = [
    datetime.min.replace(tzinfo=UTC),
    datetime(1582, 10, 4, 23, 59, 59, 999999, UTC),
    datetime(1677, 9, 21, 0, 12, 43, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(2255, 6, 5, 23, 47, 34, 740993, UTC),
    datetime(2262, 4, 11, 23, 47, 17, tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
]
ROWS = [[time, time.date()] for time in TIMES]
SCHEMA = pa.schema([("at", MICROSECONDS_UTC), ("day", pa.date32())])


def test_read_from_text():
    lines = [f"{time.isoformat()},{day}".encode() for time, day in ROWS]
    assert rows_of(CsvDecoder(SCHEMA).decode(value_columns(lines))) == ROWS
    objects = [json.dumps({"at": time.isoformat(), "day": str(day)}).encode() for time, day in ROWS]
    assert rows_of(JsonDecoder(SCHEMA).decode(value_columns(objects))) == ROWS
    nested = pa.schema([("l", pa.list_(MICROSECONDS_UTC)), ("s", pa.struct([("day", pa.date32())]))])
    objects = [json.dumps({"l": [time.isoformat()], "s": {"day": str(day)}}).encode() for time, day in ROWS]
    assert rows_of(JsonDecoder(nested).decode(value_columns(objects))) == [[[time], {"day": day}] for time, day in ROWS]


@pytest.mark.parametrize(("unit", "micros"), [("us", 1), ("ms", 1000), ("s", 1_000_000)])
def test_read_from_numbers(unit, micros):
    numbers = [(time - EPOCH) // timedelta(microseconds=micros) for time in TIMES]
    read = JsonDecoder(pa.schema([("at", MICROSECONDS_UTC)]), epoch_unit=unit)
    found = rows_of(read.decode(value_columns([f'{{"at":{number}}}'.encode() for number in numbers])))
    assert found == [[EPOCH + timedelta(microseconds=micros * number)] for number in numbers]


@pytest.mark.parametrize("in_list", [False, True], ids=["compiled", "library"])
def test_read_from_avro(in_list):
    kinds = [{"type": "long", "logicalType": "timestamp-micros"}, {"type": "int", "logicalType": "date"}]
    schema = SCHEMA
    if in_list:
        kinds = [{"type": "array", "items": kind} for kind in kinds]
        schema = pa.schema([(field.name, pa.list_(field.type)) for field in SCHEMA])
    fields = [{"name": name, "type": kind} for name, kind in zip(("at", "day"), kinds, strict=True)]
    writer = {"type": "record", "name": "R", "fields": fields}
    rows = [[[value] for value in row] for row in ROWS] if in_list else ROWS
    raw = [written(writer, dict(zip(("at", "day"), row, strict=True))) for row in rows]
    assert rows_of(AvroDecoder(schema, writer=json.dumps(writer)).decode(value_columns(raw))) == rows


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def test_read_from_protobuf():
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="t.proto", package="t", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    kinds = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="M").field.add(
        name="at", number=1, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL, type_name=".google.protobuf.Timestamp"
    )
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.AddSerializedFile(each.SerializeToString())
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.M"))
    raw = []
    for time in TIMES:
        found = message()
        found.at.seconds, rest = divmod((time - EPOCH) // timedelta(microseconds=1), 1_000_000)
        found.at.nanos = rest * 1000
        raw.append(found.SerializeToString())
    decoder = ProtobufDecoder(
        SCHEMA.remove(1), descriptor_set=files.SerializeToString(), message="t.M", is_framed=False
    )
    assert rows_of(decoder.decode(value_columns(raw))) == [[time] for time in TIMES]


def test_written_as_the_times_of_records():
    batch = pa.record_batch({"value": pa.array(["x"] * len(TIMES)), "timestamp": pa.array(TIMES, MICROSECONDS_UTC)})
    out = columns_of(batch)
    sent = encode(out, np.arange(len(TIMES)), Stamp(), Codec.NONE)
    found = [record.timestamp for record in records_of(sent)]
    assert found == [(time - EPOCH) // timedelta(milliseconds=1) for time in TIMES]


def test_written_into_tables():
    at, day = pa.array(TIMES, MICROSECONDS_UTC), pa.array([time.date() for time in TIMES], pa.date32())
    assert [datetime.fromisoformat(text) for text in cell_values(at)] == TIMES
    assert [date.fromisoformat(text) for text in cell_values(day)] == [time.date() for time in TIMES]
    lines = bytes(copy_text(pa.record_batch([at, day], names=["at", "day"]))).decode().splitlines()
    assert [[datetime.fromisoformat(a), date.fromisoformat(b)] for a, b in (line.split("\t") for line in lines)] == ROWS
