"""Lines of StatsD and DogStatsD, read exactly. Pure.

    name:value|type|@rate|#tag:value,tag|T1656581400|c:container     several values: name:1:2:3|ms
    name:1|c:2|c|@0.1                                                the old form of several values
    name;tag=value:1|c   name,tag=value:1|c   name#tag=value:1|c     tags of Graphite, InfluxDB and Librato
    _e{5,4}:title|text|d:…|h:…|k:…|p:…|s:…|t:…|#tags                 an event
    _sc|name|0|d:…|h:…|#tags|m:message                               a service check

What always holds: a line is read whole or refused with one sentence, and what was read is bounded by the line's length.
Two lines that name the same type, name and tags name the same series, however the tags are ordered.
"""

import re
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from headrace.gateways.errors import GatewayError


class Kind(IntEnum):
    """What a metric is; the numbers are those of the compiled walk."""

    COUNTER = 0
    GAUGE = 1
    TIMER = 2
    HISTOGRAM = 3
    DISTRIBUTION = 4
    SET = 5

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def is_timer(self) -> bool:
        """Whether it keeps samples: timers, histograms and distributions are the same under three names."""
        return Kind.TIMER <= self <= Kind.DISTRIBUTION


class Sanitise(StrEnum):
    """What is put into the letters that the reference daemon allows."""

    NAMES = "names"
    ALL = "all"  # tags too, as it does
    NONE = "none"


class BadLine(GatewayError):
    """A line that is neither a metric, nor an event, nor a service check."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What is read in which way."""

    sanitise: Sanitise = Sanitise.NAMES
    gauge_deltas: bool = True  # a signed value of a gauge is added to it, as the reference daemon has it
    container_tag: str = ""  # the tag that holds a container's id; none by default
    line_bytes: int = 8 * 1024
    key_chars: int = 1_000  # of a name with its tags


@dataclass(frozen=True, slots=True)
class SeriesId:
    """What is aggregated together: a type, a name, and tags in their order."""

    kind: Kind
    name: str
    tags: tuple[str, ...] = ()  # `key=value`, or `key`

    @property
    def key(self) -> str:
        """Name and tags, as Graphite writes them."""
        return ";".join((self.name, *self.tags))


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one series, in the order of the line."""

    series: SeriesId
    values: tuple[float, ...] = ()
    deltas: tuple[bool, ...] = ()  # of a gauge: which of the values are added to it
    member: bytes = b""  # of a set
    weight: float = 1.0  # how many values each stands for
    time_s: int | None = None  # its own, by which it is not part of an interval
    is_plain: bool = True  # whether another line with this name and these sections is of the same series and weight


@dataclass(frozen=True, slots=True)
class Event:
    title: str
    text: str
    time_s: int | None = None
    host: str = ""
    aggregation_key: str = ""
    priority: str = "normal"
    source_type: str = ""
    alert_type: str = "info"
    tags: tuple[str, ...] = ()
    container: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: int
    time_s: int | None = None
    host: str = ""
    message: str = ""
    tags: tuple[str, ...] = ()
    container: str = ""


Line = Sample | Event | Check

CHECK_STATES: Final = ("ok", "warning", "critical", "unknown")
_KINDS: Final = {
    b"c": Kind.COUNTER, b"g": Kind.GAUGE, b"ms": Kind.TIMER, b"h": Kind.HISTOGRAM, b"d": Kind.DISTRIBUTION,
    b"s": Kind.SET,
}  # fmt: skip
_NUMBER: Final = re.compile(rb"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*\Z")
_TIME: Final = re.compile(rb"[0-9]{1,12}\Z")
_SECTION: Final = re.compile(rb"[a-z]+:")
_NAME_TAGS: Final = re.compile(r"[;,#]")
_SPACES: Final = re.compile(r"\s+")
_NOT_ALLOWED: Final = re.compile(r"[^a-zA-Z_\-0-9.;=]")
_EVENT: Final = re.compile(rb"_e\{([0-9]{1,9}),([0-9]{1,9})\}:")
_EVENT_FIELDS: Final = {
    b"h": "host",
    b"k": "aggregation_key",
    b"p": "priority",
    b"s": "source_type",
    b"t": "alert_type",
}
_CHOICES: Final = {"priority": ("normal", "low"), "alert_type": ("error", "warning", "info", "success")}


def read_lines(line: bytes, dialect: Dialect) -> tuple[list[Line], list[BadLine]]:
    """What a line without its end says, in its order, and what is wrong with it; an old line may have both."""
    if len(line) > dialect.line_bytes:
        return [], [BadLine(f"the line has {len(line)} bytes, more than the {dialect.line_bytes} of max_line")]
    line = line.removesuffix(b"\r")
    try:
        if line.startswith(b"_e{"):
            return [_event(line)], []
        if line.startswith(b"_sc|"):
            return [_check(line)], []
        name, colon, rest = line.partition(b":")
        if not colon or b"|" in name:
            raise BadLine(f"{_shown(line)} has no value: write name:value|type")
        values, bar, sections = rest.partition(b"|")
        if not bar:
            raise BadLine(f"{_shown(line)} has no type: write name:value|type")
        written_kind, *more = sections.split(b"|")
        if b":" in written_kind or (more and more[0].startswith(b"@") and b":" in more[0]):
            return _old_form(name, rest, dialect)
        return [_metric(line, name, values, written_kind, more, dialect)], []
    except BadLine as error:
        return [], [error]


# --- metrics


@dataclass(slots=True)
class _Sections:
    """What stands behind the type."""

    rate: float | None = None
    tags: tuple[bytes, ...] = ()
    time_s: int | None = None
    container: bytes = b""
    others: dict[bytes, bytes] = field(default_factory=dict)


def _metric(
    line: bytes, name: bytes, values: bytes, written_kind: bytes, sections: list[bytes], dialect: Dialect
) -> Sample:
    kind = _KINDS.get(written_kind.strip())
    if kind is None:
        raise BadLine(f"{_shown(line)} is of the type {_shown(written_kind)}: known are c, g, ms, h, d and s")
    read = _sections(line, sections)
    if read.time_s is not None and kind > Kind.GAUGE:
        raise BadLine(f"{_shown(line)} has a time of its own: only counters and gauges may")
    series = _series(kind, name, read, dialect)
    weight = 1.0 if read.rate is None else 1 / read.rate
    is_plain = read.time_s is None
    if kind is Kind.SET:
        return Sample(series, member=values or b"0", weight=weight, is_plain=is_plain)
    texts = values.split(b":")
    numbers = tuple(_number(line, text, kind) for text in texts)
    deltas = tuple(dialect.gauge_deltas and text[:1] in b"+-" for text in texts) if kind is Kind.GAUGE else ()
    return Sample(series, numbers, deltas, weight=weight, time_s=read.time_s, is_plain=is_plain)


def _old_form(name: bytes, rest: bytes, dialect: Dialect) -> tuple[list[Line], list[BadLine]]:
    """`name:1|c:2|c|@0.1|#tags`: each value has a type and a rate, tags are of all."""
    head, sharp, tail = rest.partition(b"|#")
    sections = [b"#" + tail.split(b"|", 1)[0], *tail.split(b"|")[1:]] if sharp else []
    read: list[Line] = []
    bad: list[BadLine] = []
    for part in head.split(b":"):
        line = name + b":" + part
        value, bar, behind = part.partition(b"|")
        try:
            if not bar:
                raise BadLine(f"{_shown(line)} has no type: write name:value|type")
            written_kind, *more = behind.split(b"|")
            sample = _metric(line, name, value, written_kind, [*more, *sections], dialect)
        except BadLine as error:
            bad.append(error)
        else:
            read.append(
                Sample(sample.series, sample.values, sample.deltas, sample.member, sample.weight, sample.time_s, False)
            )
    return read, bad


def _sections(line: bytes, sections: list[bytes]) -> _Sections:
    read = _Sections()
    for section in sections:
        if section.startswith(b"@"):
            if read.rate is not None:
                raise BadLine(f"{_shown(line)} has two sampling rates")
            read.rate = _rate(line, section[1:])
        elif section.startswith(b"#"):
            read.tags += tuple(tag for tag in section[1:].split(b",") if tag)
        elif section.startswith(b"T"):
            if read.time_s is not None:
                raise BadLine(f"{_shown(line)} has two times")
            read.time_s = _time(line, section[1:])
        elif section.startswith(b"c:"):
            read.container = section[2:].strip()
        elif _SECTION.match(section):  # `e:` and `card:` of newer clients, and what is to come
            head, _, value = section.partition(b":")
            read.others[head] = value
        elif section.strip():
            raise BadLine(
                f"{_shown(line)} has a section {_shown(section)}: known are @rate, #tags, T, c:, e: and card:"
            )
    return read


def _number(line: bytes, text: bytes, kind: Kind) -> float:
    if not _NUMBER.match(text):
        raise BadLine(f"{_shown(line)} has a value {_shown(text)}, which is not a decimal number")
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise BadLine(f"{_shown(line)} has a value {_shown(text)}, which is beyond what a number of 64 bits holds")
    if kind is Kind.TIMER and number < 0:
        raise BadLine(f"{_shown(line)} is a timer that took less than nothing")
    return number


def _rate(line: bytes, text: bytes) -> float:
    rate = float(text) if _NUMBER.match(text) else 0.0
    # Below that, what one value stands for is beyond a number of 64 bits.
    if not 1e-300 <= rate <= 1:
        raise BadLine(f"{_shown(line)} has a sampling rate {_shown(text)}: it must be above 0 and at most 1")
    return rate


def _time(line: bytes, text: bytes) -> int:
    if not _TIME.match(text):
        raise BadLine(f"{_shown(line)} has a time {_shown(text)}, which is not a number of seconds since 1970")
    return int(text)


# --- which series


def sanitised(name: str) -> str:
    """In the letters that the reference daemon allows: what has no like is left out."""
    return _NOT_ALLOWED.sub("", _SPACES.sub("_", name).replace("/", "-"))


def _series(kind: Kind, name: bytes, read: _Sections, dialect: Dialect) -> SeriesId:
    text = name.decode(errors="replace")
    text, own = _tags_of_name(text)
    if dialect.sanitise is not Sanitise.NONE:
        text = sanitised(text)
    if not text:
        raise BadLine(f"{_shown(name)} is a name with no letter that names may have")
    tags = {_tag(tag) for tag in (*own, *(tag.decode(errors="replace") for tag in read.tags))}
    if dialect.container_tag and read.container:
        tags.add(_tag(f"{dialect.container_tag}:{read.container.decode(errors='replace')}"))
    if dialect.sanitise is Sanitise.ALL:
        tags = {sanitised(tag) for tag in tags}
    series = SeriesId(kind, text, tuple(sorted(tags - {""})))
    if len(series.key) > dialect.key_chars:
        raise BadLine(f"{_shown(name)} has {len(series.key)} letters with its tags, more than {dialect.key_chars}")
    return series


def _tags_of_name(name: str) -> tuple[str, list[str]]:
    """Tags that stand in a name. Those of InfluxDB and Librato are tags only if each has a key and a value."""
    found = _NAME_TAGS.search(name)
    if found is None:
        return name, []
    behind = name[found.end() :]
    tags = behind.split(";" if found.group() == ";" else ",")
    if found.group() != ";" and not all(tag.find("=") > 0 for tag in tags):
        # What else the name has of these characters is left out of it, as the reference daemon does.
        head, semicolon, tail = name.partition(";")
        return head, tail.split(";") if semicolon else []
    return name[: found.start()], [tag for tag in tags if tag]


def _tag(tag: str) -> str:
    """`key:value` as `key=value`; a semicolon would end it."""
    return tag.replace(":", "=", 1).replace(";", "_").strip()


# --- events and service checks


def _event(line: bytes) -> Event:
    head = _EVENT.match(line)
    if head is None:
        raise BadLine(f"{_shown(line)} is no event: write _e{{5,4}}:title|text, with the length of both in bytes")
    title_size, text_size = int(head[1]), int(head[2])
    title_end = head.end() + title_size
    text_end = title_end + 1 + text_size
    if (
        line[title_end : title_end + 1] != b"|"
        or text_end > len(line)
        or line[text_end : text_end + 1] not in (b"", b"|")
    ):
        raise BadLine(f"{_shown(line)} is no event: its title and text are not as long as it says, in bytes")
    if not title_size:
        raise BadLine(f"{_shown(line)} is an event without a title")
    found = _about(line, line[text_end + 1 :].split(b"|") if text_end < len(line) else [])
    values = {
        name: found.others[key].decode(errors="replace") for key, name in _EVENT_FIELDS.items() if key in found.others
    }
    for name, choices in _CHOICES.items():
        if values.get(name, choices[0]) not in choices:
            raise BadLine(
                f"{_shown(line)} has the {name.replace('_', ' ')} {values[name]!r}: known are {', '.join(choices)}"
            )
    return Event(
        _unescaped(line[head.end() : title_end]), _unescaped(line[title_end + 1 : text_end]), found.time_s,
        tags=_tags_of(found), container=found.container.decode(errors="replace"), **values,
    )  # fmt: skip


def _check(line: bytes) -> Check:
    _, name, *behind = line.split(b"|")
    if not name or not behind or behind[0] not in (b"0", b"1", b"2", b"3"):
        raise BadLine(f"{_shown(line)} is no service check: write _sc|name|status with a status from 0 to 3")
    found = _about(line, behind[1:])
    return Check(
        name.decode(errors="replace"), int(behind[0]), found.time_s,
        found.others.get(b"h", b"").decode(errors="replace"),
        _unescaped(found.others.get(b"m", b"").replace(rb"m\:", b"m:")), _tags_of(found),
        found.container.decode(errors="replace"),
    )  # fmt: skip


def _about(line: bytes, sections: list[bytes]) -> _Sections:
    """What stands behind an event or a check; its time is `d:`."""
    found = _sections(line, [section for section in sections if not section.startswith((b"@", b"T"))])
    if b"d" in found.others:
        found.time_s = _time(line, found.others[b"d"])
    return found


def _tags_of(found: _Sections) -> tuple[str, ...]:
    return tuple(sorted({_tag(tag.decode(errors="replace")) for tag in found.tags} - {""}))


def _unescaped(text: bytes) -> str:
    return text.decode(errors="replace").replace("\\n", "\n")


def _shown(text: bytes) -> str:
    """The beginning of what was sent, which may be anything."""
    return repr(text[:60].decode(errors="replace") + ("…" if len(text) > 60 else ""))
