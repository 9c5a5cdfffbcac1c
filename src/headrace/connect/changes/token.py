"""Resume tokens: a place in a stream of changes, as text that survives a restart. Pure.

A token says what it is of (which database, slot, tables; which topic; which view), the position from which its source
can go on, and how far behind that the reader was. It is made of letters, digits, `-`, `_` and `.`, so it can stand in
a URL, a header or a file. Its last part is a checksum, or with a secret a signature: a token that went through other
hands is then refused if anybody altered it.

    hr1 . what it is of and the position, deflated . how far behind . checksum
"""

import base64
import binascii
import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

from headrace.connect.change import Position
from headrace.connect.errors import BadToken

_VERSION: Final = "hr1"
_MOST_CHARACTERS: Final = 4 * 1024 * 1024
_MOST_BYTES: Final = 32 * 1024 * 1024  # a small text may inflate to a large one
_SUM_CHARACTERS: Final = 22
_REMEDY: Final = "pass it as it was given, or begin anew without resume"


class Base:
    """What many tokens share: what they are of, and a position of the source."""

    def __init__(self, of: Mapping[str, Any], position: Position) -> None:
        self.of = of
        self.position = position

    @cached_property
    def text(self) -> str:
        return _encoded(zlib.compress(_json({"of": self.of, "at": self.position}), 6))


@dataclass(frozen=True, slots=True)
class Token:
    """A place: so far behind a position."""

    base: Base
    tail: list[Any]

    def as_text(self, secret: str = "") -> str:
        body = f"{_VERSION}.{self.base.text}.{_encoded(_json(self.tail))}"
        return f"{body}.{_sum(body, secret)}"

    @classmethod
    def parsed(cls, text: str, secret: str = "") -> Self:
        """A token from its text; raises `BadToken` for whatever is none."""
        body, _, found = text.rpartition(".") if isinstance(text, str) else ("", "", "")
        version, *parts = body.split(".")
        if version != _VERSION or len(parts) != 2 or len(text) > _MOST_CHARACTERS or not text.isascii():
            raise BadToken("it is no token of this version", _REMEDY)
        if not hmac.compare_digest(found, _sum(body, secret)):
            was = "was altered, or signed with another secret" if secret else "was altered or cut short, or is signed"
            raise BadToken(f"it {was}", _REMEDY)
        try:
            inflating = zlib.decompressobj()
            data = inflating.decompress(_decoded(parts[0]), _MOST_BYTES)
            read = json.loads(data)
            tail = json.loads(_decoded(parts[1]))
            if inflating.unconsumed_tail or not isinstance(tail, list):
                raise ValueError
            return cls(Base(dict(read["of"]), dict(read["at"])), tail)
        except (ValueError, KeyError, TypeError, RecursionError, zlib.error, binascii.Error) as error:
            raise BadToken("what is in it cannot be read", _REMEDY) from error

    def check(self, of: Mapping[str, Any]) -> None:
        """Refuse a token of something else than `of`."""
        theirs = self.base.of
        for name in dict.fromkeys((*of, *theirs)):
            there, here = theirs.get(name), of.get(name)
            if there != here and not (name in _MAY_BE_UNKNOWN and not (there and here)):
                raise BadToken(
                    f"it is of {name} {_shown(there)}, and this stream is of {name} {_shown(here)}",
                    "resume where it was made, or begin anew without resume",
                )


_MAY_BE_UNKNOWN: Final = ("server", "topic id")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "(all)"
    return "(none)" if value in (None, "") else str(value)


def is_larger(text: str, most_bytes: int) -> bool:
    """Whether the text of a token holds more than so many bytes; what is no token does not."""
    try:
        return len(zlib.decompressobj().decompress(_decoded(text.split(".")[1]), most_bytes + 1)) > most_bytes
    except (IndexError, ValueError, zlib.error):
        return False


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _sum(body: str, secret: str) -> str:
    data = body.encode(errors="replace")
    digest = hmac.new(secret.encode(), data, hashlib.sha256) if secret else hashlib.sha256(data)
    return _encoded(digest.digest())[:_SUM_CHARACTERS]
