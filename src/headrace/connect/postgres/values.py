"""PostgreSQL's text of a value, made into JSON and Python: exact, or as text where no exact number exists.

The session that sends the text has `DateStyle=ISO`, `IntervalStyle=iso_8601`, `TimeZone=UTC`, `lc_monetary=C` and
`extra_float_digits=3`, whatever the server's own settings are (`SESSION` below). All text is wire text.
"""

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from json import loads
from typing import Any, Final, TypeAlias

from headrace.connect.table import base64_json, from_wire, or_text, unscaled_bytes

SESSION: Final = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "lc_monetary": "C",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
INFINITE_US: Final = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}  # as Debezium writes them
INFINITE_DAYS: Final = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
_TIME = re.compile(r"(\d+):(\d\d):(\d\d)(?:\.(\d+))?")
_PLAIN_NUMBER = re.compile(r"-?\d")


def boolean_json(text: str) -> str:
    return "true" if text == "t" else "false"


def boolean(text: str) -> bool:
    return text == "t"


def float_json(text: str) -> str:
    """A number; what JSON has no number for stays text."""
    if text[-1] in "0123456789":
        return text
    return f'"{text}"'  # NaN, Infinity, -Infinity


def decimal_double_json(text: str) -> str:
    """A numeric as the nearest double."""
    return repr(float(text)) if _PLAIN_NUMBER.match(text) else f'"{text}"'


def unscaled(text: str) -> tuple[int, bytes]:
    """A numeric's scale and its unscaled value."""
    whole, _, fraction = text.partition(".")
    return len(fraction), unscaled_bytes(int(whole + fraction))


def precise_json(text: str) -> str:
    """A numeric of a declared scale: the unscaled value in base64; NaN is null, for it has none."""
    return base64_json(unscaled(text)[1]) if _PLAIN_NUMBER.match(text) else "null"


def rounded_json(scale: int) -> Callable[[str], str]:
    """The same for a scale below zero, where the text has zeros that the unscaled value has not."""

    def write(text: str) -> str:
        return precise_json(text if text == "0" else text[:scale])

    return write


def variable_scale_json(text: str) -> str:
    """A numeric of no declared scale: scale and unscaled value."""
    if not _PLAIN_NUMBER.match(text):
        return "null"
    scale, number = unscaled(text)
    return f'{{"scale":{scale},"value":{base64_json(number)}}}'


def money_text(text: str) -> str:
    """`-$1,234.50` as a plain decimal."""
    return text.replace("$", "").replace(",", "")


def bytes_of(text: str) -> bytes:
    r"""A bytea's `\x` text."""
    return bytes.fromhex(text[2:])


def bytea_json(text: str) -> str:
    return base64_json(bytes.fromhex(text[2:]))


def hex_json(text: str) -> str:
    return f'"{text[2:]}"'


def bits_json(text: str) -> str:
    """A bit string as Debezium writes it: its bytes, the lowest first, in base64."""
    number = int(text, 2) if text else 0
    return base64_json(number.to_bytes((len(text) + 7) // 8, "little"))


def bit_json(text: str) -> str:
    return "true" if text == "1" else "false"


# --- dates and times


def days_of(text: str) -> int:
    """Days since 1970 of any date that PostgreSQL knows, 4713 BC to the year 5874897."""
    try:
        return dt.date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError:
        if text in INFINITE_DAYS:
            return INFINITE_DAYS[text]
    era = text.endswith(" BC")
    year, month, day = (int(part) for part in text.removesuffix(" BC").split("-"))
    return _days(1 - year if era else year, month, day)


def _days(year: int, month: int, day: int) -> int:
    """The proleptic Gregorian calendar, moved by whole cycles of 400 years into the range that `datetime` knows."""
    cycles = (year - 2000) // 400
    return dt.date(year - cycles * 400, month, day).toordinal() - _EPOCH_DAY + cycles * 146_097


def time_us(text: str) -> int:
    """Microseconds since midnight; 24:00:00 is a time in PostgreSQL."""
    found = _TIME.match(text)
    assert found is not None
    hours, minutes, seconds, fraction = found.groups()
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))


def timestamp_us(text: str) -> int:
    """Microseconds since 1970 of a timestamp without zone, taken as UTC."""
    if len(text) <= 26 and text[4:5] == "-":
        try:
            moment = dt.datetime.fromisoformat(text if len(text) == 19 else text.ljust(26, "0"))
        except ValueError:
            pass  # BC: longer than its digits
        else:
            since = moment.toordinal() - _EPOCH_DAY
            clock = (moment.hour * 60 + moment.minute) * 60 + moment.second
            return since * _DAY_US + clock * 1_000_000 + moment.microsecond
    if text in INFINITE_US:
        return INFINITE_US[text]
    date, _, rest = text.partition(" ")
    clock_text, _, era = rest.partition(" ")
    return days_of(f"{date} {era}" if era else date) * _DAY_US + time_us(clock_text)


def _written(read: Callable[[str], int]) -> Callable[[str], str]:
    return lambda text: str(read(text))


def _thousandths(read: Callable[[str], int]) -> Callable[[str], str]:
    return lambda text: str(read(text) // 1000)


days_json, micros_json, millis_json = _written(days_of), _written(timestamp_us), _thousandths(timestamp_us)
time_micros_json, time_millis_json = _written(time_us), _thousandths(time_us)


def zoned_iso(text: str) -> str:
    """A timestamptz in ISO 8601, in UTC; years beyond 9999 and before 1 keep PostgreSQL's text."""
    if text[10:11] == " " and text.endswith("+00"):
        return f"{text[:10]}T{text[11:-3]}Z"
    return text


def local_iso(text: str) -> str:
    """A timestamp without zone in ISO 8601."""
    return f"{text[:10]}T{text[11:]}" if text[10:11] == " " else text


def time_zoned_iso(text: str) -> str:
    """A timetz in ISO 8601; its own offset is kept, because there is no day to move it over."""
    if text[-3] in "+-":
        return f"{text}:00" if text[-2:] != "00" else f"{text[:-3]}Z"
    return text


def _in_quotes(write: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: f'"{write(text)}"'


zoned_json, local_json, time_zoned_json = _in_quotes(zoned_iso), _in_quotes(local_iso), _in_quotes(time_zoned_iso)
money_json = _in_quotes(money_text)


# --- Python values; what Python has no value for stays text


python_date = or_text(dt.date.fromisoformat)
python_time = or_text(lambda text: dt.time.fromisoformat(text if "." not in text else text.ljust(15, "0")))
python_timestamp = or_text(dt.datetime.fromisoformat)
python_timestamptz = or_text(lambda text: dt.datetime.fromisoformat(zoned_iso(text)))


def python_money(text: str) -> Decimal:
    return Decimal(money_text(text))


def python_json(text: str) -> object:
    return loads(from_wire(text))


_PARTS = re.compile(
    r"(?P<sign>-?)P(?:(?P<years>-?\d+)Y)?(?:(?P<months>-?\d+)M)?(?:(?P<days>-?\d+)D)?"
    r"(?:T(?:(?P<hours>-?\d+)H)?(?:(?P<minutes>-?\d+)M)?(?:(?P<seconds>-?[\d.]+)S)?)?$"
)
_MONTH_US = _DAY_US * 487 // 16  # 30.4375 days, as Debezium has it


def interval_micros(text: str) -> str:
    """Microseconds of an ISO 8601 interval as PostgreSQL writes it; an infinite one stays text."""
    found = _PARTS.match(text)
    if found is None:
        return f'"{text}"'
    part = {name: value or "0" for name, value in found.groupdict().items()}
    months = int(part["years"]) * 12 + int(part["months"])
    clock = (int(part["hours"]) * 60 + int(part["minutes"])) * 60_000_000
    total = months * _MONTH_US + int(part["days"]) * _DAY_US + clock + _second_micros(part["seconds"])
    return str(-total if part["sign"] == "-" else total)


def _second_micros(text: str) -> int:
    whole, _, fraction = text.partition(".")
    micros = int(fraction.ljust(6, "0")) if fraction else 0
    return int(whole) * 1_000_000 + (-micros if text.startswith("-") else micros)


Nested: TypeAlias = "list[str | Nested | None]"


def parse_array(text: str, delimiter: str = ",") -> Nested:
    """The elements as text, None for NULL; bounds other than PostgreSQL's usual ones are dropped."""
    if text.startswith("["):
        text = text[text.index("=") + 1 :]
    # Most arrays are flat and hold nothing that was quoted.
    if '"' not in text and text.find("{", 1) < 0:
        inner = text[1:-1]
        if not inner:
            return []
        return [None if part == "NULL" else part for part in inner.split(delimiter)]
    return _parse(text, 1, delimiter)[0]


def _parse(text: str, at: int, delimiter: str) -> tuple[Nested, int]:
    """The list whose `{` is before `at`, and the place behind its `}`."""
    found: Nested = []
    while True:
        mark = text[at]
        if mark == "}":
            return found, at + 1
        if mark == delimiter:
            at += 1
        elif mark == "{":
            inner, at = _parse(text, at + 1, delimiter)
            found.append(inner)
        elif mark == '"':
            element, at = _parse_quoted(text, at + 1)
            found.append(element)
        else:
            end = at
            while text[end] not in (delimiter, "}"):
                end += 1
            word = text[at:end]
            found.append(None if word == "NULL" else word)
            at = end


def _parse_quoted(text: str, at: int) -> tuple[str, int]:
    """A quoted element whose first character is at `at`, and the place behind its closing quote."""
    parts: list[str] = []
    while True:
        quote = text.index('"', at)
        escape = text.find("\\", at, quote)
        if escape < 0:
            parts.append(text[at:quote])
            return "".join(parts), quote + 1
        parts.append(text[at:escape])
        parts.append(text[escape + 1])
        at = escape + 2


def array_json(element: Callable[[str], str], delimiter: str = ",") -> Callable[[str], str]:
    """A function that writes an array as a JSON list, with `element` for each of its values."""

    def write(values: Nested) -> str:
        return (
            "["
            + ",".join(
                "null" if value is None else write(value) if isinstance(value, list) else element(value)
                for value in values
            )
            + "]"
        )

    return lambda text: write(parse_array(text, delimiter))


def array_python(element: Callable[[str], Any], delimiter: str = ",") -> Callable[[str], Any]:
    """A function that reads an array as a list, with `element` for each of its values."""

    def read(values: Nested) -> list[Any]:
        return [
            None if value is None else read(value) if isinstance(value, list) else element(value) for value in values
        ]

    return lambda text: read(parse_array(text, delimiter))
