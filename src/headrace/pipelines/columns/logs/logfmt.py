"""The decoder of logfmt: the columns of JSON's, filled by a walk of its own."""

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from headrace.log_formats import read_logfmt
from headrace.log_formats.line import InvalidLine
from headrace.pipelines.columns.json import JsonDecoder
from headrace.pipelines.columns.json_exact import DoesNotFit, convert
from headrace.pipelines.columns.logs.logfmt_walk import walk_logfmt

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,100}")
_REAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "1": True,
                    "false": False, "False": False, "FALSE": False, "0": False}  # fmt: skip


class LogfmtDecoder(JsonDecoder):
    """Reads one line per record into the columns of a schema, by the names of its values.

    A name that is missing, and an empty value where no text is wanted, are null.
    """

    walk = staticmethod(walk_logfmt)

    @staticmethod
    def read_one(data: bytes, fields: Mapping[str, pa.DataType], epoch_micros: int = 0) -> dict[str, Any]:
        """The wanted fields of one line, exactly; raises `DoesNotFit`."""
        try:
            values = read_logfmt(data)
        except InvalidLine as error:
            raise DoesNotFit(str(error)) from None
        return {name: _value(values.get(name), kind, name, epoch_micros) for name, kind in fields.items()}


def _value(text: str | None, kind: pa.DataType, name: str, epoch_micros: int) -> Any:
    types = pa.types
    if text is None or types.is_string(kind):
        return text
    if types.is_binary(kind):
        return text.encode()
    if text == "":
        return None
    value: Any = text
    if types.is_boolean(kind):
        value = _BOOLEANS.get(text, text)
    elif types.is_integer(kind) or (types.is_timestamp(kind) and text.isascii() and text.isdigit()):
        value = int(text) if _WHOLE.fullmatch(text) else text
    elif types.is_floating(kind) and _REAL.fullmatch(text):
        value = float(text)
    return convert(value, text, kind, name, epoch_micros)
