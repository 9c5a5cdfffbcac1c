"""Lines of logs: those of the RFCs and of the servers' documentation, and what is odd about real ones."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from headrace.log_formats import (
    InvalidLine,
    level_of,
    read_combined,
    read_common,
    read_logfmt,
    read_syslog,
)

NOW = int(datetime(2026, 1, 3, 12, tzinfo=UTC).timestamp() * 1000)


def at(*parts: int, zone: timezone = UTC) -> datetime:
    return datetime(*parts, tzinfo=zone)  # type: ignore[arg-type,misc]


# --- access logs


def test_the_example_of_apaches_documentation() -> None:
    line = read_combined(
        b'127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 '
        b'"http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'
    )
    assert (line.client, line.identity, line.user) == ("127.0.0.1", None, "frank")
    assert line.time == at(2000, 10, 10, 13, 55, 36, zone=timezone(timedelta(hours=-7)))
    assert (line.method, line.path, line.query, line.protocol) == ("GET", "/apache_pb.gif", None, "HTTP/1.0")
    assert (line.status, line.body_bytes) == (200, 2326)
    assert line.referer == "http://www.example.com/start.html"
    assert line.user_agent == "Mozilla/4.08 [en] (Win98; I ;Nav)"


def test_what_scanners_leave_in_a_log() -> None:
    tls = read_combined(rb'2001:db8::7 - - [18/Nov/2026:19:00:00 +0000] "\x16\x03\x01\x02" 400 157 "-" "-"')
    assert tls.client == "2001:db8::7"
    assert (tls.request, tls.method, tls.path, tls.status) == ("\x16\x03\x01\x02", None, None, 400)
    empty = read_common(b'::1 - - [18/Nov/2026:19:00:00 +0000] "-" 408 -')
    assert (empty.request, empty.status, empty.body_bytes) == (None, 408, None)
    quoted = read_combined(
        b'::1 - - [18/Nov/2026:19:00:00 +0000] "GET /?q=%22 HTTP/2.0" 200 1 "-" "say \\"hi\\" \\xC3\\xA9\\xFF \xfe"'
        b" 0.004"
    )
    assert quoted.user_agent == 'say "hi" é\\xff \\xfe'
    assert (quoted.query, quoted.rest) == ("q=%22", "0.004")
    assert read_common(b'::1 - "a b" [18/Nov/2026:19:00:00 +0000] "GET /" 200 1').user == '"a b"'


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not in the combined log format"),
        (
            b'::1 - - [31/Feb/2026:19:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"',
            "[31/Feb/2026:19:00:00 +0000] is not a time",
        ),
        (b'::1 - - [18/Nov/2026:19:00:00 +0000] "GET / HTTP/1.1" 200 1', "not in the combined log format"),
        (b'::1 - - [18/Nov/2026:19:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "a"b"', "not in the combined log format"),
        (
            b'::1 - - [18/Nov/2026:19:00:00 +0000] "GET / HTTP/1.1" 200 %d "-" "-"' % 10**20,
            "too large for a number of bytes",
        ),
        (b"a\nb", "more than one line"),
    ],
)
def test_an_access_line_that_is_not_one(line: bytes, why: str) -> None:
    with pytest.raises(InvalidLine, match=r".") as error:
        read_combined(line)
    assert why in str(error.value)


# --- logfmt


def test_logfmt() -> None:
    line = rb'at=info method=GET path=/ host="a b" q="say \"hi\" \u00e9" status=200 cached empty= a=b=c'
    assert read_logfmt(line) == {
        "at": "info", "method": "GET", "path": "/", "host": "a b", "q": 'say "hi" é', "status": "200",
        "cached": "true", "empty": "", "a": "b=c",
    }  # fmt: skip
    assert read_logfmt(b"a=1 a=2\r\n") == {"a": "2"}
    assert read_logfmt(b'a="\xff\\n" b=\xff') == {"a": "\\xff\n", "b": "\\xff"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"java.lang.NullPointerException", "it has no name=value"),
        (b'a="open', "the quote at byte 2 is not closed"),
        (b'a="b"c', "no space behind the value of 'a', at byte 5"),
        (b"=1", "a name is missing at byte 0"),
        (rb'a="\q"', "an escape that is not one of JSON's"),
    ],
)
def test_a_line_that_is_not_logfmt(line: bytes, why: str) -> None:
    with pytest.raises(InvalidLine, match=r".") as error:
        read_logfmt(line)
    assert why in str(error.value)


# --- syslog


def test_the_examples_of_rfc_5424() -> None:
    first = read_syslog(
        b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \xef\xbb\xbf'su root' failed for lonvick",
        received_ms=NOW,
    )
    assert (first.facility, first.severity, first.level) == (4, 2, "critical")
    assert first.time == at(2003, 10, 11, 22, 14, 15, 3000)
    assert (first.host, first.app, first.process_id, first.message_id) == ("mymachine.example.com", "su", None, "ID47")
    assert (first.data, first.message) == ({}, "'su root' failed for lonvick")
    second = read_syslog(
        b"<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
        received_ms=NOW,
    )
    assert second.time == at(2003, 8, 24, 12, 14, 15, 3)
    assert (second.process_id, second.message) == ("8710", "%% It's time to make the do-nuts.")
    third = read_syslog(
        b'<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut="3" '
        b'eventSource="Application" eventID="1011"][examplePriority@32473 class="high"]',
        received_ms=NOW,
    )
    assert third.data == {
        "exampleSDID@32473": {"iut": "3", "eventSource": "Application", "eventID": "1011"},
        "examplePriority@32473": {"class": "high"},
    }
    assert third.message is None
    nothing = read_syslog(b"<0>1 - - - - - -", received_ms=NOW)
    assert (nothing.time, nothing.host, nothing.app, nothing.message) == (None, None, None, None)


def test_the_examples_of_rfc_3164() -> None:
    first = read_syslog(
        b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8", received_ms=NOW
    )
    assert (first.facility, first.severity, first.host, first.app) == (4, 2, "mymachine", "su")
    assert first.time == at(2025, 10, 11, 22, 14, 15)
    second = read_syslog(b"<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!", received_ms=NOW)
    assert (second.host, second.app, second.message) == ("10.0.0.99", None, "Use the BFG!")
    third = read_syslog(
        b"<0>1990 Oct 22 10:52:01 TZ-6 scapegoat.dmz.example.org 10.1.2.3 sched[0]: That's All Folks!", received_ms=NOW
    )
    assert (third.time, third.host) == (None, None)
    assert third.message == "1990 Oct 22 10:52:01 TZ-6 scapegoat.dmz.example.org 10.1.2.3 sched[0]: That's All Folks!"


def test_the_year_is_the_last_that_fits() -> None:
    def year(stamp: bytes, received: datetime) -> datetime | None:
        return read_syslog(b"<13>" + stamp + b" h a: x", received_ms=int(received.timestamp() * 1000)).time

    assert year(b"Dec 31 23:59:59", at(2026, 1, 1, 0, 0, 1)) == at(2025, 12, 31, 23, 59, 59)
    assert year(b"Jan  1 00:30:00", at(2025, 12, 31, 23, 59)) == at(2026, 1, 1, 0, 30), "a clock ahead of ours"
    assert year(b"Jan  2 00:00:00", at(2025, 12, 31, 23, 59)) == at(2025, 1, 2)
    assert year(b"Feb 29 12:00:00", at(2026, 11, 18)) == at(2024, 2, 29, 12)
    assert year(b"Feb 29 12:00:00", at(1903, 11, 18)) == at(1896, 2, 29, 12)
    assert year(b"Feb 30 12:00:00", at(2026, 11, 18)) is None
    assert year(b"Oct 11 2003 22:14:15", at(2026, 11, 18)) == at(2003, 10, 11, 22, 14, 15)


def test_times_without_a_zone_are_the_readers() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    summer = read_syslog(b"<13>Jul  1 12:00:00 h a: x", received_ms=NOW, zone=berlin)
    assert summer.time == at(2025, 7, 1, 10)
    twice = read_syslog(b"<13>Oct 26 02:30:00 h a: x", received_ms=NOW, zone=berlin)
    assert twice.time == at(2025, 10, 26, 0, 30), "the first of the two"


def test_lines_in_files_have_no_priority() -> None:
    line = read_syslog(b"2026-01-03T12:00:00.123456+01:00 web sshd[77]: Accepted publickey\n", received_ms=NOW)
    assert (line.severity, line.level, line.host, line.app, line.process_id) == (None, None, "web", "sshd", "77")
    assert line.time == at(2026, 1, 3, 11, 0, 0, 123456)
    kernel = read_syslog(b"Jan  3 11:00:00 web kernel: [ 12.5] eth0: up", received_ms=NOW)
    assert (kernel.app, kernel.message) == ("kernel", "[ 12.5] eth0: up")
    local = read_syslog(b"<13>Jan  3 11:00:00 root: hello", received_ms=NOW)
    assert (local.host, local.app, local.message) == (None, "root", "hello")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"  at com.example.Main", "begins neither with a priority nor with a time"),
        (b"<192>x", "the priority is 192: the greatest is 191"),
        (b"<34>1 2003-10-11 22:14:15", "the header of RFC 5424 is cut short"),
        (b"<34>1 2003-10-11T22:14:60Z h a p m - x", "is not a time as RFC 5424 writes it"),
        (b"<34>1 - h a p m [a b=c] x", "the structured data is broken"),
        (b"<34>1 - h a p m [a]x", "no space behind the structured data"),
        (b"<34>1 - h\xc3\xa9 a p m - x", "is not printable ASCII"),
    ],
)
def test_a_message_that_is_broken(line: bytes, why: str) -> None:
    with pytest.raises(InvalidLine, match=r".") as error:
        read_syslog(line, received_ms=NOW)
    assert why in str(error.value)


# --- levels

LEVELS = [
    ("2026-11-18 12:00:00,123 ERROR [main] o.a.Foo - it failed", "error"),
    ("[Wed Nov 18 12:00:00 2026] [core:error] [pid 7] AH00126", "error"),
    ("2026/11/18 12:00:00 [warn] 7#7: *1 upstream", "warning"),
    ("level=info msg=x", "info"),
    ('{"severity": "Critical", "m": 1}', "critical"),
    ("E1118 12:00:00.000001 7 a.go:1] x", "error"),
    ("error: no such file", "error"),
    ("WARN  c.e.Main FATAL", "warning"),
    ("<debug> x", "debug"),
    ("PANIC: out of memory", "emergency"),
    ("for more information see the errors", None),
    ("all is fine: nothing here", None),
    ("MYERROR_CODE 7", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "level"), LEVELS)
def test_levels_in_free_text(text: str, level: str | None) -> None:
    assert level_of(text) == level
