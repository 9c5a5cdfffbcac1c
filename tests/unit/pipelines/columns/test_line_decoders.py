"""What a user can declare of lines of logs, and what is refused."""

import pyarrow as pa
import pytest

from headrace.pipelines.columns.decoders import decoder_for
from headrace.pipelines.errors import PipelineError
from tests.value_columns import rows_of, value_columns

LINE = b'::1 - - [18/Nov/2026:19:00:00 +0000] "GET /a?b HTTP/1.1" 404 70000 "-" "x"'


def test_some_columns_in_another_order() -> None:
    schema = pa.schema([("status", pa.int64()), ("path", pa.string())])
    decoded = decoder_for("combined", schema, {}).decode(value_columns([LINE, b"\\x", None]))
    assert rows_of(decoded) == [[404, "/a"], [None, None], [None, None]]
    assert list(decoded.broken) == [1]


def test_a_number_that_does_not_fit_is_named() -> None:
    decoded = decoder_for("combined", pa.schema([("body_bytes", pa.int16())]), {}).decode(value_columns([LINE]))
    assert decoded.broken == {0: "field 'body_bytes' is 70000, too large for int16"}


@pytest.mark.parametrize(
    ("format_", "schema", "options", "why"),
    [
        ("combined", {"pth": pa.string()}, {}, "a line in the format combined has no field 'pth'"),
        ("common", {"referer": pa.string()}, {}, "a line in the format common has no field 'referer'"),
        ("combined", {"status": pa.string()}, {}, "column 'status' of the format combined is int32, not string"),
        ("syslog", {"host": pa.string()}, {"timezone": "Mars/Base"}, "timeZone is 'Mars/Base', which is not a zone"),
        ("syslog", {"host": pa.string()}, {"timezone": "../x"}, "timeZone is '../x', which is not a zone"),
        ("combined", {"status": pa.int32()}, {"timezone": "UTC"}, "the format combined has no option 'timeZone'"),
        ("logfmt", {"a": pa.list_(pa.string())}, {}, "column 'a' is of type list<"),
    ],
)
def test_refused(format_: str, schema: dict[str, pa.DataType], options: dict[str, str], why: str) -> None:
    with pytest.raises(PipelineError) as error:
        decoder_for(format_, pa.schema(list(schema.items())), options)
    assert why in str(error.value)
