"""A statement of MariaDB or MySQL in words. Pure."""

import re
from functools import cache
from typing import Final, NamedTuple

_PARTS: Final = r"""
      (?P<space>\s+ | --\s[^\n]* | --$ | \#[^\n]* | /\*(?!M?!).*?\*/)
    | (?P<open>/\*M?!\d*)                      # a comment that is executed: what is in it counts
    | (?P<close>\*/)
    | `(?P<quoted>(?:[^`]|``)*)`
    | "(?P<double>(?:[^"{back}]|""{escaped})*)"
    | [NnXxBb]?'(?P<string>(?:[^'{back}]|''{escaped})*)'
    | (?P<word>[\w$\u0080-\U0010ffff@]+)
    | (?P<mark>.)
    """
ANSI_QUOTES: Final = 1 << 2  # of the SQL mode: what stands in double quotes is a name
NO_BACKSLASH_ESCAPES: Final = 1 << 20  # and a backslash is a character as any other


@cache
def _pattern(*, escapes: bool) -> re.Pattern[str]:
    back, escaped = (r"\\", r"|\\.") if escapes else ("", "")
    return re.compile(_PARTS.replace("{back}", back).replace("{escaped}", escaped), re.VERBOSE | re.DOTALL)


class Token(NamedTuple):
    """One word; `kind` is word, quoted, string or mark."""

    kind: str
    text: str

    @property
    def upper(self) -> str:
        """What it is as a keyword; empty for what cannot be one."""
        return self.text.upper() if self.kind in ("word", "mark") else ""


def split(statement: str, sql_mode: int = 0) -> list[Token]:
    """The words of a statement, as a session of this SQL mode meant them."""
    found = []
    escapes = not sql_mode & NO_BACKSLASH_ESCAPES
    for match in _pattern(escapes=escapes).finditer(statement):
        kind = match.lastgroup
        assert kind is not None
        text = match[kind]
        if kind in ("space", "open", "close"):
            continue
        if kind == "quoted":
            text = text.replace("``", "`")
        elif kind == "double" and sql_mode & ANSI_QUOTES:
            kind, text = "quoted", text.replace('""', '"')
        elif kind in ("string", "double"):
            quote = "'" if kind == "string" else '"'
            kind, text = "string", unescaped(text, quote) if escapes else text.replace(quote * 2, quote)
        found.append(Token(kind, text))
    return found


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def unescaped(text: str, quote: str) -> str:
    """What stands between quotes, as it was meant."""
    text = text.replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)
