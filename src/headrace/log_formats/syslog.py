"""Messages of syslog, as RFC 5424 writes them, as RFC 3164 saw them, and as they stand in files.

    <165>1 2003-10-11T22:14:15.003Z host app 8710 ID47 [exampleSDID@32473 iut="3"] An application event
    <34>Oct 11 22:14:15 mymachine su[123]: 'su root' failed for lonvick on /dev/pts/8
    2026-11-18T19:00:00.123456+01:00 host sshd[77]: Accepted publickey

A time of RFC 3164 has neither year nor zone: the year is the last that does not put it more than a day after the
message was received; the zone is the reader's choice. Where a message has a priority and nothing else that can be
read, all of it is text, as RFC 3164 has relays take it; one without a priority has to begin with a time. A message of
RFC 5424 is read as that RFC says, and is invalid where it is broken.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from headrace.log_formats.levels import level_of_severity
from headrace.log_formats.line import MONTHS, InvalidLine, instant, shown, text_of, without_end, zone_seconds

FACILITIES: Final = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_QUARTER_S: Final = 900
AHEAD: Final = timedelta(days=1)  # a clock that is wrong, or a zone that is not the one it is taken for
YEARS: Final = 9  # as far apart as two 29ths of February can be, around a year like 1900
MOST_ELEMENTS: Final = 1000  # of structured data, and of parameters in one

Data = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class SyslogLine:
    """One message; what it does not say is None. `data` are structured elements by id, their parameters by name."""

    facility: int | None
    severity: int | None
    time: datetime | None
    host: str | None
    app: str | None
    process_id: str | None
    message_id: str | None
    data: Data = field(default_factory=dict)
    message: str | None = None

    @property
    def level(self) -> str | None:
        """The severity by its name."""
        return None if self.severity is None else level_of_severity(self.severity)


_PRIORITY: Final = re.compile(rb"<([0-9]{1,3})>")
_ISO: Final = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    rb"(?:Z|([+-])([0-9]{2}):([0-9]{2}))(?= |$)"
)
_OLD: Final = re.compile(
    rb"([A-Z][a-z]{2}) ([ 0-3]?[0-9])(?: ([0-9]{4}))? ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?:?(?= |$)"
)
_TAG: Final = re.compile(rb"([^ \[\]:]+)(?:\[([^ \[\]]*)\])?:(?: |$)")
_HEADER: Final = re.compile(rb"([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ")
_ID: Final = re.compile(rb'\[([^ =\]"\x00-\x20\x7f-\xff]+)')
_PARAMETER: Final = re.compile(rb' +([^ =\]"\x00-\x20\x7f-\xff]+)="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(rb'\\(["\\\]])')
_BOM: Final = b"\xef\xbb\xbf"
_OUTSIDE_ASCII: Final = re.compile(rb"[^\x21-\x7e]")


def read_syslog(line: bytes, *, received_ms: int, zone: tzinfo = UTC) -> SyslogLine:
    """One message that was received at a time; raises `InvalidLine`."""
    line = without_end(line)
    facility = severity = None
    at = 0
    if priority := _PRIORITY.match(line):
        number = int(priority[1])
        if number > 191:
            raise InvalidLine(f"the priority is {number}: the greatest is 191")
        facility, severity = divmod(number, 8)
        at = priority.end()
        if line.startswith(b"1 ", at):
            return _new(line, at + 2, facility, severity)
    time, behind = _time(line, at, received_ms, zone)
    if time is None:
        if priority is None:
            raise InvalidLine(f"the line begins neither with a priority nor with a time: it begins {shown(line)}")
        return SyslogLine(facility, severity, None, None, None, None, None, {}, text_of(line[at:]))
    host, app, process, message = _old(line[behind + 1 :])
    return SyslogLine(facility, severity, time, host, app, process, None, {}, message)


# --- RFC 5424


def _new(line: bytes, at: int, facility: int, severity: int) -> SyslogLine:
    header = _HEADER.match(line, at)
    if header is None:
        raise InvalidLine(
            "the header of RFC 5424 is cut short: time, host, app, process, message id and data follow it"
        )
    stamp, *words = header.groups()
    time = None
    if stamp != b"-":
        found = _ISO.fullmatch(stamp)
        time = _iso(found) if found is not None else None
        if time is None:
            raise InvalidLine(f"{shown(stamp)} is not a time as RFC 5424 writes it")
    for word in words:
        if _OUTSIDE_ASCII.search(word):
            raise InvalidLine(f"{shown(word)} in the header is not printable ASCII")
    host, app, process, message_id = (None if word == b"-" else text_of(word) for word in words)
    data, at = structured_data(line, header.end())
    message = None
    if at < len(line):
        if line[at : at + 1] != b" ":
            raise InvalidLine(f"there is no space behind the structured data, at byte {at}")
        message = text_of(line[at + 1 :].removeprefix(_BOM))
    return SyslogLine(facility, severity, time, host, app, process, message_id, data, message)


def structured_data(line: bytes, at: int) -> tuple[Data, int]:
    """The elements that begin there, and the place behind them; of a name that stands twice the last counts."""
    if line[at : at + 1] == b"-":
        return {}, at + 1
    elements: dict[str, dict[str, str]] = {}
    while line[at : at + 1] == b"[":
        name = _ID.match(line, at)
        if name is None or len(elements) == MOST_ELEMENTS:
            break
        at = name.end()
        parameters = elements[name[1].decode()] = {}
        while (found := _PARAMETER.match(line, at)) and len(parameters) < MOST_ELEMENTS:
            value = found[2]
            parameters[found[1].decode()] = text_of(_ESCAPE.sub(rb"\1", value) if b"\\" in value else value)
            at = found.end()
        if line[at : at + 1] != b"]":
            break
        at += 1
    else:
        if elements:
            return elements, at
    raise InvalidLine(f"the structured data is broken at byte {at}, where {shown(line[at:], 10)} stands")


def _iso(found: re.Match[bytes]) -> datetime | None:
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = found.groups()
    zone_s = zone_seconds(sign, hours, minutes) if sign else 0
    if zone_s is None:
        return None
    return instant(
        int(year), int(month), int(day), int(hour), int(minute), int(second), _micros(fraction), zone_s=zone_s
    )  # fmt: skip


def _micros(fraction: bytes | None) -> int:
    return int((fraction or b"0")[:6].ljust(6, b"0"))  # what is finer than a microsecond is cut off


# --- RFC 3164


def _time(line: bytes, at: int, received_ms: int, zone: tzinfo) -> tuple[datetime | None, int]:
    """The time that stands there, and the place behind it."""
    if (found := _ISO.match(line, at)) is not None:
        return _iso(found), found.end()
    if (found := _OLD.match(line, at)) is None or found[1] not in MONTHS:
        return None, at
    name, day, year, hour, minute, second, fraction = found.groups()
    rest = (int(hour), int(minute), int(second), _micros(fraction))
    local = _resolved(MONTHS[name], int(day), rest, received_ms, None if year is None else int(year))
    return None if local is None else in_zone(local, zone), found.end()


def _resolved(
    month: int, day: int, rest: tuple[int, int, int, int], received_ms: int, year: int | None
) -> datetime | None:
    """The time in the last year that does not put it more than a day after its receipt; the zone is not looked at."""
    hour, minute, second, micros = rest
    if year is not None:
        return instant(year, month, day, hour, minute, second, micros)
    try:
        latest = _EPOCH + timedelta(milliseconds=received_ms) + AHEAD
    except OverflowError:
        return None
    for one in range(latest.year, latest.year - YEARS, -1):
        local = instant(one, month, day, hour, minute, second, micros) if one >= 1 else None
        if local is not None and local <= latest:
            return local
    return None


def in_zone(local: datetime, zone: tzinfo) -> datetime | None:
    """The moment at which clocks of a zone show what `local` shows; the first, where they show it twice.

    Zones change at quarters of an hour, so one answer does for each.
    """
    seconds = zone_ahead_s(int((local - _EPOCH) // timedelta(seconds=_QUARTER_S)), zone)
    try:
        return local - timedelta(seconds=seconds)
    except OverflowError:
        return None


def zone_ahead_s(quarter: int, zone: tzinfo) -> int:
    """How far a zone is ahead of UTC where its clocks show this quarter of an hour since 1970."""
    try:
        local = (_EPOCH + timedelta(seconds=quarter * _QUARTER_S)).replace(tzinfo=zone)
        return int((local.utcoffset() or timedelta()) // timedelta(seconds=1))
    except OverflowError:
        return 0


def _old(rest: bytes) -> tuple[str | None, str | None, str | None, str | None]:
    """Host, app, process id and message behind the time; a program that logs to its own machine names no host."""
    host = None
    tag = _TAG.match(rest)
    if tag is None:
        word, _, behind = rest.partition(b" ")
        host = text_of(word) if word not in (b"", b"-") else None
        rest = behind
        tag = _TAG.match(rest)
    if tag is None:
        return host, None, None, text_of(rest)
    process = tag[2]
    return host, text_of(tag[1]), text_of(process) if process else None, text_of(rest[tag.end() :])
