r"""PostgreSQL's text of an array, taken apart: `{1,2,NULL}`, `{"a \"b\"",c}`, `{{1,2},{3,4}}`, `[0:1]={1,2}`."""

from collections.abc import Callable
from typing import Any, TypeAlias

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
