"""Functions that write a row as Avro, made for the columns of a table. Pure.

What a column's value becomes is taken from how it is written as JSON, so that both formats always agree; where the raw
value is the text or the number itself there is no detour.
"""

import base64
from collections.abc import Callable, Sequence
from json import loads
from typing import Any

from headrace.connect.avro import binary
from headrace.connect.avro.types import ANY, DECIMAL, Schema, any_bytes, unavailable, value_writer
from headrace.connect.table import PLAIN, QUOTED, UNCHANGED, VERBATIM, Column, Row, from_wire, to_wire, unscaled_bytes

View = Sequence[tuple[int, Column]]
_WHOLE = ("int8", "int16", "int32", "int64")


def column_schema(column: Column, *, optional: bool) -> dict[str, Any]:
    """A column's field. Only the key's are never null: of a row that is gone the rest need not be known."""
    schema = column.codec.avro or column.codec.schema
    return {**schema, "optional": optional, "field": column.name}


def key_writer(view: View, head: bytes) -> Callable[[Row], bytes]:
    """A function that writes a key behind its frame."""
    code = _Code()
    lines, pieces = code.columns(view, frozenset(index for index, _ in view))
    return code.made("row", lines, code.joined([code.constant(head), *pieces]))


def row_writer(view: View, key: Sequence[int], head: bytes, tails: Sequence[bytes] = ()) -> Callable[..., bytes]:
    """A function that writes a row behind `head`; with `tails`, of the row and of which of them stands behind it."""
    code = _Code()
    lines, pieces = code.columns(view, frozenset(key))
    pieces = [code.constant(head), *pieces]
    if not tails:
        return code.made("row", lines, code.joined(pieces))
    return code.made("row, which", lines, code.joined([*pieces, f"{code.constant(tuple(tails))}[which]"]))


def record_writer(
    view: View, key: Sequence[int], *, key_head: bytes, head: bytes, source: bytes
) -> Callable[..., tuple[bytes | None, bytes]]:
    """A function of row, old row, origin, place, operation and end, to key and value.

    The whole record of a create, read or update in one piece of straight-line code: the key's columns are written once.
    """
    code = _Code()
    lines, pieces = code.columns(view, frozenset(key))
    present, ops = code.constant(binary.PRESENT), code.constant(OPERATION_BYTES)
    value = code.joined(
        [
            code.constant(head), "old", present, *pieces,
            code.constant(source), "members", "place", f"{ops}[op]", "end",
        ]
    )  # fmt: skip
    numbers = {index: number for number, (index, _) in enumerate(view)}
    key_pieces = [f"t{numbers[index]}" for index in key]
    key_code = code.joined([code.constant(key_head), *key_pieces]) if key else "None"
    return code.made("row, old, members, place, op, end", lines, f"{key_code}, {value}")


OPERATION_BYTES = {op: binary.sized(op.encode()) for op in ("c", "u", "d", "r", "t", "m")}


class _Code:
    """A function that is being written; what it needs is bound to its arguments, where it is found fastest."""

    def __init__(self) -> None:
        self._scope: dict[str, Any] = {"UNCHANGED": UNCHANGED, "join": b"".join}

    def constant(self, value: Any) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name

    def joined(self, pieces: Sequence[str]) -> str:
        """An expression of all pieces, one behind the other."""
        return f"join(({', '.join(pieces)},))"

    def columns(self, view: View, never_null: frozenset[int]) -> tuple[list[str], list[str]]:
        """Lines that write each column into `t0`, `t1`, …, and these names."""
        lines, pieces = [], []
        for number, (index, column) in enumerate(view):
            optional = index not in never_null
            lines.append(f"v = row[{index}]")
            value_lines, written = self._value(column, optional)
            if optional:
                mark = unavailable(column.codec.avro or column.codec.schema)
                left_out = self.constant(binary.NULL if mark is None else binary.PRESENT + mark)
                lines.append(f"if v is None: t{number} = {self.constant(binary.NULL)}")
                lines.append(f"elif v is UNCHANGED: t{number} = {left_out}")
                lines.append("else:")
                lines += [f"    {line}" for line in (*value_lines, f"t{number} = {written}")]
            else:
                lines += [*value_lines, f"t{number} = {written}"]
            pieces.append(f"t{number}")
        return lines, pieces

    def _value(self, column: Column, optional: bool) -> tuple[list[str], str]:
        """An expression of the raw value `v` with lines before it, in the second branch of a union if optional."""
        codec = column.codec
        schema = codec.avro or codec.schema
        kind, form = schema["type"], codec.form
        present = f"{self.constant(binary.PRESENT)} + " if optional else ""
        if kind == "string" and form in (QUOTED, PLAIN):
            sizes = self.constant(binary.SIZES_PRESENT if optional else binary.SIZES)
            large = self.constant(binary.sized_present if optional else binary.sized)
            lines = ["e = v.encode('latin-1')", "n = len(e)"]
            return lines, f"{sizes}[n] + e if n < {binary.TABLED} else {large}(e)"
        if kind in _WHOLE and form == VERBATIM:
            numbers = self.constant(binary.SIZES_PRESENT if optional else binary.SIZES)
            return ["n = int(v)"], (
                f"{numbers}[n] if 0 <= n < {binary.TABLED} else {present}{self.constant(binary.long)}(n)"
            )
        if kind in ("double", "float"):
            pack = self.constant(binary.double if kind == "double" else binary.single)
            return [], f"{present}{pack}(float(v))"  # raw values are numbers or their texts, NaN and infinities too
        if kind == ANY:
            return [], f"{self.constant(any_bytes)}(v, {int(optional)})"
        return [], f"{self.constant(_by_json(codec.to_json, schema, optional=optional))}(v)"

    def made(self, arguments: str, lines: Sequence[str], result: str) -> Callable[..., Any]:
        bound = ", ".join(f"{name}={name}" for name in self._scope)
        body = "".join(f"    {line}\n" for line in lines)
        text = f"def write({arguments}, *, {bound}):\n{body}    return {result}\n"
        exec(compile(text, "<avro row>", "exec"), self._scope)  # noqa: S102 - our own text, without any name of theirs
        made: Callable[..., Any] = self._scope["write"]
        return made


def _by_json(to_json: Callable[[Any], str], schema: Schema, *, optional: bool) -> Callable[[Any], bytes]:
    """A function of a raw value, by what it is as JSON."""
    kind = schema["type"]
    before = binary.PRESENT if optional else b""
    none = binary.NULL if optional else None
    if kind == "boolean":
        true, false = before + b"\x01", before + b"\x00"
        return lambda raw: true if to_json(raw) == "true" else false
    if kind in _WHOLE:
        return lambda raw: _whole(to_json(raw), before, none)
    if kind == "string":
        return lambda raw: before + binary.sized(_unquoted(to_json(raw)).encode("latin-1"))
    if schema.get("name") == DECIMAL:
        return lambda raw: _decimal(to_json(raw), before, none)
    if kind == "bytes":
        return lambda raw: before + binary.sized(base64.b64decode(to_json(raw)[1:-1]))
    write = value_writer({**schema, "optional": optional})
    return lambda raw: write(loads(from_wire(to_json(raw))))


def _whole(text: str, before: bytes, none: bytes | None) -> bytes:
    """A number. A date that is none stays a text in JSON; here it is null, or the first day, as Debezium has it."""
    if text[0] == '"':
        return binary.long(0) if none is None else none
    return before + binary.long(int(text))


def _decimal(text: str, before: bytes, none: bytes | None) -> bytes:
    """An unscaled value in base64, or a whole number as it is; NaN has none, and is null or zero."""
    if text == "null":
        return binary.sized(b"\x00") if none is None else none
    if text[0] == '"':
        return before + binary.sized(base64.b64decode(text[1:-1]))
    return before + binary.sized(unscaled_bytes(int(text)))


def _unquoted(text: str) -> str:
    """What a JSON string holds, both as wire text."""
    if text[0] != '"':
        return text
    return text[1:-1] if "\\" not in text else to_wire(loads(from_wire(text)))
