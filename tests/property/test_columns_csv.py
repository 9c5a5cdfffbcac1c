"""The CSV decoder against Python's csv module: rows that it writes, and lines that were altered."""

import csv
import io

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.pipelines.columns.csv import CsvDecoder
from tests.value_columns import rows_of, value_columns

# No NUL (csv refuses it) and no surrogates; plenty of what matters to CSV.
texts = st.text(st.sampled_from(list("ab\",;'\n\r é名 |1")), max_size=8)
delimiters = st.sampled_from([",", ";", "|", "\t"])
quotes = st.sampled_from(['"', "'"])


def line(row: list[str], delimiter: str, quote: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quotechar=quote, lineterminator="", quoting=csv.QUOTE_ALL).writerow(row)
    return out.getvalue().encode()


@given(st.lists(st.lists(texts, min_size=3, max_size=3), max_size=5), delimiters, quotes,
       st.sampled_from([b"", b"\n", b"\r\n"]))  # fmt: skip
def test_texts_come_back_as_they_were_written(rows: list[list[str]], delimiter: str, quote: str, ending: bytes) -> None:
    schema = pa.schema([(name, pa.string()) for name in "abc"])
    data = [line(row, delimiter, quote) + ending for row in rows]
    decoded = CsvDecoder(schema, delimiter=delimiter, quote=quote).decode(value_columns(data))
    assert decoded.broken == {}
    assert rows_of(decoded) == rows


MIXED = pa.schema([("n", pa.int32()), ("t", pa.string()), ("x", pa.float64())])
GOOD = b'7,"a\nb",1.5'


@given(st.lists(st.text(st.sampled_from(list('",\n\ra1.')), max_size=12).map(str.encode), max_size=6))
@example([b'"', b'"', b"1,2,3\n1,2,3"])
@example([b'1,"a', b'b",2', b"1,2,3\n\n"])
@example([b'1,"a"b,2'])
def test_no_line_runs_into_its_neighbours(lines: list[bytes]) -> None:
    data = [piece for odd in lines for piece in (GOOD, odd)] + [GOOD, None]
    decoded = CsvDecoder(MIXED).decode(value_columns(data))
    rows = rows_of(decoded)
    alone = [rows_of(CsvDecoder(MIXED).decode(value_columns([odd])))[0] for odd in data]
    assert rows == alone
    assert all(rows[row] == [None] * 3 for row in decoded.broken)
    assert all(rows[row] == [7, "a\nb", 1.5] for row in range(0, len(data) - 1, 2))
    for row, odd in enumerate(data[:-1]):
        fields = next(csv.reader(io.StringIO((odd or b"").decode(), newline="")), [""])
        if row not in decoded.broken:
            assert rows[row][1] in (fields[1], None)
            assert len(fields) == 3


@given(st.lists(st.tuples(st.integers(-(2**33), 2**33) | st.none(), st.floats(allow_nan=False, allow_infinity=False))))
def test_numbers_that_do_not_fit_break_their_own_row_only(pairs: list[tuple[int | None, float]]) -> None:
    data = [f"{'' if whole is None else whole},x,{real!r}".encode() for whole, real in pairs]
    decoded = CsvDecoder(MIXED).decode(value_columns(data))
    large = {row for row, (whole, _) in enumerate(pairs) if whole is not None and not -(2**31) <= whole < 2**31}
    assert set(decoded.broken) == large
    assert all("field 'n'" in reason for reason in decoded.broken.values())
    right = [[None] * 3 if row in large else [whole, "x", real] for row, (whole, real) in enumerate(pairs)]
    assert rows_of(decoded) == right
