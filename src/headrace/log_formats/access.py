r"""Lines of a web server's access log, in the common and in the combined log format.

    ::1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif?x=1 HTTP/1.0" 200 2326 "http://…/" "Mozilla/4.08 …"

Apache and nginx write what a client sent with escapes: Apache `\"`, `\\`, `\n`, `\xhh`, nginx `\xHH`; they are
resolved, and where the bytes are not UTF-8 they stay as they were written. `-` is null. A request line that is not one
(a scanner speaking TLS, a browser speaking garbage) is in `request`, with method, path and protocol null. What a
server's own format appends behind a space, such as `$request_time`, is in `rest`.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.log_formats.line import MONTHS, InvalidLine, instant, shown, text_of, without_end, zone_seconds


@dataclass(frozen=True, slots=True)
class AccessLine:
    """One request, as the server wrote it down; referer and user agent are of the combined format."""

    client: str | None
    identity: str | None
    user: str | None
    time: datetime
    request: str | None
    method: str | None
    path: str | None
    query: str | None
    protocol: str | None
    status: int | None
    body_bytes: int | None
    referer: str | None = None
    user_agent: str | None = None
    rest: str | None = None


def read_common(line: bytes) -> AccessLine:
    """A line in the common log format; raises `InvalidLine`."""
    return _read(line, _COMMON, "common")


def read_combined(line: bytes) -> AccessLine:
    """A line in the combined log format; raises `InvalidLine`."""
    return _read(line, _COMBINED, "combined")


_QUOTED: Final = rb'"((?:[^"\\]|\\.)*)"'
_TIME: Final = rb"\[([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2}) ([+-])([0-9]{2})([0-9]{2})\]"
_HEAD: Final = rb"([^ ]+) ([^ ]+) (.+?) " + _TIME + rb" " + _QUOTED + rb" ([0-9]{3}|-) ([0-9]+|-)"
_COMMON: Final = re.compile(_HEAD + rb"(?: (.*))?", re.DOTALL)
_COMBINED: Final = re.compile(_HEAD + rb" " + _QUOTED + rb" " + _QUOTED + rb"(?: (.*))?", re.DOTALL)
_REQUEST: Final = re.compile(
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (?:(?P<whole>[^ ]+) (?P<protocol>HTTP/[0-9.]+)|(?P<old>/[^ ]*))"
)
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|([\"\\nrtbfv]))")
_ESCAPED: Final = {
    b'"': b'"',
    b"\\": b"\\",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}
_MOST_DIGITS: Final = 18


def _read(line: bytes, form: re.Pattern[bytes], name: str) -> AccessLine:
    line = without_end(line)
    if b"\n" in line:
        raise InvalidLine("the value is more than one line: write each line as a record of its own")
    found = form.fullmatch(line)
    if found is None:
        raise InvalidLine(f"the line is not in the {name} log format: it begins {shown(line)}")
    client, identity, user, day, month, year, hour, minute, second, sign, hours, minutes, request, *behind = (
        found.groups()
    )
    status, size, *quoted, rest = behind
    zone_s = zone_seconds(sign, hours, minutes)
    time = None
    if month in MONTHS and zone_s is not None:
        time = instant(
            int(year), MONTHS[month], int(day), int(hour), int(minute), int(second), zone_s=zone_s
        )  # fmt: skip
    if time is None:
        raise InvalidLine(f"{text_of(found[0][found.start(4) - 1 : found.end(12) + 1])} is not a time")
    if len(size) > _MOST_DIGITS:
        raise InvalidLine(f"{text_of(size[:40])} is too large for a number of bytes")
    line_text = _value(request)
    method, path, query, protocol = split_request(line_text)
    referer, agent = map(_value, quoted) if quoted else (None, None)
    return AccessLine(
        _value(client),
        _value(identity),
        _value(user),
        time,
        line_text,
        method,
        path,
        query,
        protocol,
        None if status == b"-" else int(status),
        None if size == b"-" else int(size),
        referer,
        agent,
        text_of(rest) if rest else None,
    )


def split_request(request: str | None) -> tuple[str | None, str | None, str | None, str | None]:
    """Method, path, query and protocol of a request line; all None if it is not one."""
    found = _REQUEST.fullmatch(request or "")
    if found is None:
        return None, None, None, None
    path, mark, query = (found["whole"] or found["old"]).partition("?")
    return found[1], path, query if mark else None, found["protocol"]


def _value(data: bytes) -> str | None:
    if data == b"-":
        return None
    return text_of(_ESCAPE.sub(_resolved, data) if b"\\" in data else data)


def _resolved(escape: re.Match[bytes]) -> bytes:
    return bytes((int(escape[1], 16),)) if escape[1] else _ESCAPED[escape[2]]
