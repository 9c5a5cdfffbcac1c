"""SQLite's values as JSON and Python: by what each value is, for a column's type is only a wish there.

A raw value is an `int`, a `float`, `bytes`, or text as wire text. Numbers and text are JSON's own. A blob in a column
that is declared so is base64; in any other column it is `{"blob": base64}`, and text in a blob's column is
`{"text": …}`, so that no two values look the same. Text that is no UTF-8 is `{"broken_text": base64}`. An infinity is
a string, as JSON has none.
"""

import base64
import math
from typing import Any

from headrace.connect.table import CALLED, Codec, Raw, base64_json, quoted


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"Infinity"' if value > 0 else '"-Infinity"'


def _text(wire: str) -> str | None:
    """Text as JSON; None if it is none."""
    if not wire.isascii():
        try:
            wire.encode("latin-1").decode()
        except UnicodeDecodeError:
            return None
    return quoted(wire)


def value_json(value: Raw) -> str:
    """A value of a column that is not declared a blob."""
    if isinstance(value, str):
        return _text(value) or f'{{"broken_text":{base64_json(value.encode("latin-1"))}}}'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if value is None:
        return "null"
    return f'{{"blob":{base64_json(value)}}}'


def blob_json(value: Raw) -> str:
    """A value of a column that is declared a blob."""
    if isinstance(value, bytes):
        return base64_json(value)
    if isinstance(value, str):
        text = _text(value)
        return f'{{"text":{text}}}' if text else value_json(value)
    return value_json(value)


def python_value(value: Raw) -> Any:
    """A value as Python has it; bytes that are no UTF-8 stay in the text as surrogates."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("latin-1").decode(errors="surrogateescape")
    return value


_ANYTHING = {"type": "any"}  # a union in Avro


def codec_of(declared: str) -> Codec:
    """How values of a column are written, by its declared type and SQLite's rules of affinity."""
    upper = declared.upper()
    if "INT" in upper:
        kind = "int64"
    elif any(part in upper for part in ("CHAR", "CLOB", "TEXT")):
        kind = "string"
    elif "BLOB" in upper:
        return Codec(CALLED, blob_json, python_value, {"type": "bytes"}, avro=_ANYTHING)
    elif any(part in upper for part in ("REAL", "FLOA", "DOUB")):
        kind = "double"
    else:
        kind = "string" if not upper or upper == "ANY" else "double"
    return Codec(CALLED, value_json, python_value, {"type": kind}, avro=_ANYTHING)


# --- values in a position, which is JSON


def to_position(value: Raw) -> Any:
    """A value of a key, so that it comes back from JSON as it was."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return ["real", value.hex()]
    if isinstance(value, str):
        return ["text", value]
    return ["blob", base64.b64encode(value).decode()]


def from_position(stored: Any) -> Raw:
    """A value of a key for a statement's parameter."""
    if not isinstance(stored, list):
        return stored
    kind, value = stored
    if kind == "real":
        return float.fromhex(value)
    if kind == "text":
        return python_value(value)
    return base64.b64decode(value)
