r"""Lines of logfmt: `level=info msg="it is done" took=12ms cached`.

A name is any run of characters but spaces, `=` and `"`; a value is such a run (which may hold `=`) or stands in quotes,
with JSON's escapes. A name alone is true. Of a name that stands twice the last counts. A line without any `=` is not
logfmt: it is prose, or a line of a stack trace.
"""

import re
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Final

from headrace.log_formats.line import InvalidLine, shown, text_of, without_end

ALONE: Final = "true"  # the value of a name that stands alone

_NAME: Final = re.compile(rb'[^\x00-\x20="]+')
_VALUE: Final = re.compile(rb'[^\x00-\x20"]*')
_STRING: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_STRAY: Final = re.compile("[\udc80-\udcff]")
_SPACE: Final = re.compile(rb"[\x00-\x20]*")


def read_logfmt(line: bytes) -> dict[str, str]:
    """The values of a line by their names; raises `InvalidLine`."""
    line = without_end(line)
    if b"\n" in line:
        raise InvalidLine("the value is more than one line: write each line as a record of its own")
    if line and b"=" not in line:
        raise InvalidLine(f"the line is not logfmt, it has no name=value: it begins {shown(line)}")
    found: dict[str, str] = {}
    at = _behind(_SPACE, line, 0)
    while at < len(line):
        name = _NAME.match(line, at)
        if name is None:
            raise InvalidLine(f"a name is missing at byte {at}, where {shown(line[at:], 10)} stands")
        at = name.end()
        if line[at : at + 1] != b"=":
            value = ALONE
        elif line[at + 1 : at + 2] == b'"':
            value, at = _quoted(line, at + 1)
        else:
            written = _VALUE.match(line, at + 1)
            assert written is not None
            value, at = text_of(written[0]), written.end()
        if at < len(line) and line[at] > 0x20:
            raise InvalidLine(f"there is no space behind the value of {text_of(name[0])!r}, at byte {at}")
        found[text_of(name[0])] = value
        at = _behind(_SPACE, line, at)
    return found


def _behind(pattern: re.Pattern[bytes], line: bytes, at: int) -> int:
    found = pattern.match(line, at)
    return found.end() if found else at


def _quoted(line: bytes, at: int) -> tuple[str, int]:
    string = _STRING.match(line, at)
    if string is None:
        raise InvalidLine(f"the quote at byte {at} is not closed")
    text = text_of(string[1]) if b"\\" not in string[1] else _resolved(string[1], at)
    return text, string.end()


def _resolved(inside: bytes, at: int) -> str:
    # A byte that is not UTF-8 becomes an escape that is itself escaped, and so stands as `\\xHH` in the text.
    written = _STRAY.sub(lambda byte: f"\\\\x{ord(byte[0]) - 0xDC00:02x}", inside.decode(errors="surrogateescape"))
    try:
        text: str = scanstring(written + '"', 0, False)[0]
    except JSONDecodeError:
        raise InvalidLine(f"the text in quotes at byte {at} has an escape that is not one of JSON's") from None
    return text.encode(errors="backslashreplace").decode()  # half a surrogate pair stays as it was written
