"""One JSON object, read exactly: the measure for the compiled walk, and what says why a record does not decode.

A field that is missing or null is null. Text takes anything: what is no string stays as it was written. Every other
type takes only what fits it, exactly: no number is rounded but to the nearest double, nothing is cut to fit.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from json.decoder import WHITESPACE, scanstring  # type: ignore[attr-defined]
from typing import Any, Self

import pyarrow as pa

from headrace.connect.table import UNAVAILABLE_TEXT
from headrace.pipelines.columns.unavailable import placeholder_in

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
_WIDE = Context(prec=100)  # Python's own context rounds to 28 digits; Arrow's decimals have 38
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TOO_LARGE_FOR_FLOAT = 3.4028235677973366e38  # from here on infinity is the nearest


class DoesNotFit(ValueError):
    """Why a record cannot be decoded, in words."""


def _no_constant(name: str) -> None:
    raise DoesNotFit(f"{name} is not valid JSON")


class _Written(float):
    """A number that remembers how it was written: a decimal wants every digit of it, wherever it stands."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        found = super().__new__(cls, text)
        found.text = text
        return found


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_Written)


def read_object(data: bytes, fields: Mapping[str, pa.DataType], epoch_micros: int = 0) -> dict[str, Any]:
    """The wanted fields of one object, as Python values that `pyarrow.array` takes; raises `DoesNotFit`."""
    found: dict[str, Any] = dict.fromkeys(fields)
    try:
        for name, (value, text) in _members(data).items():
            kind = fields.get(name)
            if kind is not None:
                found[name] = convert(value, text, kind, name, epoch_micros)
    except RecursionError as error:
        raise DoesNotFit("the value is nested too deeply") from error
    return found


def _members(data: bytes) -> dict[str, tuple[Any, str]]:
    """Every member's value, and its text as it was written; of a name that stands twice the last."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DoesNotFit(f"the value is not valid UTF-8 at byte {error.start}") from error
    members: dict[str, tuple[Any, str]] = {}
    try:
        at = _space(text, 0)
        if text[at : at + 1] != "{":
            raise DoesNotFit(f"the value is not a JSON object: it begins {_shown(text)}")
        at = _space(text, at + 1)
        if text[at : at + 1] == "}":
            return _ended(text, at, members)
        while True:
            if text[at : at + 1] != '"':
                raise DoesNotFit(f"a member's name is missing at character {at}")
            name, at = scanstring(text, at + 1, True)
            at = _space(text, at)
            if text[at : at + 1] != ":":
                raise DoesNotFit(f"a colon is missing at character {at}")
            start = _space(text, at + 1)
            value, at = _DECODER.raw_decode(text, start)
            members[name] = (value, text[start:at])
            at = _space(text, at)
            if text[at : at + 1] == "}":
                return _ended(text, at, members)
            if text[at : at + 1] != ",":
                raise DoesNotFit(f"a comma or }} is missing at character {at}")
            at = _space(text, at + 1)
    except json.JSONDecodeError as error:
        raise DoesNotFit(f"no JSON at character {error.pos}: {error.msg}") from error
    except DoesNotFit:
        raise
    except ValueError as error:  # Python reads no number of more than 4,300 digits
        raise DoesNotFit(f"no JSON that can be read: {error}") from error


def _space(text: str, at: int) -> int:
    return int(WHITESPACE.match(text, at).end())


def _ended(text: str, at: int, members: dict[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    if _space(text, at + 1) != len(text):
        raise DoesNotFit(f"something follows the object at character {at + 1}")
    return members


def _shown(text: str) -> str:
    return repr(text[:20] + "…" if len(text) > 20 else text)


def convert(value: Any, text: str | None, kind: pa.DataType, name: str, epoch_micros: int = 0) -> Any:
    """A JSON value as a value of an Arrow type; raises `DoesNotFit` with the field's name."""
    if value is None:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text(value, text, name)
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    if pa.types.is_integer(kind):
        return _whole(value, kind, name)
    if pa.types.is_floating(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        return _real(value, kind, name)
    if pa.types.is_decimal(kind) and not isinstance(value, bool | list | dict):
        return exact_decimal(str(getattr(value, "text", value)), kind, name)
    if pa.types.is_timestamp(kind):
        return _time(value, kind, name, epoch_micros)
    if pa.types.is_date(kind) and isinstance(value, str):
        return _date(value, name)
    if pa.types.is_binary(kind) and isinstance(value, str):
        return _binary(value, name)
    if pa.types.is_list(kind) and isinstance(value, list):
        if value == [UNAVAILABLE_TEXT] and (placeholder := placeholder_in(kind.value_type)) is not None:
            return placeholder
        return [convert(item, None, kind.value_type, name, epoch_micros) for item in value]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {
            field.name: convert(value.get(field.name), None, field.type, f"{name}.{field.name}", epoch_micros)
            for field in kind
        }
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [
            (_text(key, None, name), convert(item, None, kind.item_type, f"{name}.{key}", epoch_micros))
            for key, item in value.items()
        ]
    raise DoesNotFit(f"field {name!r} is {_shown(json.dumps(value))}, which is not {kind}")


def _text(value: Any, text: str | None, name: str) -> str:
    found = value if isinstance(value, str) else text if text is not None else _as_written(value)
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise DoesNotFit(f"field {name!r} holds half a surrogate pair, which no text can") from error
    return found


def _as_written(value: Any) -> str:
    """What is not a string inside a list or an object, as JSON again."""
    if isinstance(value, list):
        return f"[{', '.join(map(_as_written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_as_written(name)}: {_as_written(item)}' for name, item in value.items())}}}"
    return str(value.text) if isinstance(value, _Written) else json.dumps(value, ensure_ascii=False)


def _whole(value: Any, kind: pa.DataType, name: str) -> int:
    bits = kind.bit_width - 1
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**bits) <= value < 2**bits:
            return value
        raise DoesNotFit(f"field {name!r} is {value}, too large for {kind}")
    raise DoesNotFit(f"field {name!r} is {_shown(json.dumps(value))}, which is not a whole number")


def _real(value: float, kind: pa.DataType, name: str) -> float:
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isinf(found) or (kind.bit_width == 32 and abs(found) >= _TOO_LARGE_FOR_FLOAT):
        raise DoesNotFit(f"field {name!r} is too large for a {kind}")
    return found


def exact_decimal(text: str, kind: pa.Decimal128Type, name: str) -> Decimal:
    """A number as a decimal of this type, with no digit more or less; raises `DoesNotFit` with the field's name."""
    try:
        if not _DECIMAL.fullmatch(text):
            raise InvalidOperation
        written = Decimal(text)
        found = written.quantize(Decimal(1).scaleb(-kind.scale, _WIDE), context=_WIDE)
        if found != written or (found and found.adjusted() + 1 > kind.precision - kind.scale):
            raise InvalidOperation
    except InvalidOperation:
        raise DoesNotFit(f"field {name!r} is {_shown(text)}, which does not fit {kind}") from None
    return found


def _time(value: Any, kind: pa.TimestampType, name: str, epoch_micros: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if not epoch_micros:
            raise DoesNotFit(f"field {name!r} is the number {value}: say what it counts with epochUnit = s, ms or us")
        micros = value * epoch_micros
        if not -(2**63) <= micros < 2**63:
            raise DoesNotFit(f"field {name!r} is {value}, too large for a time")
        return micros
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise DoesNotFit(f"field {name!r} is {_shown(value)}, which is not a time as ISO 8601 writes it") from None
        return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
    raise DoesNotFit(f"field {name!r} is {_shown(json.dumps(value))}, which is not {kind}")


def _date(value: str, name: str) -> date:
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise DoesNotFit(f"field {name!r} is {_shown(value)}, which is not a date as ISO 8601 writes it") from None


def _binary(value: str, name: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise DoesNotFit(f"field {name!r} is {_shown(value)}, which is not base64") from None
