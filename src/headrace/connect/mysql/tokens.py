"""A statement of MariaDB or MySQL in words. Pure."""

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
      (?P<space>\s+ | --\s[^\n]* | --$ | \#[^\n]* | /\*(?![!M]).*?\*/)
    | (?P<open>/\*M?!\d*)                      # a comment that is executed: what is in it counts
    | (?P<close>\*/)
    | `(?P<quoted>(?:[^`]|``)*)`
    | "(?P<double>(?:[^"\\]|""|\\.)*)"
    | [NnXxBb]?'(?P<string>(?:[^'\\]|''|\\.)*)'
    | (?P<word>[\w$\u0080-\U0010ffff@]+)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """One word; `kind` is word, quoted, string or mark."""

    kind: str
    text: str

    @property
    def upper(self) -> str:
        """What it is as a keyword; empty for what cannot be one."""
        return self.text.upper() if self.kind in ("word", "mark") else ""


def split(statement: str) -> list[Token]:
    """The words of a statement."""
    found = []
    for match in _TOKEN.finditer(statement):
        kind = match.lastgroup
        assert kind is not None
        text = match[kind]
        if kind in ("space", "open", "close"):
            continue
        if kind == "quoted":
            text = text.replace("``", "`")
        elif kind in ("string", "double"):
            kind, text = "string", _unescaped(text, "'" if kind == "string" else '"')
        found.append(Token(kind, text))
    return found


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def _unescaped(text: str, quote: str) -> str:
    text = text.replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)
