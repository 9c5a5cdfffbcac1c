"""JSON whose numbers stay as they were written, however long: no value is changed on its way through. Pure."""

import json
import re
import secrets
from typing import Any, Final

from headrace.serving.asking import parse_json

_LONGEST_INT: Final = 4_000  # characters; Python reads no longer ones
# Nobody who sends a value can know it, so that no text in one looks like a number of ours.
_MARK: Final = f"headrace-{secrets.token_hex(16)}-"
_MARKED: Final = re.compile(rf'"{_MARK}(\d+)"')


class ExactNumber:
    """A number that Python would write in another way."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _float(text: str) -> float | ExactNumber:
    value = float(text)
    return value if repr(value) == text else ExactNumber(text)


def _int(text: str) -> int | ExactNumber:
    return int(text) if len(text) <= _LONGEST_INT and text != "-0" else ExactNumber(text)


def read_exact(body: bytes | str) -> Any:
    """The value of a text of JSON; raises `InvalidRequest`."""
    return parse_json(body, parse_float=_float, parse_int=_int)


def write_exact(value: Any) -> str:
    """The text of a value that was read so, in one line and without spaces."""
    numbers: list[str] = []

    def mark(number: object) -> str:
        assert isinstance(number, ExactNumber)
        numbers.append(number.text)
        return f"{_MARK}{len(numbers) - 1}"

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=mark)
    return _MARKED.sub(lambda found: numbers[int(found[1])], text) if numbers else text


def json_bytes(value: Any) -> bytes:
    """The same as bytes; half a character is written as JSON itself escapes it."""
    return write_exact(value).encode(errors="backslashreplace")


def as_json_text(value: bytes) -> str | None:
    """The text of JSON that bytes are, in one line; None if they are none."""
    try:
        text = value.decode()
        json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    # In JSON a line break stands between values alone.
    return text.replace("\r", " ").replace("\n", " ") if "\n" in text or "\r" in text else text


def _refuse(text: str) -> Any:
    raise ValueError(text)
