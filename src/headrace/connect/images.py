"""Functions that write a row as JSON, made for the columns of a table. Pure."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from headrace.connect.change import Member
from headrace.connect.schemas import SOURCE_TYPES
from headrace.connect.table import UNCHANGED, Column, Row, json_wire, quoted, to_wire


def image_writer(
    view: Sequence[tuple[int, Column]],
    *,
    before: str = "",
    after: str = "",
    nullable: bool = True,
    encoded: bool = False,
) -> Callable[[Row], Any]:
    """A function that writes these columns of a row as a JSON object, between two texts; wire text, or its bytes."""
    code = _Code()
    lines, image = code.columns(view, frozenset() if nullable else frozenset(index for index, _ in view))
    template = _literal(before) + image + _literal(after)
    result = f"f{template!r}" + (".encode('latin-1')" if encoded else "")
    return code.made("row", lines, result)


def record_writer(
    view: Sequence[tuple[int, Column]],
    key: Sequence[int],
    *,
    key_around: tuple[str, str],
    head: str,
    source: str,
    tail: str,
) -> Callable[[Row, str, str, str, str, str], tuple[bytes | None, bytes]]:
    """A function of row, old row's text, members and place of the source, operation and end, to key and value.

    The whole record of a create, read or update in one piece of straight-line code: the key's columns are written once.
    """
    code = _Code()
    lines, image = code.columns(view, frozenset(key))
    value = (
        _literal(head) + "{old}" + _literal(',"after":') + image + _literal("," + source) + "{members}{place}"
        + _literal('},"op":"') + "{op}" + _literal('"') + "{end}" + _literal(tail)
    )  # fmt: skip
    key_code = "None"
    if key:
        numbers = {index: number for number, (index, _) in enumerate(view)}
        names = {index: column.name for index, column in view}
        parts = ",".join(_literal(json_wire(names[index]) + ":") + f"{{t{numbers[index]}}}" for index in key)
        key_template = _literal(key_around[0] + "{") + parts + _literal("}" + key_around[1])
        key_code = f"f{key_template!r}.encode('latin-1')"
    return code.made("row, old, members, place, op, end", lines, f"{key_code}, f{value!r}.encode('latin-1')")


@cache
def members_writer(names: tuple[str, ...]) -> Callable[[Iterable[Member]], str]:
    """A function that writes values as members of a `source` block, each behind a comma."""
    if not names:
        return lambda _values: ""
    code = _Code()
    lines = [f"{', '.join(f'v{number}' for number in range(len(names)))}, = values"]
    template = ""
    for number, name in enumerate(names):
        written = f"w(v{number})" if SOURCE_TYPES[name] == "string" else f"v{number}"
        lines.append(f't{number} = "null" if v{number} is None else {written}')
        template += _literal(f",{json_wire(name)}:") + f"{{t{number}}}"
    return code.made("values", lines, f"f{template!r}")


class _Code:
    """A function that is being written; what it needs is bound to its arguments, where it is found fastest."""

    def __init__(self) -> None:
        self._scope: dict[str, Any] = {"q": quoted, "w": _text, "UNCHANGED": UNCHANGED}

    def columns(self, view: Sequence[tuple[int, Column]], never_null: frozenset[int]) -> tuple[list[str], str]:
        """Lines that write each column into `t0`, `t1`, …, and the template of a JSON object with all of them."""
        lines, parts = [], []
        for number, (index, column) in enumerate(view):
            value, text, function = f"v{number}", f"t{number}", f"f{number}"
            form = column.codec.form
            if "{f}" in form:
                self._scope[function] = column.codec.to_json
            written = form.format(v=value, f=function)
            lines.append(f"{value} = row[{index}]")
            if index not in never_null:
                self._scope[f"u{number}"] = column.codec.unavailable
                written = f'"null" if {value} is None else u{number} if {value} is UNCHANGED else {written}'
            lines.append(f"{text} = {written}")
            parts.append(_literal(json_wire(column.name) + ":") + f"{{{text}}}")
        return lines, _literal("{") + ",".join(parts) + _literal("}")

    def made(self, arguments: str, lines: Sequence[str], result: str) -> Callable[..., Any]:
        """The function."""
        bound = ", ".join(f"{name}={name}" for name in self._scope)
        body = "".join(f"    {line}\n" for line in lines)
        text = f"def write({arguments}, *, {bound}):\n{body}    return {result}\n"
        exec(compile(text, "<row>", "exec"), self._scope)  # noqa: S102 - our own text; names are only in literals
        made: Callable[..., Any] = self._scope["write"]
        return made


def key_differs(key: Sequence[int]) -> Callable[[Row, Row], bool]:
    """A function that says whether two rows have different keys."""
    if not key:
        return lambda _before, _after: False
    test = " or ".join(f"before[{index}] != after[{index}]" for index in key)
    scope: dict[str, Any] = {}
    exec(f"def differs(before, after):\n    return {test}", scope)  # noqa: S102 - numbers alone
    made: Callable[[Row, Row], bool] = scope["differs"]
    return made


def _text(text: str) -> str:
    return quoted(text if text.isascii() else to_wire(text))


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
