"""A message of syslog as a record: pure.

As JSON its fields are those that `headrace.log_formats` reads, under the names that pipelines give them: `facility`,
`severity`, `level`, `time` (ISO 8601, UTC), `host`, `app`, `process_id`, `message_id`, `data` and `message`. As it
came, a pipeline reads it with `format("syslog")`.

What always holds: any bytes give a record, or a reason why not; a record's timestamp is when the message was received,
against which a time without a year is settled.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final

from headrace.log_formats import InvalidLine, SyslogLine, read_syslog

PROBLEM_HEADER: Final = "headrace.problem"
Entry = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_MICROSECOND: Final = timedelta(microseconds=1)


class Value(StrEnum):
    """What a record holds."""

    JSON = "json"
    RAW = "raw"


class Keyed(StrEnum):
    """What becomes a record's key."""

    NONE = "none"
    HOST = "host"
    APP = "app"
    CLIENT = "client"


def fields_of(line: SyslogLine) -> dict[str, object]:
    """The JSON of a message; what it does not say is null."""
    return {
        "facility": line.facility,
        "severity": line.severity,
        "level": line.level,
        "time": None if line.time is None else _iso(line.time),
        "host": line.host,
        "app": line.app,
        "process_id": line.process_id,
        "message_id": line.message_id,
        "data": line.data,
        "message": line.message,
    }


def _iso(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + f".{time.microsecond:06}Z"


class Recording:
    """Makes records of messages, as a section asks for them."""

    def __init__(self, value: Value, key: Keyed, zone: tzinfo, header: str | None, *, keeps_unreadable: bool) -> None:
        self._value = value
        self._key = key
        self._zone = zone
        self._header = header
        self._keeps = keeps_unreadable
        self._must_read = value is Value.JSON or key in (Keyed.HOST, Keyed.APP)

    def entry(self, data: bytes, client: str, received_ms: int, refuse: Callable[[str, str], None]) -> Entry | None:
        """The record of a message; None for one that is left out. `refuse` is told why, and whose it is."""
        headers: tuple[tuple[str, bytes], ...] = ()
        if self._header:
            headers = ((self._header, client.encode(errors="replace")),)
        line: SyslogLine | None = None
        if self._must_read:
            try:
                line = read_syslog(data, received_ms=received_ms, zone=self._zone)
            except InvalidLine as error:
                refuse(str(error), client)
                if not self._keeps:
                    return None
                headers += ((PROBLEM_HEADER, str(error).encode(errors="replace")),)
                text = data.decode(errors="backslashreplace")
                line = SyslogLine(None, None, None, None, None, None, None, {}, text)
        value = data
        if self._value is Value.JSON and line is not None:
            value = _ENCODE(fields_of(line)).encode(errors="backslashreplace")
        return self._key_of(line, client), value, received_ms, headers

    def _key_of(self, line: SyslogLine | None, client: str) -> bytes | None:
        found = None
        match self._key:
            case Keyed.CLIENT:
                found = client
            case Keyed.HOST:
                found = line.host if line is not None else None
            case Keyed.APP:
                found = line.app if line is not None else None
        return None if found is None else found.encode(errors="replace")
