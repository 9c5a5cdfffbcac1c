"""What each column of the source is: something about the record, or a field of its decoded value. And making them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.pipelines.columns import arrow
from headrace.pipelines.columns.decoders import decoder_for
from headrace.pipelines.columns.decoding import Decoder
from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.errors import BadSchema
from headrace.pipelines.source.options import SourceOptions

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
# Names and types are those of Spark's own Kafka source, so that a query can change from one to the other.
RECORD: dict[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(),),
    "timestampType": (IntegerType(),),
    "headers": (_HEADERS,),
    "idle": (BooleanType(),),  # not of a record: see `idle`
}
MARK = "_"  # in front of a record's own columns where the value is decoded and has columns too


def raw_schema(*, include_headers: bool) -> StructType:
    left_out = ("idle",) if include_headers else ("idle", "headers")
    names = [name for name in RECORD if name not in left_out]
    return StructType([StructField(name, RECORD[name][0]) for name in names])


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a source, in order: each is about the record (its name there) or a decoded field (None)."""

    arrow: pa.Schema
    about: tuple[str | None, ...]
    format: str
    decoded: pa.Schema

    def decoder(self, options: SourceOptions) -> Decoder | None:
        """What decodes the values; None where nothing of them is wanted decoded."""
        return decoder_for(self.format, self.decoded, options.decoder) if self.format != "raw" else None


def layout_of(schema: StructType, options: SourceOptions) -> Layout:
    """The layout for a schema that a user gave, or that was inferred; raises `BadSchema`."""
    is_raw = options.format == "raw"
    about: list[str | None] = []
    for field in schema.fields:
        name = field.name if is_raw else field.name.removeprefix(MARK) if field.name.startswith(MARK) else None
        if name is not None and name not in RECORD:
            if not is_raw:
                name = None  # a field of the value may begin with the mark as well
            else:
                raise BadSchema(
                    f"column {field.name!r} is not among those of a raw record ({', '.join(RECORD)}): "
                    'to read fields of the value, say how it is written with .option("format", "json")'
                )
        if name is not None and not any(_same(field.dataType, kind) for kind in RECORD[name]):
            kinds = " or ".join(kind.simpleString() for kind in RECORD[name])
            raise BadSchema(f"column {field.name!r} is declared {field.dataType.simpleString()}: it can be {kinds}")
        about.append(name)
    types = to_arrow_schema(schema, timezone="UTC")
    decoded = pa.schema([types.field(index) for index, name in enumerate(about) if name is None])
    return Layout(types, tuple(about), options.format, decoded)


def _same(declared: DataType, kind: DataType) -> bool:
    return declared.simpleString() == kind.simpleString()


# --- making the columns

Maker = Callable[[RecordColumns, str, int, pa.DataType], pa.Array]


def _spans(at: str) -> Maker:
    def make(records: RecordColumns, _topic: str, _partition: int, kind: pa.DataType) -> pa.Array:
        found = arrow.spans(pa.binary(), records.arena, getattr(records, f"{at}_at"), getattr(records, f"{at}_size"))
        try:
            return arrow.utf8(found) if kind == pa.string() else found
        except pa.ArrowInvalid as error:
            raise BadSchema(f"a {at} is not valid UTF-8: declare column {at!r} as binary ({error})") from error

    return make


def _all_valid(records: RecordColumns) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.ones(len(records), np.bool_)


_MAKERS: dict[str, Maker] = {
    "key": _spans("key"),
    "value": _spans("value"),
    "topic": lambda records, topic, _, kind: pa.repeat(pa.scalar(topic, kind), len(records)),
    "partition": lambda records, _, partition, kind: pa.repeat(pa.scalar(partition, kind), len(records)),
    "offset": lambda records, _, __, kind: arrow.fixed(kind, records.offset, _all_valid(records)),
    "timestamp": lambda records, _, __, kind: arrow.fixed(kind, records.timestamp * 1000, _all_valid(records)),
    "timestampType": lambda records, _, __, kind: arrow.fixed(
        kind, records.is_append_time.astype(np.int32), _all_valid(records)
    ),
    "headers": lambda records, _, __, kind: arrow.headers(records).cast(kind),
    "idle": lambda records, _, __, kind: pa.repeat(pa.scalar(False, kind), len(records)),
}


def record_column(name: str, records: RecordColumns, topic: str, partition: int, kind: pa.DataType) -> pa.Array:
    return _MAKERS[name](records, topic, partition, kind)
