"""The decoders of log lines against the exact readers: lines as servers write them, altered lines, and any bytes."""

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.log_formats import InvalidLine, read_combined, read_common, read_logfmt, read_syslog
from headrace.pipelines.columns.logs.lines import FIELDS, LineDecoder, line_schema
from headrace.pipelines.columns.logs.logfmt import LogfmtDecoder
from tests.value_columns import rows_of, value_columns

READ = {"common": read_common, "combined": read_combined}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RECEIVED_MS = 0  # as `value_columns` has it: the beginning of 1970

ODD = st.sampled_from(
    [
        b" ",
        b'"',
        b"\\",
        b"-",
        b"[",
        b"]",
        b"\n",
        b"\r",
        b"<",
        b">",
        b":",
        b"=",
        b"?",
        b"\xff",
        b"\xc3\xa9",
        b"\xef\xbb\xbf",
        b"\\x41",
        b'\\"',
        b"1 ",
        b"Feb 29",
        b"+23:59",
        b"9999",
        b"\x00",
        b"/",
    ]
)
WORD = st.sampled_from(
    [b"-", b"::1", b"10.0.0.1", b"frank", b"frank smith", b"\xc3\xa9", b"\\xC3\\xA9", b"a\\xffb", b"\xff", b"x]"]
)
ZONE = st.sampled_from([b"+0000", b"-0700", b"+2359", b"+2400", b"+0160"])


@st.composite
def altered(draw: st.DrawFn, lines: st.SearchStrategy[bytes]) -> bytes:
    """A line with a few of its bytes taken out, and others put in."""
    line = bytearray(draw(lines))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(line)))
        line[at : at + draw(st.integers(0, 3))] = draw(ODD | st.just(b""))
    return bytes(line)


@st.composite
def access_lines(draw: st.DrawFn) -> bytes:
    day, month = draw(st.integers(0, 32)), draw(st.sampled_from([b"Jan", b"Feb", b"Oct", b"Xyz"]))
    year, hour = draw(st.sampled_from([0, 1, 1000, 1900, 2000, 2024, 2026, 9000, 9999])), draw(st.integers(0, 24))
    time = b"%02d/%b/%04d:%02d:30:59 %b" % (day, month, year, hour, draw(ZONE))
    request = draw(
        st.sampled_from(
            [
                b"GET / HTTP/1.1",
                b"GET /a?b=c?d HTTP/1.0",
                b"GET /",
                b"hello world",
                b"-",
                b"",
                b"GET  HTTP/1.1",
                b"G\xc3\xa9T / HTTP/1.1",
                b"CONNECT a:443 HTTP/1.1",
                b"OPTIONS * HTTP/2.0",
                b"GET /a b HTTP/1.1",
                b"GET / HTTP/",
                b"GET / HTTP/x",
                b"\\x16\\x03\\x01",
                b'GET /\\"q\\" HTTP/1.1',
                b"GET ?x HTTP/1.1",
                b"GET /? HTTP/1.1",
            ]
        )
    )
    behind = draw(
        st.sampled_from(
            [
                b"",
                b' "-" "-"',
                b' "http://r/" "Moz (X; \xc3\xa9)"',
                b' "" ""',
                b' "-" "-" 0.005',
                b" 0.005",
                b' "a" "b" ',
            ]
        )
    )
    status, size = (
        draw(st.sampled_from([b"200", b"-", b"99", b"0404"])),
        draw(st.sampled_from([b"0", b"-", b"2326", b"9" * 18, b"9" * 19])),
    )
    parts = [draw(WORD), draw(WORD), draw(WORD), b"[" + time + b"]", b'"' + request + b'"', status, size + behind]
    return b" ".join(parts) + draw(st.sampled_from([b"", b"\n", b"\r\n", b"\r"]))


@st.composite
def syslog_lines(draw: st.DrawFn) -> bytes:
    priority = draw(st.sampled_from([b"", b"<0>", b"<34>", b"<191>", b"<192>", b"<034>", b"<>", b"<1234>"]))
    day = draw(st.integers(0, 32))
    time = draw(
        st.sampled_from(
            [
                b"Oct %2d 22:14:15" % day,
                b"Feb %02d 02:30:00" % day,
                b"Feb %d 02:30:00" % day,
                b"Jan  1 00:00:00",
                b"Jan  2 00:00:01",
                b"Jun %2d 2003 22:14:15" % day,
                b"Oct 11 22:14:15.123",
                b"Oct 11 24:14:15",
                b"2003-10-%02dT22:14:15.003Z" % day,
                b"2003-10-11T22:14:15",
                b"2003-10-11T22:14:15.123456789+23:59",
                b"0001-01-01T00:00:00+01:00",
                b"9999-12-31T23:59:59-01:00",
                b"2003-10-11 22:14:15Z",
                b"-",
                b"2016-12-31T23:59:60Z",
            ]
        )
    )
    head = draw(
        st.sampled_from(
            [
                b"host app[12]: ",
                b"app: ",
                b"host app: ",
                b"host ",
                b"- app[]:",
                b" x",
                b"host app[1]",
                b"fe80::1 a/b[1]: ",
            ]
        )
    )
    data = draw(
        st.sampled_from(
            [
                b"-",
                b'[a@1 b="c"]',
                b'[a@1 b="\\]\\"\\\\" b="d"][e]',
                b'[a b="]"]',
                b"[a b=c]",
                b"[]",
                b'[a b="c"] ',
                b"[a][a]",
                b"",
            ]
        )
    )
    new = b"1 %b %b %b %b %b %b" % (time, draw(WORD), draw(WORD), draw(WORD), draw(WORD), data)
    text = draw(st.sampled_from([b"", b"hello", b"\xef\xbb\xbfh\xc3\xa9", b"\xff", b"two\nlines"]))
    return priority + (new + b" " + text if draw(st.booleans()) else time + b" " + head + text)


def exact(name: str, line: bytes, zone: Any = UTC) -> list[object] | str:
    try:
        found: Any = read_syslog(line, received_ms=RECEIVED_MS, zone=zone) if name == "syslog" else READ[name](line)
    except InvalidLine as error:
        return str(error)
    row = [getattr(found, field) for field in line_schema(name).names]
    return [
        [(key, list(value.items())) for key, value in cell.items()] if isinstance(cell, Mapping) else cell
        for cell in row
    ]


def compare(name: str, lines: list[bytes], zone: Any = UTC) -> None:
    decoded = LineDecoder(name, line_schema(name), zone).decode(value_columns([*lines, None]))
    rows = rows_of(decoded)
    for row, line in enumerate(lines):
        right = exact(name, line, zone)
        if isinstance(right, str):
            assert (decoded.broken[row], rows[row]) == (right, [None] * len(rows[row]))
        else:
            assert (rows[row], row in decoded.broken) == (right, False)
    assert rows[-1] == [None] * len(rows[-1])


@given(st.lists(altered(access_lines()) | st.binary(max_size=60), max_size=4), st.sampled_from(["common", "combined"]))
@example([b'::1 - - [29/Feb/1900:00:00:00 +0000] "GET / HTTP/1.1" 200 1'], "common")
def test_access_lines(lines: list[bytes], name: str) -> None:
    compare(name, lines)


@given(
    st.lists(altered(syslog_lines()) | st.binary(max_size=60), max_size=4),
    st.sampled_from(
        [UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), timezone(timedelta(hours=-5, minutes=-30))]
    ),
)
@example([b"<1>Mar 29 02:30:00 h a: gap", b"<1>Oct 25 02:30:00 h a: twice"], ZoneInfo("Europe/Berlin"))
def test_syslog_messages(lines: list[bytes], zone: Any) -> None:
    compare("syslog", lines, zone)


LOGFMT = pa.schema(
    [
        ("t", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("d", pa.date32()),
        ("c", pa.decimal128(6, 2)),
        ("y", pa.binary()),
    ]
)
VALUES = st.sampled_from(
    [
        "",
        "1",
        "-7",
        "007",
        "2147483648",
        "1.5",
        "1e400",
        "1.2345678901234567890123",
        "true",
        "False",
        "2026-01-01",
        "2026-01-01T00:00:00Z",
        "abc",
        "a=b",
        '"a b"',
        '"\\"q\\""',
        '"\\u00e9\\n"',
        '"\\ud800"',
        '"\\x"',
        '"',
        '""',
        "é",
        "\udcff",
        '"\udcff\\n"',
        '"1"',
        "12.34",
        "12.345",
        'a"b',
    ]
)


@st.composite
def logfmt_lines(draw: st.DrawFn) -> bytes:
    pairs = draw(st.lists(st.tuples(st.sampled_from([*LOGFMT.names, "other"]), VALUES | st.none()), max_size=5))
    text = draw(st.sampled_from([" ", "  ", "\t"])).join(
        name if value is None else f"{name}={value}" for name, value in pairs
    )
    return text.encode(errors="surrogateescape")


def exact_logfmt(line: bytes, kinds: Mapping[str, pa.DataType], epoch_micros: int) -> dict[str, Any] | str:
    try:
        return LogfmtDecoder.read_one(line, kinds, epoch_micros)
    except ValueError as error:
        return str(error)


@given(st.lists(altered(logfmt_lines()) | st.binary(max_size=40), max_size=5), st.sampled_from([None, "ms"]))
def test_logfmt_lines(lines: list[bytes], unit: str | None) -> None:
    decoded = LogfmtDecoder(LOGFMT, epoch_unit=unit).decode(value_columns([*lines, None]))
    rows = rows_of(decoded)
    kinds = {field.name: field.type for field in LOGFMT}
    for row, line in enumerate(lines):
        right = exact_logfmt(line, kinds, 1000 if unit else 0)
        if isinstance(right, str):
            assert (decoded.broken[row], rows[row]) == (right, [None] * len(kinds))
            continue
        assert row not in decoded.broken
        again = [pa.array([right[name]], kind).to_pylist()[0] for name, kind in kinds.items()]
        assert rows[row] == again


@given(
    st.binary(max_size=200) | altered(access_lines()) | altered(syslog_lines()) | altered(logfmt_lines()),
    st.integers(-(2**63), 2**63 - 1),
)
def test_exact_readers_raise_nothing_but_invalid_line(line: bytes, received_ms: int) -> None:
    for read in (read_common, read_combined, read_logfmt, lambda line: read_syslog(line, received_ms=received_ms)):
        with contextlib.suppress(InvalidLine):
            read(line)  # type: ignore[operator]


@given(
    st.text(st.characters(exclude_characters='"\\', min_codepoint=0x20), min_size=1),
    st.text(st.characters(min_codepoint=1)),
)
def test_what_a_server_escapes_comes_back(user_agent: str, request: str) -> None:
    def nginx(text: str) -> bytes:
        return b"".join(
            b"\\x%02X" % byte if byte < 0x20 or byte > 0x7E or byte in b'"\\' else bytes((byte,))
            for byte in text.encode()
        )

    line = b'::1 - - [10/Oct/2000:13:55:36 -0700] "%b" 400 0 "-" "%b"' % (nginx(request), nginx(user_agent))
    found = read_combined(line)
    assert found.user_agent == (None if user_agent == "-" else user_agent)
    assert found.request == (None if request == "-" else request)


def test_fields_are_those_of_the_readers() -> None:
    assert list(FIELDS["combined"]) == list(
        read_combined(b'a - - [10/Oct/2000:13:55:36 -0700] "" 200 1 "" ""').__slots__
    )
