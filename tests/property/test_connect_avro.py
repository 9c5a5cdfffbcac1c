"""Avro says the same as JSON with its schema: of every type, of any values, to whoever keeps a copy in step."""

import contextlib
import json
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.avro import binary
from headrace.connect.avro.reading import AvroReader
from headrace.connect.change import Change
from headrace.connect.envelope import EnvelopeSettings, EnvelopeWriter, TopicNames
from headrace.connect.filters import Filters
from headrace.connect.sync.decoding import RecordFormat, read_key, read_value
from headrace.connect.sync.meanings import UnreadableRecord, is_unavailable
from headrace.connect.table import UNCHANGED, Table, to_wire
from tests.property.storage_model import examples
from tests.property.test_connect_postgres_text import TEXT, array_text
from tests.unit.connect.avro.avro_records import NOW_US, ORIGIN, PLACE, Schemas, column


def hexadecimal(data: bytes) -> str:
    return "\\x" + data.hex()


def numeric(number: Any) -> str:
    return f"{number:f}"


def moment(value: Any) -> str:
    return str(value.isoformat(sep=" "))


def single(value: float) -> str:
    return repr(struct.unpack("<f", struct.pack("<f", value))[0])


NUMBERS = st.decimals(-(10**7), 10**7, places=2, allow_nan=False, allow_infinity=False)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[str]]] = {
    "id": (column("id", 20), st.integers(-(2**63), 2**63 - 1).map(str)),
    "small": (column("small", 21), st.integers(-(2**15), 2**15 - 1).map(str)),
    "text": (column("text", 25), TEXT.map(to_wire)),
    "odd name!": (column("odd name!", 25), TEXT.map(to_wire)),
    "flag": (column("flag", 16), st.sampled_from("tf")),
    "real": (column("real", 700), FLOATS.map(single)),
    "double": (column("double", 701), st.floats(allow_nan=False, allow_infinity=False).map(repr)),
    "money": (column("money", 1700, modifier=655366, decimal="precise"), NUMBERS.map(numeric)),
    "number": (column("number", 1700), NUMBERS.map(numeric)),
    "loose": (column("loose", 1700, decimal="precise"), NUMBERS.map(numeric)),
    "bytes": (column("bytes", 17), st.binary(max_size=20).map(hexadecimal)),
    "bits": (column("bits", 1562), st.text("01", max_size=20)),
    "day": (column("day", 1082), st.dates().map(lambda day: day.isoformat())),
    "moment": (column("moment", 1114), st.datetimes().map(moment)),
    "coarse": (column("coarse", 1114, modifier=0), st.datetimes().map(lambda at: moment(at.replace(microsecond=0)))),
    "clock": (column("clock", 1083), st.times().map(lambda clock: clock.isoformat())),
    "document": (column("document", 3802), st.dictionaries(TEXT, TEXT, max_size=2).map(json.dumps).map(to_wire)),
    "texts": (column("texts", 1009), st.lists(TEXT | st.none(), max_size=3).map(array_text).map(to_wire)),
    "wholes": (column("wholes", 1016), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(
        lambda all_of: "{" + ",".join(map(str, all_of)) + "}")),
}  # fmt: skip
TABLE = Table("public", "all", tuple(found for found, _ in COLUMNS.values()), (0,))
TOASTED = (
    "text",
    "odd name!",
    "bytes",
    "bits",
    "document",
    "texts",
    "wholes",
)  # what may be too large to be sent again
ROWS = st.tuples(
    *(
        values if name == "id" else values | st.none() | st.just(UNCHANGED) if name in TOASTED else values | st.none()
        for name, (_, values) in COLUMNS.items()
    )
)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers(number: int) -> None:
    data = binary.long(number)
    value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))
    assert (value >> 1) ^ -(value & 1) == number
    assert all(byte & 0x80 for byte in data[:-1])
    assert data[-1] < 0x80


@examples(60)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_rows_are_read_as_from_json_with_its_schema(rows: list[Any]) -> None:
    schemas = Schemas()
    events = [Change(TABLE, "u", None, row, ORIGIN, PLACE) for row in rows]
    options: dict[str, Any] = {"connector": "postgresql", "database": "shop", "version": "1", "names": TopicNames("p")}
    in_json = EnvelopeWriter(EnvelopeSettings(**options, schemas=True), Filters()).write(events, NOW_US)
    in_avro = EnvelopeWriter(EnvelopeSettings(**options, format="avro"), Filters(), schemas).write(events, NOW_US)
    avro = RecordFormat(format="avro", reader=AvroReader(schemas.text))
    for one, other, row in zip(in_json, in_avro, rows, strict=True):
        assert read_key(one.key, RecordFormat()) == read_key(other.key, avro)
        expected, found = read_value(one.value, RecordFormat()).after, read_value(other.value, avro).after
        assert expected is not None
        assert found is not None
        for name, value in zip(COLUMNS, row, strict=True):
            if value is UNCHANGED:
                assert is_unavailable(expected[name])
                assert is_unavailable(found[name])
                assert avro.leaves_out(other.value)
            else:
                assert found[name] == expected[name], name


@given(st.binary(max_size=40))
def test_a_broken_value_is_told_and_breaks_nothing(data: bytes) -> None:
    schemas = Schemas()
    writer = EnvelopeWriter(
        EnvelopeSettings("postgresql", "shop", "1", TopicNames("p"), format="avro"), Filters(), schemas
    )
    (good,) = writer.write([Change(TABLE, "t", None, None, ORIGIN, PLACE)], NOW_US)
    assert good.value is not None
    avro = RecordFormat(format="avro", reader=AvroReader(schemas.text))
    assert avro.may_truncate(good.value)
    assert read_value(good.value, avro).truncates == (1600000000000001, 42, 0, 0, 0)
    for broken in (data, good.value[:5] + data):
        avro.may_truncate(broken)
        with contextlib.suppress(UnreadableRecord):  # and nothing else
            read_value(broken, avro)
